"""The experiments on a terminal while they run, and the table of all bounds at the end.

They are shown in a live frame or as plain lines. Only drawing; everything shown comes from the
board. A frame never has more lines or columns than the terminal. All experiments are drawn by one
`View`: what differs is the table's rows and one line below it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import IO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from demo.board import HISTORY_SECONDS, Board, Snapshot
from demo.episode import left_out_words
from demo.outcome import Outcome
from demo.script import BROKERS, BUSINESSES, HEALTHY_LEADERS, NIC, READER, USER, WANTED
from demo.words import Check, Mark, MarkKind
from lab.rates import SAWTOOTH_SECONDS

_BLOCKS = " ▁▂▃▄▅▆▇█"
_REFRESHES_PER_SECOND = 4
_SECONDS_BETWEEN_RATES = 6
# Room for the terminal's own echo of Ctrl-C, pressed twice: beside a frame as wide as the terminal
# it would push the frame down a line.
_ECHO_COLUMNS = 4
# Frame and padding of the panel; all lines but the table's rows, results and events.
_BORDER_COLUMNS = 4
_FIXED_LINES = 9
_MARK_STYLES = {
    MarkKind.QUOTA: "bold green",
    MarkKind.THROTTLE: "bold green",
    MarkKind.KILL: "bold red",
    MarkKind.RETURN: "bold green",
    MarkKind.LEADER: "yellow",
    MarkKind.COMMAND: "bold cyan",
    MarkKind.EVENT: "dim",
    MarkKind.STATE: "bold magenta",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: cells before the sparkline of its rates, and cells after it.

    `highest` is the rate that a full block shows.
    """

    before: tuple[str, ...]
    rates: tuple[float, ...]
    highest: float
    after: tuple[str, ...]
    style: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """How one experiment is shown.

    `before`, `rates` and `after` head the table's columns, `other_columns` is the width of all but
    the sparkline. `status` is the line below the table, `summary` the end of a plain line.
    """

    title: str
    before: tuple[str, ...]
    rates: str
    after: tuple[str, ...]
    other_columns: int
    rows: Callable[[Snapshot], Sequence[Row]]
    status: Callable[[Snapshot], Text]
    summary: Callable[[Snapshot], str]

    def draw(self, board: Snapshot, console: Console, *, now_seconds: float) -> RenderableType:
        """One frame, almost as wide and at most as high as the console."""
        width = console.width - _ECHO_COLUMNS
        rows = self.rows(board)
        parts: list[RenderableType] = [
            _headline(board, now_seconds),
            Text(),
            self._table(rows, width=width - _BORDER_COLUMNS),
            Text(),
            self.status(board),
            Text(),
            *(_line(result, style="bold") for result in board.results),
            *_event_lines(
                board.marks, lines=console.height - _FIXED_LINES - len(rows) - len(board.results)
            ),
        ]
        return Panel(
            Group(*parts), title=f"Tidegate demo: {self.title}", border_style="blue", width=width
        )

    def plain_line(self, board: Snapshot) -> str:
        """What is going on, and the 12-second means."""
        rates = "  ".join(
            f"{row} {recent_mean(rates) / 1e6:5.1f}" for row, rates in sorted(board.rates.items())
        )
        return f"          {board.title} ({board.activity}): {rates}  {self.summary(board)}"

    def _table(self, rows: Sequence[Row], *, width: int) -> Table:
        seconds = max(1, min(HISTORY_SECONDS, width - self.other_columns))
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
        for heading in (*self.before, f"{self.rates}, last {seconds} s"):
            table.add_column(heading, no_wrap=True)
        for heading in self.after:
            table.add_column(
                heading, justify="left" if heading == "state" else "right", no_wrap=True
            )
        for row in rows:
            bar = Text(sparkline(row.rates[-seconds:], row.highest).rjust(seconds))
            table.add_row(*row.before, bar, *row.after, style=row.style)
        return table


