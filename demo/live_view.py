"""The experiment on a terminal while it runs: rates per partition, brokers, the quota in force, what just happened.

Only drawing; everything shown comes from the board.
"""

import time
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from demo.board import HISTORY_SECONDS, Snapshot
from demo.outcome import Mark, MarkKind, PhaseResult
from demo.rates import SAWTOOTH_SECONDS
from demo.script import BROKERS, HEALTHY_LEADERS

_BLOCKS = " ▁▂▃▄▅▆▇█"
_REFRESHES_PER_SECOND = 4
_MARK_STYLES = {
    MarkKind.QUOTA: "bold green",
    MarkKind.KILL: "bold red",
    MarkKind.LEADER: "yellow",
    MarkKind.COMMAND: "bold cyan",
    MarkKind.EVENT: "dim",
}


def live_view(console: Console, read: Callable[[], Snapshot], *, contract: int) -> Live:
    """A context manager that redraws the board while it is open. `contract` is the promised rate per partition in bytes/s."""
    return Live(
        console=console,
        get_renderable=lambda: draw(read(), contract=contract, now_seconds=time.time()),
        refresh_per_second=_REFRESHES_PER_SECOND,
        transient=True,
    )


def draw(board: Snapshot, *, contract: int, now_seconds: float) -> RenderableType:
    """One frame."""
    parts: list[RenderableType] = [_headline(board, now_seconds), _partitions(board, contract), _brokers(board)]
    if board.results:
        parts.append(_results(board.results))
    parts.append(_events(board.marks))
    return Panel(Group(*parts), title="Tidegate demo: the contract follows the leaders", border_style="blue")


def sparkline(rates: tuple[float, ...], highest: float) -> str:
    """One block character a rate, scaled so that `highest` is a full block."""
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[min(top, round(rate / highest * top))] for rate in rates) if highest > 0 else " " * len(rates)


def recent_mean(rates: tuple[float, ...]) -> float:
    """The mean of the last sawtooth, or of what there is; 0 before the first second."""
    recent = rates[-SAWTOOTH_SECONDS:]
    return sum(recent) / len(recent) if recent else 0.0


def _headline(board: Snapshot, now_seconds: float) -> Text:
    line = Text(board.phase.title if board.phase else "Set-up", style="bold")
    line.append(f"  ·  {board.activity}", style="default")
    if board.activity_ends_at_seconds is not None:
        line.append(f", {max(0.0, board.activity_ends_at_seconds - now_seconds):.0f} s left", style="dim")
    return line


def _partitions(board: Snapshot, contract: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("partition")
    table.add_column("leader")
    table.add_column(f"delivered, last {HISTORY_SECONDS} s", no_wrap=True)
    table.add_column("12 s mean", justify="right")
    table.add_column("promised", justify="right")
    history = board.history or {}
    highest = max((rate for rates in history.values() for rate in rates), default=0.0)
    for partition, rates in sorted(history.items()):
        mean = recent_mean(rates)
        style = "green" if mean >= 0.9 * contract else "red"
        leader = f"broker {board.leaders[partition]}" if partition in board.leaders else "none"
        bar = Text(sparkline(rates, highest), style=style)
        table.add_row(f"{partition}", leader, bar, Text(f"{mean / 1e6:.1f} MB/s", style=style), f"{contract / 1e6:g}")
    total, promised = sum(map(recent_mean, history.values())), contract * len(HEALTHY_LEADERS)
    style = "bold green" if total >= 0.9 * promised else "bold red"
    table.add_row("total", "", "", Text(f"{total / 1e6:.1f} MB/s", style=style), f"{promised / 1e6:g}")
    return table


def _brokers(board: Snapshot) -> Text:
    line = Text()
    for broker in BROKERS:
        led = sum(1 for leader in board.leaders.values() if leader == broker)
        up = broker in board.alive
        line.append(f" broker {broker} ", style="black on green" if up else "white on red")
        line.append(f" leads {led}   " if up else " dead   ")
    quota = "none" if board.quota is None else f"{board.quota / 1e6:g} MB/s on every broker"
    line.append(f"quota in force: {quota}", style="bold")
    return line


def _results(results: tuple[PhaseResult, ...]) -> Text:
    return Text("\n").join(Text(f"{result.phase.title}: {result.total / 1e6:.1f} MB/s in total", style="dim") for result in results)


def _events(marks: tuple[Mark, ...]) -> Text:
    lines = [Text(f"{clock(mark.at_seconds)}  {mark.text}", style=_MARK_STYLES[mark.kind], no_wrap=True) for mark in marks]
    return Text("\n").join([Text(""), *lines])


def clock(at_seconds: float) -> str:
    """The local time of day."""
    return time.strftime("%H:%M:%S", time.localtime(at_seconds))
