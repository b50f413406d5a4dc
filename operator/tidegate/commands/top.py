"""`tidegate top`: brokers against limits, levels, and members below their contract, and why."""

import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated

import typer

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import STANDARD_INPUT, PolicySource, find_policy
from tidegate.commands.options import CommandOptions
from tidegate.commands.output import Column, Document, OutputFormat, Page, Sheet, publish
from tidegate.commands.plan import entity_document
from tidegate.commands.top_rows import (
    BrokerRow,
    LevelRow,
    RateRow,
    View,
    broker_rows,
    level_rows,
    opened_viewer,
    rate_rows,
)
from tidegate.errors import InvalidResource, TidegateError
from tidegate_logic.contracts.desired import MemberState
from tidegate_logic.model import Observation
from tidegate_logic.quota_values import KEY_WORDS
from tidegate_logic.throttle.nic_status import over_count_words
from tidegate_logic.words import NO_VALUE, UNKNOWN, ago_words, rate_of_words, rate_words, rfc3339

# Output for people: three tables for 100 columns, and sentences for members not at their contract.


_LONGEST_NAME, _LONGEST_WHY = 18, 22
_EXPLAINED = 5
_QUIET = frozenset({MemberState.CONTRACT, MemberState.UNLIMITED})


def show_view(page: Page, view: View, *, most_members: int) -> None:
    """Print one view. `most_members` rates are shown, 0 = all of them."""
    page.say(_headline(view), "bold")
    for warning in _warnings(view):
        page.warn(warning)
    rates = rate_rows(view)
    page.say()
    page.sheet(_broker_sheet(broker_rows(view)))
    page.say()
    levels = level_rows(view, rates)
    page.sheet(_level_sheet(levels))
    for row in levels:
        if row.word is not None and row.word.because:
            page.say(f"{row.level.value}: {row.word.because}")
    shown = rates[:most_members] if most_members else rates
    page.say()
    page.sheet(_rate_sheet(shown, view.observation))
    if len(shown) < len(rates):
        page.say(f"and {len(rates) - len(shown)} more (--members 0 shows all)")
    for sentence in _reasons(shown):
        page.say(sentence)


def _headline(view: View) -> str:
    observation, watched = view.observation, view.watched
    moment = rfc3339(observation.now_seconds)
    over = (
        f"{over_count_words(watched)} of {len(watched)} brokers over" if watched is not None else ""
    )
    mode = "paused" if observation.policy.paused else f"mode {observation.policy.mode.value}"
    return "  ".join(
        part
        for part in (
            moment,
            observation.policy.key,
            f"cluster {view.cluster_id or UNKNOWN}",
            mode,
            over,
        )
        if part
    )


def _warnings(view: View) -> Iterator[str]:
    """The reasons why something below is missing."""
    yield from (f"{hold.reason.value}: {hold.message}" for hold in view.decision.holds)
    if not view.is_measured:
        yield "The policy has no spec.metrics, so the load of brokers is not known."
    readings = view.readings
    yield from (
        f"{problem.reason.value}: {problem.message}"
        for problem in (readings.problems if readings is not None else ())
    )
    yield from view.warnings


def _broker_sheet(rows: Sequence[BrokerRow]) -> Sheet:
    columns = (
        *(Column("Broker", right=True), Column("Way")),
        *(Column(title, right=True) for title in ("Carries", "Share", "Clients", "Age")),
        *(Column("State"), Column("Why", fold=True)),
    )
    return Sheet(columns, [_broker_cells(row) for row in rows])


def _broker_cells(row: BrokerRow) -> Sequence[str]:
    nic = row.nic
    carries, limit = (nic.bytes_per_second, nic.limit) if nic is not None else (None, None)
    share = f"{100 * carries / limit:.0f} %" if carries is not None and limit else ""
    return (
        str(row.broker),
        row.direction.value if row.direction is not None else "",
        rate_of_words(carries, limit, missing=NO_VALUE) if limit is not None else "no limit",
        share,
        _rate(row.clients) if nic is not None else "",
        "" if row.age_seconds is None else f"{row.age_seconds:.0f} s",
        row.pressure.value,
        _cut(row.why, _LONGEST_WHY),
    )


