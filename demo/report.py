"""The run as one HTML file that needs no network: what was played, pictures, every bound, what each method costs, the machine.

It computes nothing but differences of measured totals; all figures come from the outcome.
"""

from collections.abc import Iterator
from html import escape
from itertools import groupby
from pathlib import Path
from string import Template

from demo.cost_plot import cost_plot
from demo.marks import Mark
from demo.outcome import Outcome, PhaseResult
from demo.palette import dark_variables, light_variables
from demo.script import BROKERS, HEALTHY_LEADERS, USER
from demo.tide.section import section_html
from demo.time_plots import partition_plot, total_plot
from demo.usage.section import section_html as usage_html
from demo.verdict import RATE_ABOVE_PERCENT, RATE_BELOW_PERCENT, Check

_TEMPLATE = Path(__file__).parent / "report.html.template"


def report_html(outcome: Outcome) -> str:
    """The whole page."""
    contract = outcome.scale.contract_bytes_per_second / 1e6
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        light=light_variables(),
        dark=dark_variables(),
        verdict=_verdict(outcome),
        contract=f"{contract:g}",
        promised=f"{contract * len(HEALTHY_LEADERS):g}",
        offered=f"{outcome.scale.offered_bytes_per_second / 1e6:g}",
        scale_reason=escape(outcome.scale.reason),
        user=USER,
        below=RATE_BELOW_PERCENT,
        above=RATE_ABOVE_PERCENT,
        settle=outcome.windows.settle_seconds,
        measure=outcome.windows.measure_seconds,
        answer=_answer(outcome),
        total_plot=total_plot(outcome),
        partition_plot=partition_plot(outcome),
        cost_plot=cost_plot(outcome),
        phase_rows="\n".join(_phase_row(result) for result in outcome.results),
        check_rows="\n".join(_check_rows(outcome)),
        mark_rows="\n".join(_mark_row(mark) for mark in outcome.marks),
        reaction=_reaction(outcome),
        tide=section_html(outcome.tide) if outcome.tide else "",
        usage=usage_html(outcome.usage) if outcome.usage else "",
        surroundings="\n".join(_pair(label, text) for label, text in outcome.surroundings.items()),
        setup="\n".join(_pair(label, f"{seconds:.1f} s") for label, seconds in outcome.setup_seconds.items()),
    )


def _verdict(outcome: Outcome) -> str:
    kept = [check.kept for check in outcome.checks()]
    if all(kept):
        return f'<p class="verdict kept">All {len(kept)} bounds kept</p>'
    return f'<p class="verdict missed">{kept.count(False)} of {len(kept)} bounds missed: <a href="#bounds">which ones</a></p>'


def _answer(outcome: Outcome) -> str:
    """One sentence a phase after the kill: what was promised, what came."""
    promised = outcome.scale.contract_bytes_per_second * len(HEALTHY_LEADERS)
    lines = [
        f"<li><b>{escape(result.phase.regime.value)}</b>: {result.total / 1e6:.1f} of {promised / 1e6:g} MB/s "
        f"({result.total / promised:.0%} of the promise)</li>"
        for result in outcome.results
        if result.phase.after_kill
    ]
    return "\n".join(lines)


def _phase_row(result: PhaseResult) -> str:
    cells = [
        f"{escape(result.phase.title)}<small>{escape(str(result.processor))}</small>",
        "none" if result.quota is None else f"{result.quota / 1e6:g}",
    ]
    cells += [
        f"{rate / 1e6:.1f}<small>broker {result.leaders[partition]}</small>" for partition, rate in sorted(result.by_partition.items())
    ]
    cells += [f"{result.by_broker[broker] / 1e6:.1f}" if broker in result.by_broker else "dead" for broker in BROKERS]
    counted = "unknown" if result.counted_by_brokers is None else f"{result.counted_by_brokers / 1e6:.1f}"
    cells += [f"<b>{result.total / 1e6:.1f}</b>", counted]
    return f'<tr class="{result.phase.regime.name.lower()}">' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _check_rows(outcome: Outcome) -> Iterator[str]:
    """A heading for each part of the run, and its bounds below it."""
    for about, checks in groupby(outcome.checks(), key=lambda check: check.about):
        yield f'<tr><th class="about" colspan="5">{escape(about)}</th></tr>'
        yield from map(_check_row, checks)


def _check_row(check: Check) -> str:
    measured = "not seen" if check.measured is None else f"{check.measured:.2f} {check.unit}"
    verdict = '<td class="kept">kept</td>' if check.kept else '<td class="missed">missed</td>'
    expected = f"{check.expected:g} {check.unit}" if check.unit != "s" else "-"
    return f"<tr><td>{escape(check.name)}</td><td>{expected}</td><td>{measured}</td><td>{escape(check.tolerance)}</td>{verdict}</tr>"


def _mark_row(mark: Mark) -> str:
    return f"<tr><td>{mark.clock}</td><td>{escape(mark.kind.value)}</td><td>{escape(mark.text)}</td></tr>"


def _reaction(outcome: Outcome) -> str:
    election, after = outcome.reaction.seconds_to_election, outcome.reaction.seconds_after_election
    if election is None or after is None:
        return "The new leader or the corrected quota was not seen in ZooKeeper, so no time can be given."
    return (
        f"From the kill to the new leader: <b>{election:.1f} s</b>, which is Kafka's own waiting (its session with ZooKeeper must expire "
        f"first). From the new leader to the corrected quota, committed in ZooKeeper: <b>{after:.2f} s</b>. Both times are ZooKeeper's own."
    )


def _pair(label: str, text: str) -> str:
    return f"<tr><td>{escape(label)}</td><td>{escape(text)}</td></tr>"
