"""The table of all bounds that the demo prints at its end, and its verdict."""

from itertools import groupby

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from demo.episode import left_out_words
from demo.outcome import Outcome
from demo.words import Check


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