def _level_sheet(rows: Sequence[LevelRow]) -> Sheet:
    titles = ("Members", "Below", "Fetch", "Produce", "Delayed")
    columns = (
        Column("Level"),
        *(Column(title, right=True) for title in titles),
        Column("State"),
    )
    return Sheet(columns, [_level_cells(row) for row in rows])


def _level_cells(row: LevelRow) -> Sequence[str]:
    return (
        row.level.value,
        str(row.members),
        str(row.below),
        _rate(row.fetch),
        _rate(row.produce),
        _delay(row.delay_seconds),
        "" if row.word is None else row.word.state,
    )


def _rate_sheet(rows: Sequence[RateRow], observation: Observation) -> Sheet:
    columns = (
        *(Column("Level"), Column("Member"), Column("Way")),
        *(Column(title, right=True) for title in ("Sends", "Quota of contract", "Delayed")),
        Column("Why", fold=True),
    )
    return Sheet(columns, [_rate_cells(row, observation.now_seconds) for row in rows])


def _rate_cells(row: RateRow, now_seconds: float) -> Sequence[str]:
    return (
        row.report.level.value,
        _cut(row.report.member_name, _LONGEST_NAME),
        KEY_WORDS[row.key],
        _rate(row.sends),
        _quota(row),
        _delay(row.delay_seconds),
        _cut(_why(row, now_seconds), _LONGEST_WHY),
    )


def _quota(row: RateRow) -> str:
    if not row.is_read:
        return NO_VALUE
    if row.contract is None:
        return "unlimited" if row.in_force is None else rate_words(row.in_force)
    return (
        rate_words(row.contract)
        if row.in_force == row.contract
        else rate_of_words(row.in_force, row.contract, missing="unlimited")
    )


def _why(row: RateRow, now_seconds: float) -> str:
    """The reason for a rate that is not at its contract, and since when."""
    if row.is_below and row.entry is not None:
        return f"{row.entry.reason.value} {ago_words(now_seconds - row.entry.written_at_seconds)}"
    return "" if row.report.state in _QUIET else row.report.state.value


def _reasons(rows: Sequence[RateRow]) -> Iterator[str]:
    """The first few members that are not at their contract, each once."""
    held = {row.report.entity: row.report for row in rows if row.report.state not in _QUIET}
    for report in list(held.values())[:_EXPLAINED]:
        yield f"{report.member_name} ({report.entity}): {report.message}"


def _rate(bytes_per_second: float | None) -> str:
    return rate_words(bytes_per_second, missing=NO_VALUE)


def _delay(seconds: float | None) -> str:
    return NO_VALUE if seconds is None else f"{seconds:.1f} s"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"


# One view as plain data for programs. Rates are bytes per second; null is unknown.


def view_document(view: View) -> Document:
    """Everything, also the rates that a table would leave out."""
    observation, rates = view.observation, rate_rows(view)
    readings = view.readings
    return {
        "atSeconds": round(observation.now_seconds, 3),
        "policy": observation.policy.key,
        "cluster": view.cluster_id,
        "mode": observation.policy.mode.value,
        "paused": observation.policy.paused,
        "brokers": None if view.watched is None else [_broker(row) for row in broker_rows(view)],
        "levels": [_level(row) for row in level_rows(view, rates)],
        "members": [_rate_document(row) for row in rates],
        "holds": [
            {"reason": hold.reason.value, "message": hold.message} for hold in view.decision.holds
        ],
        "problems": _problems(view) if readings is not None else None,
        "warnings": list(view.warnings),
    }


def _problems(view: View) -> Sequence[Document]:
    problems = view.readings.problems if view.readings is not None else ()
    return [
        {"reason": problem.reason.value, "broker": problem.broker, "message": problem.message}
        for problem in problems
    ]


def _broker(row: BrokerRow) -> Document:
    nic = row.nic
    return {
        "id": row.broker,
        "direction": None if row.direction is None else row.direction.value,
        "bytesPerSecond": None if nic is None else nic.bytes_per_second,
        "limit": None if nic is None else nic.limit,
        "capacity": None if nic is None else nic.capacity,
        "clientsBytesPerSecond": row.clients,
        "ageSeconds": row.age_seconds,
        "pressure": row.pressure.value,
        "why": row.why,
    }