def failover_view(contract: int) -> View:
    """Experiment 1: a row for each partition and their total.

    `contract` is the promised rate per partition, in bytes per second.
    """

    def rows(board: Snapshot) -> list[Row]:
        history = {partition: board.rates.get(f"p{partition}", ()) for partition in HEALTHY_LEADERS}
        highest = max((rate for rates in history.values() for rate in rates), default=0.0)
        drawn = []
        for partition, rates in history.items():
            leader = f"broker {board.leaders[partition]}" if partition in board.leaders else "none"
            after = (f"{recent_mean(rates) / 1e6:.1f} MB/s", f"{contract / 1e6:g} MB/s")
            drawn.append(
                Row(
                    (str(partition), leader),
                    rates,
                    highest,
                    after,
                    _style(recent_mean(rates), contract),
                )
            )
        total, promised = sum(map(recent_mean, history.values())), contract * len(HEALTHY_LEADERS)
        after = (f"{total / 1e6:.1f} MB/s", f"{promised / 1e6:g} MB/s")
        return [*drawn, Row(("total", ""), (), 0.0, after, f"bold {_style(total, promised)}")]

    def summary(board: Snapshot) -> str:
        return f"total {sum(map(recent_mean, board.rates.values())) / 1e6:5.1f} MB/s"

    title = "the contract follows the leaders"
    return View(
        title,
        ("partition", "leader"),
        "delivered",
        ("12 s mean", "promised"),
        42,
        rows,
        _brokers,
        summary,
    )


def throttling_view() -> View:
    """Experiments 2 and 3: a row for each tier, and the broker's NIC against its limit."""

    def rows(board: Snapshot) -> list[Row]:
        drawn = []
        for business in BUSINESSES:
            rates, quota = board.rates.get(business.level, ()), board.quotas.get(business.level)
            mean = f"{recent_mean(rates) / 1e6:.1f} MB/s"
            after = (
                mean,
                "none" if quota is None else f"{quota / 1e6:.1f}",
                f"{business.demand / 1e6:g}",
                board.states.get(business.level, ""),
            )
            drawn.append(Row((business.level,), rates, float(business.demand), after))
        return drawn

    def status(board: Snapshot) -> Text:
        over = (
            board.nic_rate is not None and board.limit is not None and board.nic_rate > board.limit
        )
        text = f"broker's {_nic_against_limit(board)}; all together want {WANTED / 1e6:g} MB/s"
        return _line(text, style="bold red" if over else "bold green")

    after = ("12 s mean", "quota", "wants", "state")
    return View(
        "the broker's limit", ("tier",), "arrives", after, 58, rows, status, _nic_against_limit
    )


def move_view() -> View:
    """Experiment 5: a row for L0 and one for what is moved, and the broker's NIC."""

    def rows(board: Snapshot) -> list[Row]:
        read, moved = board.rates.get(READER.level, ()), board.rates.get("move", ())
        rate = board.quotas.get("move")
        reads = (f"{recent_mean(read) / 1e6:.1f} MB/s", f"wants {READER.demand / 1e6:g}", "")
        moves = (
            f"{recent_mean(moved) / 1e6:.1f} MB/s",
            "no throttle" if rate is None else f"may {rate / 1e6:.1f}",
            board.states.get("move", ""),
        )
        return [
            Row((READER.level,), read, float(NIC), reads),
            Row(("move",), moved, float(NIC), moves),
        ]

    def status(board: Snapshot) -> Text:
        over = (
            board.nic_rate is not None and board.limit is not None and board.nic_rate > board.limit
        )
        text = f"broker's {_nic_against_limit(board)}; it can send {NIC / 1e6:g} MB/s"
        return _line(text, style="bold red" if over else "bold green")

    after = ("12 s mean", "rate", "state")
    return View(
        "partitions are moved", ("",), "per second", after, 62, rows, status, _nic_against_limit
    )


def watched_board(console: Console, view: View) -> tuple[Board, Live | None]:
    """A board, and the live view that draws it while it is open.

    Without a terminal the board prints plain lines instead.
    """
    if console.is_terminal:
        board = Board()
        return board, live_view(console, view, board)
    lines = PlainLines(console.file, view)
    return Board(on_mark=lines.on_mark, on_rates=lines.on_rates), None


def live_view(console: Console, view: View, board: Board) -> Live:
    """A context manager that redraws the board while it is open."""
    return Live(
        console=console,
        get_renderable=lambda: view.draw(board.snapshot(), console, now_seconds=time.time()),
        refresh_per_second=_REFRESHES_PER_SECOND,
        transient=True,
    )


