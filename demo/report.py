"""The demo's report: one HTML file with what was played, plots, bounds, and the machine.

It needs no network. It computes nothing but sums and differences of measured figures. The templates
have its text.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import groupby

from jinja2 import Environment
from markupsafe import Markup

from demo import plots
from demo.episode import (
    FIRST_WRITE_SECONDS,
    FULL_SECONDS,
    REST_ABOVE_PERCENT,
    REST_BELOW_PERCENT,
    SILENCE_SECONDS,
    WITHIN_SECONDS,
    Playing,
    ThrottlingOutcome,
    left_out_words,
)
from demo.move_outcome import (
    CLEAN_UP_SECONDS,
    ESTIMATE_OFF_PERCENT,
    FIRST_THROTTLE_SECONDS,
    LOST_PERCENT,
    RATE_STANDS_SECONDS,
    SLOWER_THAN_SPARE,
    Foretold,
    Move,
    MoveOutcome,
    moved_words,
)
from demo.outcome import Outcome
from demo.script import (
    BROKER,
    BROKERS,
    BUSINESSES,
    CLIFF_SECONDS_BETWEEN_LEVELS,
    CONTRACT,
    HEALTHY_LEADERS,
    HIGH_LIMIT,
    LIMIT,
    LOWERED,
    NIC,
    NIC_LIMIT,
    READER,
    USER,
    WANTED,
    cliff_mute_seconds,
)
from demo.summary import EarlierRun
from demo.usage_outcome import REPORT, TABLES, StoredUsage, UsageOutcome, UserUsage
from demo.words import RATE_ABOVE_PERCENT, RATE_BELOW_PERCENT, clock
from lab.episodes import FULL_SHARE, LIMIT_SLACK, NIC_MEAN_SECONDS, Business
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
        user=USER,
        contract=contract,
        promised=contract * len(HEALTHY_LEADERS),
        brokers=BROKERS,
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
    )


def _render(name: str, **context: object) -> str:
    return _environment().get_template(name).render(plots=plots, **context)


@cache
def _environment() -> Environment:
    environment = templates("demo")
    environment.filters |= {"megabytes": _megabytes, "time": clock}
    return environment


def _megabytes(rate: float) -> str:
    return f"{rate / 1e6:g}"


# Experiments 2 and 3


def throttling_html(throttling: ThrottlingOutcome) -> str:
    """The part on experiments 2 and 3."""
    most_muted = max(LOWERED, key=cliff_mute_seconds)
    return _render(
        "throttling.html",
        outcome=throttling,
        broker=BROKER,
        businesses=BUSINESSES,
        contract=CONTRACT,
        wanted=WANTED,
        limit=LIMIT,
        high=HIGH_LIMIT,
        between=CLIFF_SECONDS_BETWEEN_LEVELS,
        mute=cliff_mute_seconds(most_muted),
        compared=list(_compared(throttling)),
        steps=list(_steps(throttling)),
        left_out="" if throttling.left_out is None else left_out_words(throttling.left_out),
    )


def _compared(throttling: ThrottlingOutcome) -> Iterator[tuple[str, str, str, str]]:
    """Every line of the table: its name, Tidegate, the published way, the bound."""

    def compare(
        name: str, figure: Callable[[Playing], str], bound: str = ""
    ) -> tuple[str, str, str, str]:
        return (
            name,
            figure(throttling.tidegate),
            "not played" if throttling.cliff is None else figure(throttling.cliff),
            bound,
        )

    yield compare(
        "limit lowered to first quota written",
        lambda one: _seconds(one.seconds_to_first_write()),
        _most(FIRST_WRITE_SECONDS),
    )
    yield compare(
        "quotas written until the raise",
        lambda one: str(sum(len(one.written(each.level)) for each in BUSINESSES)),
    )
    within = f"first write until the NIC's {NIC_MEAN_SECONDS} s mean is within the limit + 5 %"
    yield compare(within, lambda one: _seconds(one.seconds_until_within()), _most(WITHIN_SECONDS))
    for business in reversed(BUSINESSES):
        yield compare(
            f"longest silence of {business.level}", _silence_of(business), _most(SILENCE_SECONDS)
        )
    for business in LOWERED:
        name = f"{business.level} at rest (may drop to {_megabytes(business.throttled or 0)} MB/s)"
        yield compare(
            name, _rest_of(business), f"its quota -{REST_BELOW_PERCENT} % / +{REST_ABOVE_PERCENT} %"
        )
    yield compare("the NIC at rest: mean, and highest single second", _nic_at_rest)
    lowest = f"at least {FULL_SHARE * 100:.0f} %"
    yield compare(
        "L0 in its worst 36 s, of its demand",
        lambda one: f"{100 * one.lowest_share('L0'):.1f} %",
        lowest,
    )
    yield compare(
        "limit raised to full load of all",
        lambda one: _seconds(one.seconds_until_all_full()),
        _most(FULL_SECONDS),
    )


def _silence_of(business: Business) -> Callable[[Playing], str]:
    def silence(episode: Playing) -> str:
        seconds = episode.longest_silence(business.level)
        return (
            f"more than {seconds} s" if episode.is_silent_at_end(business.level) else f"{seconds} s"
        )

    return silence


def _rest_of(business: Business) -> Callable[[Playing], str]:
    def rest(episode: Playing) -> str:
        rate = episode.rate_at_rest(business.level)
        return f"{rate / 1e6:.2f} MB/s, quota {_quota(episode.quota_at_rest(business.level))}"

    return rest


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


def _seconds(seconds: float | None) -> str:
    return "not reached while it was measured" if seconds is None else f"{seconds:.1f} s"


def _most(seconds: float) -> str:
    return f"at most {seconds:g} s"


# Usage


def usage_html(usage: UsageOutcome) -> str:
    """The part on usage; if a command failed, its output."""
    if usage.stored is None or usage.witnesses is None:
        return _render("usage_failed.html", failed=usage.failed, lines=_LINES_SHOWN)
    return _render(
        "usage.html",
        usage=usage,
        page=f"{REPORT}/report.html",
        tables=f"out/demo/{TABLES}",
        rows=list(_usage_rows(usage.stored)),
        delayed=[(one.level, usage.witnesses.held_back[one.level]) for one in LOWERED],
        fetched=_total_bytes(usage.stored, "fetch"),
        produced=_total_bytes(usage.stored, "produce"),
    )


def _usage_rows(stored: StoredUsage) -> Iterator[list[str]]:
    """A line for each user, the most important tier first, those of none last."""
    level_of = {business.user: business.level for business in BUSINESSES}
    below: dict[str, float] = {}
    for one in stored.episodes:
        below[one.tier] = below.get(one.tier, 0.0) + one.seconds_below
    users = sorted(
        stored.users,
        key=lambda one: (one.tier == "", level_of.get(one.user, ""), one.tier, one.user),
    )
    for (tier, user), lines in groupby(users, key=lambda one: (one.tier, one.user)):
        yield _usage_row(
            tier, user, list(lines), level=level_of.get(user), seconds_below=below.get(tier)
        )


def _usage_row(
    tier: str, user: str, lines: list[UserUsage], *, level: str | None, seconds_below: float | None
) -> list[str]:
    moved = {one.direction: one.moved_bytes for one in lines}
    name = tier.rpartition("/")[2]
    return [
        f"{name} ({level})" if level else name or "none",
        user or "not authenticated",
        *(
            f"{moved[direction] / 1e6:,.0f} MB" if direction in moved else ""
            for direction in ("fetch", "produce")
        ),
        f"{sum(one.held_back_bytes for one in lines) / 1e6:,.0f} MB",
        f"{sum(one.throttled_seconds for one in lines):,.0f} s",
        "" if seconds_below is None else f"{seconds_below:,.0f} s",
    ]


def _total_bytes(stored: StoredUsage, direction: str) -> int:
    return sum(moved for (_, one), moved in stored.by_broker.items() if one == direction)


# Experiment 5


def move_html(outcome: MoveOutcome) -> str:
    """The part on experiment 5."""
    return _render(
        "move.html",
        outcome=outcome,
        broker=BROKER,
        reader=READER,
        nic=NIC,
        limit=NIC_LIMIT,
        moved=moved_words(),
        compared=list(_moves_compared(outcome)),
        foretold=[_foretold_row(outcome, one) for one in outcome.foretold],
    )


def _moves_compared(outcome: MoveOutcome) -> Iterator[tuple[str, str, str, str]]:
    """Every line of the table: its name, Kafka alone, Tidegate, the bound."""

    def compare(
        name: str, figure: Callable[[Move], str], bound: str = ""
    ) -> tuple[str, str, str, str]:
        return name, figure(outcome.unthrottled), figure(outcome.followed), bound

    yield compare(
        "L0 during the move, of what it wants",
        lambda one: f"{outcome.read_percent(one):.1f} %",
        f"at least {100 - LOST_PERCENT} %",
    )
    yield compare(
        "the farthest that L0 came behind, in seconds of what it wants",
        lambda one: f"{outcome.longest_lag_seconds(one):.1f} s",
    )
    yield compare(
        f"the NIC's highest mean of {SAWTOOTH_SECONDS} s",
        lambda one: f"{outcome.highest_mean(one, SAWTOOTH_SECONDS) / 1e6:.1f} MB/s",
        f"at most {NIC_LIMIT * (1 + LIMIT_SLACK) / 1e6:.1f} MB/s",
    )
    yield compare(
        "moved",
        lambda one: f"{one.moved_bytes / 1e6:.0f} MB",
    )
    yield compare(
        "spare of the limit before",
        lambda one: f"{outcome.spare(one) / 1e6:.1f} MB/s",
    )
    slowest = _most(round(outcome.longest_seconds(outcome.followed), 1))
    yield compare(
        "request to the end",
        lambda one: "not ended" if one.seconds is None else f"{one.seconds:.1f} s",
        f"{SLOWER_THAN_SPARE:g} x bytes / spare + {RATE_STANDS_SECONDS} s: {slowest}",
    )
    own = [
        (
            "request to the first throttle in Kafka",
            _seconds(outcome.seconds_to_first_throttle()),
            _most(FIRST_THROTTLE_SECONDS),
        ),
        (
            "end until no rate and no list is left",
            _seconds(outcome.seconds_to_clean()),
            _most(CLEAN_UP_SECONDS),
        ),
        (
            "end foretold at half of the bytes, off by",
            _percent(outcome.estimate_off_percent(outcome.halfway())),
            f"at most {ESTIMATE_OFF_PERCENT} % of the time",
        ),
        ("rates and lists left", str(outcome.left()), "0"),
        (
            "of somebody else: set before, changed",
            f"{len(outcome.foreign)}, {outcome.foreign_changed()}",
            "0 changed",
        ),
    ]
    yield from ((name, "", figure, bound) for name, figure, bound in own)


def _foretold_row(outcome: MoveOutcome, one: Foretold) -> tuple[str, str, str, str]:
    """When, how many bytes were left, how many seconds, how far off."""
    return (
        f"{one.at_seconds - outcome.followed.requested_seconds:.0f} s",
        f"{one.bytes_left / 1e6:.0f} MB",
        f"{one.seconds:.0f} s",
        _percent(outcome.estimate_off_percent(one)),
    )


def _percent(percent: float | None) -> str:
    return "not known" if percent is None else f"{percent:.0f} %"
