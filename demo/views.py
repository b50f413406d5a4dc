"""The experiment on a terminal while it runs: rates per partition, brokers, the quota in force, what just happened.

Only drawing; everything shown comes from the board. A frame never has more lines or columns than the terminal.
"""

import time
from collections.abc import Callable
from itertools import groupby
from typing import IO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from demo.board import HISTORY_SECONDS, Snapshot, ThrottlingSnapshot
from demo.episode import left_out_words
from demo.outcome import Outcome, PhaseResult
from demo.script import BROKERS, BUSINESSES, HEALTHY_LEADERS, WANTED
from demo.words import Check, Mark, MarkKind
from lab.rates import SAWTOOTH_SECONDS

# The end of the demo on the terminal: expected, measured, tolerance and verdict of every bound, as
# a rich table or as plain text.


def print_results(console: Console, outcome: Outcome) -> None:
    """Print the table, how fast the failure was answered, the verdict in one line, and what the machine did where a bound was missed."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("bound", "expected", "measured", "tolerance", "verdict"):
        table.add_column(heading, justify="left" if heading in ("bound", "verdict") else "right", no_wrap=heading != "bound")
    for about, checks in groupby(outcome.checks(), key=lambda check: check.about):
        table.add_row(Text(about, style="bold"))
        for check in checks:
            table.add_row(*_cells(check))
    console.print(table)
    console.print(f"\n{_reaction(outcome)}", highlight=False)
    console.print(_verdict(outcome))
    if outcome.tide is not None and outcome.tide.left_out is not None:
        console.print(f"{left_out_words(outcome.tide.left_out)}.", highlight=False)
    for part, processor in outcome.processors_of_missed().items():
        console.print(f"While this was measured: {processor} ({part}).", highlight=False)


def _cells(check: Check) -> tuple[str, str, str, str, Text]:
    expected = "" if check.unit == "s" else f"{check.expected:g} {check.unit}"
    measured = "not seen" if check.measured is None else f"{check.measured:.2f} {check.unit}"
    verdict = Text("kept", style="green") if check.kept else Text("MISSED", style="bold red")
    return f"  {check.name}", expected, measured, check.tolerance, verdict


def _reaction(outcome: Outcome) -> str:
    election, after = outcome.reaction.seconds_to_election, outcome.reaction.seconds_after_election
    if election is None or after is None:
        return "The new leader or the corrected quota was not seen in ZooKeeper."
    return f"Kill to new leader: {election:.1f} s (Kafka's own waiting). New leader to corrected quota committed: {after:.2f} s."


def _verdict(outcome: Outcome) -> Text:
    missed, bounds = sum(not check.kept for check in outcome.checks()), len(outcome.checks())
    if missed:
        return Text(f"{missed} of {bounds} bounds missed.", style="bold red")
    return Text(f"All {bounds} bounds kept.", style="bold green")


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


# The experiment as plain lines, for pipes and logs: every mark at once, the rates every few
# seconds.


_SECONDS_BETWEEN_RATES = 6


class PlainView:
    """Prints to `stream`; the board calls it."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._seconds = 0

    def on_mark(self, mark: Mark) -> None:
        """One line for one thing that happened."""
        print(f"{mark.clock}  {mark.kind.value}: {mark.text}", file=self._stream, flush=True)

    def on_rates(self, board: Snapshot) -> None:
        """One line every six seconds: what is going on, and the 12-second means."""
        self._seconds += 1
        if self._seconds % _SECONDS_BETWEEN_RATES:
            return
        means = {partition: recent_mean(rates) / 1e6 for partition, rates in sorted((board.history or {}).items())}
        rates = "  ".join(f"p{partition} {mean:5.1f}" for partition, mean in means.items())
        title = board.phase.title if board.phase else "Set-up"
        line = f"          {title} ({board.activity}): {rates}  total {sum(means.values()):5.1f} MB/s"
        print(line, file=self._stream, flush=True)


# Experiments 2 and 3 as plain lines, for pipes and logs: every mark at once, the rates every few
# seconds.


class ThrottlingPlainView:
    """Prints to `stream`; the board calls it."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._seconds = 0

    def on_rates(self, board: ThrottlingSnapshot) -> None:
        """One line every six seconds: what is going on, the 12-second means, and the card against its limit."""
        self._seconds += 1
        if self._seconds % _SECONDS_BETWEEN_RATES:
            return
        rates = "  ".join(f"{level} {recent_mean(one) / 1e6:5.1f}" for level, one in sorted(board.arriving.items()))
        print(f"          {board.title} ({board.activity}): {rates}  {card_words(board)}", file=self._stream, flush=True)


def card_words(board: ThrottlingSnapshot) -> str:
    """What the card sends, as a 12-second mean, of what it may."""
    sent = "unknown" if board.card_rate is None else f"{board.card_rate / 1e6:.1f}"
    return f"card {sent} of {'unknown' if board.limit is None else f'{board.limit / 1e6:g}'} MB/s"


# Experiments 2 and 3 on a terminal while they run: rates per tier, quotas, tier states, the card
# against its limit, what just happened.
#
# Only drawing; everything shown comes from the board. A frame never has more lines or columns than
# the terminal.


# All columns of the table but the sparkline; all lines but events.
_THROTTLING_COLUMNS = 58
_THROTTLING_LINES = 12


def throttling_live_view(console: Console, read: Callable[[], ThrottlingSnapshot]) -> Live:
    """A context manager that redraws the board while it is open."""
    return Live(
        console=console,
        get_renderable=lambda: draw_tide(read(), console, now_seconds=time.time()),
        refresh_per_second=REFRESHES_PER_SECOND,
        transient=True,
    )


def draw_tide(board: ThrottlingSnapshot, console: Console, *, now_seconds: float) -> RenderableType:
    """One frame, almost as wide and at most as high as the console."""
    width = console.width - ECHO_COLUMNS
    parts: list[RenderableType] = [
        _throttling_headline(board, now_seconds),
        Text(),
        _tiers(board, width=width - BORDER_COLUMNS),
        Text(),
        _card(board),
        Text(),
        *event_lines(board.marks, lines=console.height - _THROTTLING_LINES - len(BUSINESSES)),
    ]
    return Panel(Group(*parts), title="Tidegate demo: the broker's limit", border_style="blue", width=width)


def _throttling_headline(board: ThrottlingSnapshot, now_seconds: float) -> Text:
    text = line(board.title or "Set-up", style="bold")
    text.append(f"\n{board.activity}", style="default")
    if board.activity_ends_at_seconds is not None:
        text.append(f", at most {max(0.0, board.activity_ends_at_seconds - now_seconds):.0f} s left", style="dim")
    return text


def _tiers(board: ThrottlingSnapshot, *, width: int) -> Table:
    seconds = max(1, min(48, width - _THROTTLING_COLUMNS))
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


def _card(board: ThrottlingSnapshot) -> Text:
    over = board.card_rate is not None and board.limit is not None and board.card_rate > board.limit
    return line(f"broker's {card_words(board)}; all together want {WANTED / 1e6:g} MB/s", style="bold red" if over else "bold green")
