"""`tidegate top`: brokers against limits, levels, and members below their contract, and why."""

import json
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import STANDARD_INPUT, PolicySource, find_policy
from tidegate.commands.options import CommandOptions
from tidegate.commands.output import (
    Column,
    Document,
    ExitCode,
    OutputFormat,
    Page,
    Sheet,
    listed_words,
    publish,
)
from tidegate.commands.plan import entity_document
from tidegate.commands.top_rows import (
    BudgetRow,
    LevelRow,
    RateRow,
    View,
    broker_rows,
    budget_rows,
    level_rows,
    opened_viewer,
    rate_rows,
)
from tidegate.errors import InvalidResource, TidegateError
from tidegate.view.load import NicNow, state_words
from tidegate_logic.contracts.desired import AT_CONTRACT, MemberReport
from tidegate_logic.model import KEY_OF
from tidegate_logic.quota_values import KEY_WORDS
from tidegate_logic.throttle.nic_status import over_count_words
from tidegate_logic.words import NO_VALUE, UNKNOWN, ago_words, rate_of_words, rate_words, rfc3339

# Output for people: three tables for 100 columns, and sentences for members not at their contract.


_LONGEST_NAME, _LONGEST_WHY = 18, 22
_EXPLAINED = 5


class By(StrEnum):
    """What the rows below the brokers are about."""

    MEMBER = "member"
    BUDGET = "budget"


def show_view(page: Page, view: View, *, most_members: int, by: By = By.MEMBER) -> None:
    """Print one view. `most_members` rates are shown, 0 = all of them."""
    page.say(_headline(view), "bold")
    for warning in _warnings(view):
        page.warn(warning)
    rates = rate_rows(view)
    _show_sheet(page, _broker_sheet(broker_rows(view), view.observation.now_seconds))
    if by is By.BUDGET:
        budgets = budget_rows(view)
        _show_sheet(page, _budget_sheet(budgets))
        if not budgets and view.observation.tiers is not None:
            page.say("The policy has no BandwidthBudget.")
        return
    levels = level_rows(view, rates)
    _show_sheet(page, _level_sheet(levels))
    for row in levels:
        if row.words is not None and row.words.because:
            page.say(f"{row.level.value}: {row.words.because}")
    shown = rates[:most_members] if most_members else rates
    _show_sheet(page, _rate_sheet(shown, view.observation.now_seconds))
    if len(shown) < len(rates):
        page.say(f"and {len(rates) - len(shown)} more (--members 0 shows all)")
    for sentence in _reasons(shown, {hold.message for hold in view.decision.holds}):
        page.say(sentence)


def _show_sheet(page: Page, sheet: Sheet) -> None:
    """The table after an empty line; nothing at all without rows."""
    if sheet.rows:
        page.say()
        page.sheet(sheet)


def _headline(view: View) -> str:
    observation, watched = view.observation, view.load.watched
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


Row = TypeVar("Row")


def _sheet(rows: Iterable[Row], *columns: tuple[Column, Callable[[Row], str]]) -> Sheet:
    """A table whose columns come with what a row has in them."""
    cells = [[cell(row) for _, cell in columns] for row in rows]
    return Sheet(tuple(column for column, _ in columns), cells)


def _broker_sheet(rows: Sequence[NicNow], now_seconds: float) -> Sheet:
    def carries(nic: NicNow) -> str:
        if nic.limit is None:
            return "no limit"
        return rate_of_words(nic.bytes_per_second, nic.limit, missing=NO_VALUE)

    def age(nic: NicNow) -> str:
        seconds = _age_seconds(nic, now_seconds)
        return "" if seconds is None else f"{seconds:.0f} s"

    return _sheet(
        rows,
        (_right("Broker"), lambda nic: f"{'direct ' if nic.is_direct else ''}{nic.broker}"),
        (Column("Way"), lambda nic: "" if nic.limit is None else nic.direction.value),
        (_right("Carries"), carries),
        (_right("Share"), lambda nic: "" if nic.share is None else f"{100 * nic.share:.0f} %"),
        (_right("Clients"), lambda nic: "" if nic.limit is None else _rate(nic.clients)),
        (_right("Age"), age),
        (Column("State"), lambda nic: nic.pressure.value),
        (Column("Why", fold=True), lambda nic: _cut(nic.why, _LONGEST_WHY)),
    )


def _right(title: str) -> Column:
    return Column(title, right=True)


def _age_seconds(nic: NicNow, now_seconds: float) -> float | None:
    return None if nic.at_seconds is None else max(0.0, now_seconds - nic.at_seconds)


def _level_sheet(rows: Sequence[LevelRow]) -> Sheet:
    return _sheet(
        rows,
        (Column("Level"), lambda row: row.level.value),
        (_right("Members"), lambda row: str(row.members)),
        (_right("Below"), lambda row: str(row.below)),
        (_right("Fetch"), lambda row: _rate(row.fetch)),
        (_right("Produce"), lambda row: _rate(row.produce)),
        (_right("Delayed"), lambda row: _delay(row.delayed_seconds)),
        (Column("State"), lambda row: "" if row.words is None else state_words(row.words.state)),
    )