class PlainLines:
    """Prints to `stream`, for pipes and logs: every mark at once, the rates every six seconds."""

    def __init__(self, stream: IO[str], view: View) -> None:
        self._stream = stream
        self._view = view
        self._seconds = 0

    def on_mark(self, mark: Mark) -> None:
        """One line for one thing that happened."""
        print(f"{mark.clock}  {mark.kind.value}: {mark.text}", file=self._stream, flush=True)

    def on_rates(self, board: Snapshot) -> None:
        """One line every six seconds."""
        self._seconds += 1
        if self._seconds % _SECONDS_BETWEEN_RATES == 0:
            print(self._view.plain_line(board), file=self._stream, flush=True)


def sparkline(rates: Sequence[float], highest: float) -> str:
    """One block character a rate, scaled so that `highest` is a full block."""
    top = len(_BLOCKS) - 1
    return (
        "".join(_BLOCKS[min(top, round(rate / highest * top))] for rate in rates)
        if highest > 0
        else " " * len(rates)
    )


def recent_mean(rates: tuple[float, ...]) -> float:
    """The mean of the last sawtooth, or of what there is; 0 before the first second."""
    recent = rates[-SAWTOOTH_SECONDS:]
    return sum(recent) / len(recent) if recent else 0.0


def _headline(board: Snapshot, now_seconds: float) -> Text:
    drawn = _line(board.title, style="bold")
    drawn.append(f"\n{board.activity}", style="default")
    if board.activity_ends_at_seconds is not None:
        drawn.append(
            f", at most {max(0.0, board.activity_ends_at_seconds - now_seconds):.0f} s left",
            style="dim",
        )
    return drawn


def _style(rate: float, promised: float) -> str:
    """Red below what is promised, as far as a sawtooth lets one see that."""
    return "green" if rate >= 0.9 * promised else "red"


def _brokers(board: Snapshot) -> Text:
    drawn = _line("")
    for broker in BROKERS:
        led = sum(1 for leader in board.leaders.values() if leader == broker)
        up = broker in board.alive
        drawn.append(f" broker {broker} ", style="black on green" if up else "white on red")
        drawn.append(f" leads {led} " if up else " dead    ")
    in_force = board.quotas.get(USER)
    drawn.append(
        f"quota {'none' if in_force is None else f'{in_force / 1e6:g} MB/s'}", style="bold"
    )
    return drawn


def _nic_against_limit(board: Snapshot) -> str:
    """What the NIC sends, as a 12-second mean, of what it may."""
    sent = "unknown" if board.nic_rate is None else f"{board.nic_rate / 1e6:.1f}"
    return f"NIC {sent} of {'unknown' if board.limit is None else f'{board.limit / 1e6:g}'} MB/s"


def _event_lines(marks: tuple[Mark, ...], *, lines: int) -> list[Text]:
    """The newest marks, as many as there are lines."""
    newest = marks[-lines:] if lines > 0 else ()
    return [_line(f"{mark.clock}  {mark.text}", style=_MARK_STYLES[mark.kind]) for mark in newest]


def _line(text: str, *, style: str = "") -> Text:
    """Text cut at the terminal's edge rather than folded: the frame keeps its height."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def print_results(console: Console, outcome: Outcome) -> None:
    """Print the table, how fast the failure was answered, and the verdict in one line.

    Where a bound was missed, also what the machine did.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("bound", "expected", "measured", "tolerance", "verdict"):
        table.add_column(
            heading,
            justify="left" if heading in ("bound", "verdict") else "right",
            no_wrap=heading != "bound",
        )
    for about, checks in groupby(outcome.checks(), key=lambda check: check.about):
        table.add_row(Text(about, style="bold"))
        for check in checks:
            table.add_row(*_cells(check))
    console.print(table)
    console.print(f"\n{_reaction(outcome)}", highlight=False)
    console.print(_verdict(outcome))
    if outcome.throttling is not None and outcome.throttling.left_out is not None:
        console.print(f"{left_out_words(outcome.throttling.left_out)}.", highlight=False)
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
        return "The new leader or the corrected quota was not seen in Kafka."
    return (
        f"Kill to new leader: {election:.1f} s (Kafka's own waiting). New leader to corrected "
        f"quota committed: {after:.2f} s."
    )


def _verdict(outcome: Outcome) -> Text:
    missed, bounds = sum(not check.kept for check in outcome.checks()), len(outcome.checks())
    if missed:
        return Text(f"{missed} of {bounds} bounds missed.", style="bold red")
    return Text(f"All {bounds} bounds kept.", style="bold green")
