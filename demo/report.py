"""The demo's report: one HTML file with what was played, plots, bounds, and the machine.

It needs no network. It computes nothing but sums and differences of measured figures. The templates
have its text.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import groupby

from jinja2 import Environment
from markupsafe import Markup

from demo import episode_plots, plots, script, shift_outcome
from demo.episode import Playing, ThrottlingOutcome, left_out_words, throttling_checks
from demo.move_outcome import Foretold, Move, MoveOutcome, moved_words
from demo.outcome import Outcome
from demo.summary import EarlierRun
from demo.usage_outcome import REPORT, TABLES, StoredUsage, UsageOutcome
from demo.words import RATE_ABOVE_PERCENT, RATE_BELOW_PERCENT, Check, clock
from lab.rates import SAWTOOTH_SECONDS
from tidegate.report.page import template_text, templates

_LINES_SHOWN = 20


def report_html(outcome: Outcome, earlier: Sequence[EarlierRun] = ()) -> str:
    """The whole page, with the figures of `earlier` runs on other Kafkas beside the bounds."""
    checks = outcome.checks()
    contract = outcome.scale.contract_bytes_per_second
    return _render(
        "report.html",
        outcome=outcome,
        earlier=earlier,
        style=template_text("page.css"),
        user=script.USER,
        contract=contract,
        promised=contract * len(script.HEALTHY_LEADERS),
        brokers=script.BROKERS,
        below=RATE_BELOW_PERCENT,
        above=RATE_ABOVE_PERCENT,
        checks=[
            (about, list(rows)) for about, rows in groupby(checks, key=lambda check: check.about)
        ],
        count=len(checks),
        missed=sum(not check.kept for check in checks),
        throttling=Markup(throttling_html(outcome.throttling)) if outcome.throttling else "",  # noqa: S704  rendered by a template
        usage=Markup(usage_html(outcome.usage)) if outcome.usage else "",  # noqa: S704  rendered by a template
        move=Markup(move_html(outcome.move)) if outcome.move else "",  # noqa: S704  rendered by a template
        shift=Markup(shift_html(outcome)),  # noqa: S704  rendered by a template
    )


def _render(name: str, **context: object) -> str:
    modules = {
        "plots": plots,
        "episode_plots": episode_plots,
        "script": script,
        "queue": shift_outcome,
    }
    return _environment().get_template(name).render(modules, **context)


@cache
def _environment() -> Environment:
    environment = templates("demo")
    environment.filters |= {"megabytes": _megabytes, "time": clock}
    return environment


def _megabytes(rate: float) -> str:
    return f"{rate / 1e6:g}"


def throttling_html(throttling: ThrottlingOutcome) -> str:
    """The part on experiments 2 and 3."""
    most_muted = max(script.LOWERED, key=script.cliff_mute_seconds)
    return _render(
        "throttling.html",
        outcome=throttling,
        mute=script.cliff_mute_seconds(most_muted),
        compared=list(_compared(throttling)),
        steps=list(_steps(throttling)),
        left_out="" if throttling.left_out is None else left_out_words(throttling.left_out),
    )


def _compared(throttling: ThrottlingOutcome) -> Iterator[tuple[str, str, str, str]]:
    """Every line of the table: its name, Tidegate, the published way, the bound.

    The lines are the bounds, to which the published way is not held, and two figures without one.
    """
    tidegate, cliff = throttling.tidegate, throttling.cliff
    published = [None] * len(throttling.checks()) if cliff is None else throttling_checks(cliff)
    for ours, theirs in zip(throttling.checks(), published, strict=True):
        yield ours.name, _figure(ours), _figure(theirs), ours.tolerance
    for name, figure in (("quotas written until the raise", _writes), (_AT_REST, _nic_at_rest)):
        yield name, figure(tidegate), "not played" if cliff is None else figure(cliff), ""


_AT_REST = "the NIC at rest: mean, and highest single second"


def _figure(check: Check | None) -> str:
    if check is None:
        return "not played"
    return "not seen" if check.measured is None else f"{check.measured:.4g} {check.unit}".rstrip()


def _writes(episode: Playing) -> str:
    return str(sum(len(episode.written(each.level)) for each in script.BUSINESSES))


def _nic_at_rest(episode: Playing) -> str:
    mean = episode.nic.mean(episode.measured_from_seconds, episode.measured_seconds)
    highest = max(
        episode.nic.per_second(episode.measured_from_seconds, episode.measured_seconds), default=0.0
    )
    return f"{mean / 1e6:.1f} / {highest / 1e6:.0f} MB/s"


def _steps(throttling: ThrottlingOutcome) -> Iterator[tuple[float, str, str]]:
    """When, by whom, what: Tidegate's writes and tier states, then the administrator's writes."""
    for actor, episode in (
        ("Tidegate", throttling.tidegate),
        ("the published way", throttling.cliff),
    ):
        if episode is not None:
            writes = [
                (
                    step.at_seconds,
                    f"{episode.level_of(step.user)}: {_quota(step.before)} -> {_quota(step.after)}",
                )
                for step in episode.writes
            ]
            states = [
                (
                    step.at_seconds,
                    f"{step.level} is {step.state}{f' ({step.because})' if step.because else ''}",
                )
                for step in episode.tiers
            ]
            yield from ((at, actor, what) for at, what in sorted([*writes, *states]))


def _quota(quota: int | None) -> str:
    return "no quota" if quota is None else f"{quota / 1e6:.2f} MB/s"


def usage_html(usage: UsageOutcome) -> str:
    """The part on usage; if a command failed, its output."""
    if usage.stored is None or usage.witnesses is None:
        return _render("usage_failed.html", failed=usage.failed, lines=_LINES_SHOWN)
    return _render(
        "usage.html",
        usage=usage,
        page=f"{REPORT}/report.html",
        tables=f"out/demo/{TABLES}",
        delayed=[(one.level, usage.witnesses.held_back[one.level]) for one in script.LOWERED],
        fetched=_total_bytes(usage.stored, "fetch"),
        produced=_total_bytes(usage.stored, "produce"),
    )


def _total_bytes(stored: StoredUsage, direction: str) -> int:
    return sum(moved for (_, one), moved in stored.by_broker.items() if one == direction)


def move_html(outcome: MoveOutcome) -> str:
    """The part on experiment 5."""
    return _render(
        "move.html",
        outcome=outcome,
        moved=moved_words(),
        compared=list(_moves_compared(outcome)),
        foretold=[_foretold_row(outcome, one) for one in outcome.foretold],
    )


def _moves_compared(outcome: MoveOutcome) -> Iterator[tuple[str, str, str]]:
    """Every line of the table: its name, Kafka alone, Tidegate."""

    def compare(name: str, figure: Callable[[Move], str]) -> tuple[str, str, str]:
        return name, figure(outcome.unthrottled), figure(outcome.followed)

    yield compare(
        "L0 during the move, of what it wants", lambda one: f"{outcome.read_percent(one):.1f} %"
    )
    yield compare(
        "the farthest that L0 came behind, in seconds of what it wants",
        lambda one: f"{outcome.longest_lag_seconds(one):.1f} s",
    )
    yield compare(
        f"the NIC's highest mean of {SAWTOOTH_SECONDS} s",
        lambda one: f"{outcome.highest_mean(one, SAWTOOTH_SECONDS) / 1e6:.1f} MB/s",
    )
    yield compare("moved", lambda one: f"{one.moved_bytes / 1e6:.0f} MB")
    yield compare("spare of the limit before", lambda one: f"{outcome.spare(one) / 1e6:.1f} MB/s")
    yield compare(
        "request to the end",
        lambda one: "not ended" if one.seconds is None else f"{one.seconds:.1f} s",
    )


def _foretold_row(outcome: MoveOutcome, one: Foretold) -> tuple[str, str, str, str]:
    """When, how many bytes were left, how many seconds, how far off."""
    off = outcome.estimate_off_percent(one)
    return (
        f"{one.at_seconds - outcome.followed.requested_seconds:.0f} s",
        f"{one.bytes_left / 1e6:.0f} MB",
        f"{one.seconds:.0f} s",
        "not known" if off is None else f"{off:.0f} %",
    )


def shift_html(outcome: Outcome) -> str:
    """The part on experiment 6, which is played beside 2 and 3; empty where it was not."""
    if outcome.shift is None or outcome.throttling is None:
        return ""
    return _render(
        "shift.html",
        outcome=outcome.shift,
        episode=outcome.throttling.tidegate,
    )
