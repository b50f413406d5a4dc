"""Experiments 2 and 3 on a terminal while they run: rates per tier, quotas, tier states, the card against its limit, what just happened.

Only drawing; everything shown comes from the board. A frame never has more lines or columns than the terminal.
"""

import time
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from demo.tide.board import TideSnapshot
from demo.tide.plain_view import card_words
from demo.tide.script import BUSINESSES, WANTED
from demo.views import BORDER_COLUMNS, ECHO_COLUMNS, REFRESHES_PER_SECOND, event_lines, line, recent_mean, sparkline

# All columns of the table but the sparkline; all lines but events.
_OTHER_COLUMNS = 58
_FIXED_LINES = 12


def tide_live_view(console: Console, read: Callable[[], TideSnapshot]) -> Live:
    """A context manager that redraws the board while it is open."""
    return Live(
        console=console,
        get_renderable=lambda: draw_tide(read(), console, now_seconds=time.time()),
        refresh_per_second=REFRESHES_PER_SECOND,
        transient=True,
    )


def draw_tide(board: TideSnapshot, console: Console, *, now_seconds: float) -> RenderableType:
    """One frame, almost as wide and at most as high as the console."""
    width = console.width - ECHO_COLUMNS
    parts: list[RenderableType] = [
        _headline(board, now_seconds),
        Text(),
        _tiers(board, width=width - BORDER_COLUMNS),
        Text(),
        _card(board),
        Text(),
        *event_lines(board.marks, lines=console.height - _FIXED_LINES - len(BUSINESSES)),
    ]
    return Panel(Group(*parts), title="Tidegate demo: the broker's limit", border_style="blue", width=width)


def _headline(board: TideSnapshot, now_seconds: float) -> Text:
    text = line(board.title or "Set-up", style="bold")
    text.append(f"\n{board.activity}", style="default")
    if board.activity_ends_at_seconds is not None:
        text.append(f", at most {max(0.0, board.activity_ends_at_seconds - now_seconds):.0f} s left", style="dim")
    return text


def _tiers(board: TideSnapshot, *, width: int) -> Table:
    seconds = max(1, min(48, width - _OTHER_COLUMNS))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in ("tier", f"arrives, last {seconds} s"):
        table.add_column(heading, no_wrap=True)
    for heading in ("12 s mean", "quota", "wants"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for business in BUSINESSES:
        rates = board.arriving.get(business.level, ())
        quota = board.quotas.get(business.level)
        table.add_row(
            business.level,
            sparkline(rates[-seconds:], float(business.wanted)).rjust(seconds),
            f"{recent_mean(rates) / 1e6:.1f} MB/s",
            "none" if quota is None else f"{quota / 1e6:.1f}",
            f"{business.wanted / 1e6:g}",
            board.states.get(business.level, ""),
        )
    return table


def _card(board: TideSnapshot) -> Text:
    over = board.card_rate is not None and board.limit is not None and board.card_rate > board.limit
    return line(f"broker's {card_words(board)}; all together want {WANTED / 1e6:g} MB/s", style="bold red" if over else "bold green")