def _level(row: LevelRow) -> Document:
    return {
        "level": row.level.value,
        "said": None
        if row.word is None
        else {"state": row.word.state, "since": row.word.since, "because": row.word.because},
        "tiers": row.tiers,
        "members": row.members,
        "belowContract": row.below,
        "fetchBytesPerSecond": row.fetch,
        "produceBytesPerSecond": row.produce,
        "longestThrottleSeconds": row.delay_seconds,
    }


def _rate_document(row: RateRow) -> Document:
    report, entry = row.report, row.entry
    document: dict[str, object] = {
        "level": report.level.value,
        "tier": report.tier_key,
        "member": report.member_name,
        "entity": entity_document(report.entity),
        "key": row.key.value,
        "bytesPerSecond": row.sends,
        "throttleSeconds": row.delay_seconds,
        "quotaKnown": row.is_read,
        "quota": row.in_force,
        "contract": row.contract,
        "belowContract": row.is_below,
        "state": report.state.value,
        "message": report.message,
    }
    if entry is not None:
        document["written"] = {
            "reason": entry.reason.value,
            "atSeconds": round(entry.written_at_seconds, 3),
        }
    return document


# the cursor home, and everything below it cleared: less flicker than clearing first
_FROM_THE_TOP = "\x1b[H\x1b[J"


@options.command
def top(
    around: CommandContext,
    *,
    asked: CommandOptions,
    metrics_credentials_file: options.MetricsCredentialsFile = None,
    once: Annotated[bool, typer.Option("--once", help="Print one update and exit.")] = False,
    interval: options.Interval = 5,
    members: Annotated[
        int,
        typer.Option("--members", min=0, help="Maximum number of member rates to show; 0 = all."),
    ] = 15,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Watch brokers, levels and members.

    Shows brokers against their limits, levels, and members below their contract with the reason,
    every few seconds until Ctrl-C.

    Every update reads the policy, the brokers, the quotas and Prometheus again, and nothing is
    written. Unknown values are shown as unknown, with the reason. A member's rate is over all
    brokers, its quota and contract are per broker, and Delayed is the highest throttle time that
    any broker reports, a mean over up to a minute. On a terminal the table stays in place; with
    --output json, every update is one line.
    """
    if not once and STANDARD_INPUT in (asked.policy.file or ()):
        raise InvalidResource(
            "Standard input can be read only once: add --once, or give the policy in a file."
        )
    in_place = around.out.isatty() and output is OutputFormat.TABLE and not once
    with (
        suppress(KeyboardInterrupt),  # this is how people end it
        closing(_views(around, asked, metrics_credentials_file)) as views,
    ):
        for view in views:
            _show(around, view, output, most_members=members, once=once, in_place=in_place)
            if once:
                return
            around.wait_seconds(interval)


def _views(
    around: CommandContext, asked: CommandOptions, metrics_file: Path | None
) -> Generator[View, None, None]:
    """One view each time, by the policy as it is. Connections stay while cluster and metrics do."""
    source = find_policy(around, asked.policy)
    while True:
        with opened_viewer(around, source, asked.access, metrics_file=metrics_file) as viewer:
            opened = source
            while _names_the_same(source, opened):
                yield viewer.read(source)
                source = _newest(around, asked, source)


def _names_the_same(one: PolicySource, other: PolicySource) -> bool:
    return (one.declared.spec.kafka, one.declared.spec.metrics) == (
        other.declared.spec.kafka,
        other.declared.spec.metrics,
    )


def _newest(around: CommandContext, asked: CommandOptions, known: PolicySource) -> PolicySource:
    """The policy as it is now; as it was known where it cannot be read just now."""
    try:
        return find_policy(around, asked.policy)
    except TidegateError as error:
        Page(around.err).warn(f"{error.message} The policy is taken as it was known before.")
        return known


def _show(
    around: CommandContext,
    view: View,
    output: OutputFormat,
    *,
    most_members: int,
    once: bool,
    in_place: bool,
) -> None:
    document = view_document(view)
    if output is OutputFormat.JSON and not once:
        around.out.write(json.dumps(document, ensure_ascii=False) + "\n")
    else:
        if in_place:
            around.out.write(_FROM_THE_TOP)
        publish(
            around.out,
            output,
            document,
            show=lambda page: show_view(page, view, most_members=most_members),
        )
        if not in_place and not once:
            around.out.write("---\n" if output is OutputFormat.YAML else "\n")
    around.out.flush()