def _budget_sheet(rows: Sequence[BudgetRow]) -> Sheet:
    return _sheet(
        rows,
        (Column("Budget"), lambda row: "  " * row.depth + row.key.rpartition("/")[2]),
        (Column("Way"), lambda row: KEY_WORDS[KEY_OF[row.direction]]),
        (_right("Total"), lambda row: rate_words(row.total)),
        (_right("Permitted"), lambda row: _rate(row.permitted)),
        (_right("Measured"), lambda row: _rate(row.measured)),
        (_right("Limited"), lambda row: f"{row.limited} of {row.members}" if row.members else ""),
        (Column("Parent"), lambda row: (row.parent or "").rpartition("/")[2]),
    )


def _rate_sheet(rows: Sequence[RateRow], now_seconds: float) -> Sheet:
    return _sheet(
        rows,
        (Column("Level"), lambda row: row.report.level.value),
        (Column("Member"), lambda row: _cut(row.report.member_name, _LONGEST_NAME)),
        (Column("Way"), lambda row: KEY_WORDS[row.key]),
        (_right("Sends"), lambda row: _rate(row.client.sends)),
        (_right("Quota of contract"), _quota),
        (_right("Delayed"), lambda row: _delay(row.client.delayed_seconds)),
        (Column("Why", fold=True), lambda row: _cut(_why(row, now_seconds), _LONGEST_WHY)),
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
        ago = ago_words(now_seconds - row.entry.written_at_seconds)
        return f"{state_words(row.entry.reason.value)} {ago}"
    return "" if row.report.state in AT_CONTRACT else row.report.state.value


def _reasons(rows: Sequence[RateRow], known: Collection[str]) -> Iterator[str]:
    """Why the first few members are not at their contract, each message once, without those that
    are `known` from above.
    """
    held = {row.report.entity: row.report for row in rows if row.report.state not in AT_CONTRACT}
    by_message: dict[str, list[MemberReport]] = {}
    for report in held.values():
        by_message.setdefault(report.message, []).append(report)
    for message, reports in list(by_message.items())[:_EXPLAINED]:
        if message not in known:
            names = [f"{one.member_name} ({one.entity})" for one in reports]
            yield f"{listed_words(names)}: {message}"


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
        "brokers": None
        if view.load.watched is None
        else [_broker(nic, observation.now_seconds) for nic in broker_rows(view)],
        "levels": [_level(row) for row in level_rows(view, rates)],
        "budgets": [_budget(row) for row in budget_rows(view)],
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


def _broker(nic: NicNow, now_seconds: float) -> Document:
    return {
        "id": nic.broker,
        "direction": None if nic.limit is None else nic.direction.value,
        "bytesPerSecond": nic.bytes_per_second,
        "limit": nic.limit,
        "capacity": nic.capacity,
        "clientsBytesPerSecond": nic.clients,
        "ageSeconds": _age_seconds(nic, now_seconds),
        "pressure": nic.pressure.value,
        "direct": nic.is_direct,
        "why": nic.why,
    }


def _level(row: LevelRow) -> Document:
    return {
        "level": row.level.value,
        "said": None if row.words is None else asdict(row.words),
        "tiers": row.tiers,
        "members": row.members,
        "belowContract": row.below,
        "fetchBytesPerSecond": row.fetch,
        "produceBytesPerSecond": row.produce,
        "longestThrottleSeconds": row.delayed_seconds,
    }


def _budget(row: BudgetRow) -> Document:
    return {
        "budget": row.key,
        "parent": row.parent,
        "key": KEY_OF[row.direction].value,
        "total": row.total,
        "permitted": row.permitted,
        "bytesPerSecond": row.measured,
        "members": row.members,
        "limitedMembers": row.limited,
    }


def _rate_document(row: RateRow) -> Document:
    report, entry = row.report, row.entry
    document: dict[str, object] = {
        "level": report.level.value,
        "tier": report.tier_key,
        "member": report.member_name,
        "entity": entity_document(report.entity),
        "key": row.key.value,
        "bytesPerSecond": row.client.sends,
        "throttleSeconds": row.client.delayed_seconds,
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
    by: Annotated[
        By, typer.Option("--by", help="Show levels and members, or budgets, below the brokers.")
    ] = By.MEMBER,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Watch brokers, levels and members.

    Shows brokers against their limits, levels, and members below their contract with the reason,
    every few seconds until Ctrl-C. With --by budget, it shows BandwidthBudgets instead of levels
    and members.

    Every update reads the policy, the brokers, the quotas and Prometheus again, and nothing is
    written. Unknown values are shown as unknown, with the reason. A member's rate is over all
    brokers, its quota and contract are per broker, and Delayed is the highest throttle time that
    any broker reports, a mean over up to a minute. On a terminal the table stays in place; with
    --output json, every update is one line.

    With --once, exit code 0 means that everything was read, 1 that something is not known.
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
            _show(around, view, output, most_members=members, by=by, once=once, in_place=in_place)
            if once:
                around.exit_code = ExitCode.OK if view.is_whole else ExitCode.ERROR
            if once or around.reader_has_left:
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
        Page(around.err).warn(f"{error.for_command} The last known version of the policy is used.")
        return known


def _show(
    around: CommandContext,
    view: View,
    output: OutputFormat,
    *,
    most_members: int,
    by: By,
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
            show=lambda page: show_view(page, view, most_members=most_members, by=by),
        )
        if not in_place and not once:
            around.out.write("---\n" if output is OutputFormat.YAML else "\n")
    around.out.flush()
