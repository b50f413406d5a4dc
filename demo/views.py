"""The experiment on a terminal while it runs: rates per partition, brokers, the quota in force, what just happened.

Only drawing; everything shown comes from the board. A frame never has more lines or columns than the terminal.
"""

import time
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from demo.board import HISTORY_SECONDS, Snapshot
from demo.outcome import PhaseResult
from demo.script import BROKERS, HEALTHY_LEADERS
from demo.words import Mark, MarkKind
from lab.rates import SAWTOOTH_SECONDS

_BLOCKS = " ▁▂▃▄▅▆▇█"
REFRESHES_PER_SECOND = 4
# Room for the terminal's own echo of Ctrl-C, pressed twice: beside a frame as wide as the terminal it would push the frame down a line.
ECHO_COLUMNS = 4
# Frame and padding of the panel; all columns of the table but the sparkline; all lines but results and events.
BORDER_COLUMNS = 4
_OTHER_COLUMNS = 42
_FIXED_LINES = 13
_MARK_STYLES = {
    MarkKind.QUOTA: "bold green",
    MarkKind.KILL: "bold red",
    MarkKind.RETURN: "bold green",
    MarkKind.LEADER: "yellow",
    MarkKind.COMMAND: "bold cyan",
    MarkKind.EVENT: "dim",
    MarkKind.STATE: "bold magenta",
}


def live_view(console: Console, read: Callable[[], Snapshot], *, contract: int) -> Live:
    """A context manager that redraws the board while it is open. `contract` is the promised rate per partition in bytes/s."""
    return Live(
        console=console,
        get_renderable=lambda: draw(read(), console, contract=contract, now_seconds=time.time()),
        refresh_per_second=REFRESHES_PER_SECOND,
        transient=True,
    )


def draw(board: Snapshot, console: Console, *, contract: int, now_seconds: float) -> RenderableType:
    """One frame, almost as wide and at most as high as the console."""
    width = console.width - ECHO_COLUMNS
    parts: list[RenderableType] = [
        _headline(board, now_seconds),
        Text(),
        _partitions(board, contract, width=width - BORDER_COLUMNS),
        Text(),
        _brokers(board),
        Text(),
        *map(_result, board.results),
        *event_lines(board.marks, lines=console.height - _FIXED_LINES - len(board.results)),
    ]
    return Panel(Group(*parts), title="Tidegate demo: the contract follows the leaders", border_style="blue", width=width)


def sparkline(rates: tuple[float, ...], highest: float) -> str:
    """One block character a rate, scaled so that `highest` is a full block."""
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[min(top, round(rate / highest * top))] for rate in rates) if highest > 0 else " " * len(rates)


def recent_mean(rates: tuple[float, ...]) -> float:
    """The mean of the last sawtooth, or of what there is; 0 before the first second."""
    recent = rates[-SAWTOOTH_SECONDS:]
    return sum(recent) / len(recent) if recent else 0.0


def _headline(board: Snapshot, now_seconds: float) -> Text:
    drawn = line(board.phase.title if board.phase else "Set-up", style="bold")
    drawn.append(f"\n{board.activity}", style="default")
    if board.activity_ends_at_seconds is not None:
        drawn.append(f", {max(0.0, board.activity_ends_at_seconds - now_seconds):.0f} s left", style="dim")
    return drawn


def _partitions(board: Snapshot, contract: int, *, width: int) -> Table:
    seconds = max(1, min(HISTORY_SECONDS, width - _OTHER_COLUMNS))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in ("partition", "leader", f"delivered, last {seconds} s"):
        table.add_column(heading, no_wrap=True)
    for heading in ("12 s mean", "promised"):
        table.add_column(heading, justify="right", no_wrap=True)
    history = {partition: rates[-seconds:] for partition, rates in (board.history or dict.fromkeys(HEALTHY_LEADERS, ())).items()}
    highest = max((rate for rates in history.values() for rate in rates), default=0.0)
    for partition, rates in sorted(history.items()):
        leader = f"broker {board.leaders[partition]}" if partition in board.leaders else "none"
        bar, mean = Text(sparkline(rates, highest).rjust(seconds)), recent_mean(rates)
        table.add_row(f"{partition}", leader, bar, f"{mean / 1e6:.1f} MB/s", f"{contract / 1e6:g} MB/s", style=_style(mean, contract))
    total, promised = sum(map(recent_mean, history.values())), contract * len(HEALTHY_LEADERS)
    table.add_row("total", "", "", f"{total / 1e6:.1f} MB/s", f"{promised / 1e6:g} MB/s", style=f"bold {_style(total, promised)}")
    return table


def _style(rate: float, promised: float) -> str:
    """Red below what is promised, as far as a sawtooth lets one tell."""
    return "green" if rate >= 0.9 * promised else "red"


def _brokers(board: Snapshot) -> Text:
    drawn = line("")
    for broker in BROKERS:
        led = sum(1 for leader in board.leaders.values() if leader == broker)
        up = broker in board.alive
        drawn.append(f" broker {broker} ", style="black on green" if up else "white on red")
        drawn.append(f" leads {led} " if up else " dead    ")
    quota = "none" if board.quota is None else f"{board.quota / 1e6:g} MB/s"
    drawn.append(f"quota {quota}", style="bold")
    return drawn


def _result(result: PhaseResult) -> Text:
    return line(f"measured  {result.phase.title}: {result.total / 1e6:.1f} MB/s in total", style="bold")


def event_lines(marks: tuple[Mark, ...], *, lines: int) -> list[Text]:
    """The newest marks, as many as there are lines."""
    newest = marks[-lines:] if lines > 0 else ()
    return [line(f"{mark.clock}  {mark.text}", style=_MARK_STYLES[mark.kind]) for mark in newest]


def line(text: str, *, style: str = "") -> Text:
    """Text that is cut at the terminal's edge rather than folded, so that the frame keeps its height."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")
