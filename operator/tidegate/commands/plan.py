"""`tidegate plan`: what the operator would write now, and why, from files or the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import PolicySource, find_policy, observed, opened_cluster
from tidegate.commands.options import AccessOptions, CommandOptions
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
from tidegate.commands.reassignments import (
    decided_now,
    planned_replication_document,
    show_planned_replication,
)
from tidegate.errors import InvalidResource, TidegateError
from tidegate_logic.contracts.desired import AT_CONTRACT, MemberReport, MemberState
from tidegate_logic.decide import decide
from tidegate_logic.decision import Decision
from tidegate_logic.model import (
    Advice,
    BrokerLimits,
    Default,
    Direction,
    Entity,
    Mode,
    Note,
    Observation,
    Override,
    QuotaKey,
    QuotaWrite,
    WriteKind,
)
from tidegate_logic.quota_values import KEY_ORDER, KEY_WORDS, enforced_rate, short_words
from tidegate_logic.replication.replication_pass import ReplicationDecision, ReplicationMemory
from tidegate_logic.throttle.calendar import LevelCalendar, level_calendars
from tidegate_logic.throttle.schedules import LimitsNow, in_force, limits_now
from tidegate_logic.words import rate_words, rfc3339

if TYPE_CHECKING:
    from tidegate.observe.declared import Declared
    from tidegate.observe.observation import ObservationResult

# The rows of a plan, one for each entity and quota key. The value in force comes from the
# observation, every other number from the decision; nothing is computed here.


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One quota key of one entity, before and after.

    `in_force` and `next` are exact texts (None = no quota, unlimited); they are equal where nothing
    would be written. `write` is the write that would be sent, `report` the decision's report on the
    member. One of them may be missing, never both.
    """

    entity: Entity
    key: QuotaKey
    in_force: str | None
    next: str | None
    write: QuotaWrite | None
    report: MemberReport | None

    @property
    def changes(self) -> bool:
        return self.in_force != self.next

    @property
    def lowers(self) -> bool:
        """Whether a limit that is in force becomes a smaller one, so that clients may be muted."""
        before, after = enforced_rate(self.in_force), enforced_rate(self.next)
        return before is not None and after is not None and after < before

    @property
    def target(self) -> int | None:
        """The decided target of the key; None if no value of ours is to stay."""
        return self.report.target.get(self.key) if self.report else None

    @property
    def who(self) -> str:
        """Whose contract: `tier / member`, the policy's defaults, or none any more."""
        if self.report:
            return f"{self.report.tier_key} / {self.report.member_name}"
        given_back = self.write is not None and self.write.kind is WriteKind.GIVE_BACK
        return "no longer managed" if given_back else "policy defaults"


def planned_writes(decision: Decision) -> tuple[QuotaWrite, ...]:
    """The decision's writes, or in Observe mode those that Enforce would send."""
    return decision.writes or decision.would_write


def plan_rows(observation: Observation, decision: Decision) -> tuple[PlanRow, ...]:
    """Every key that is managed or would be written, users before their clients, fetch first.

    A member that is left alone because an earlier one has its entity shows no row of its own; its
    message says so.
    """
    writes = {write.entity: write for write in planned_writes(decision)}
    reports = {report.entity: report for report in decision.members if report.counts}
    entities = sorted({*writes, *reports}, key=lambda entity: entity.sort_key)
    return tuple(
        _row(observation, entity, key, write=writes.get(entity), report=reports.get(entity))
        for entity in entities
        for key in _keys(writes.get(entity), reports.get(entity))
    )


def _keys(write: QuotaWrite | None, report: MemberReport | None) -> list[QuotaKey]:
    written: Mapping[QuotaKey, object] = write.values if write else {}
    reported = {*report.quota, *report.target} if report else set()
    return sorted({*written, *reported}, key=KEY_ORDER.__getitem__)


def _row(
    observation: Observation,
    entity: Entity,
    key: QuotaKey,
    *,
    write: QuotaWrite | None,
    report: MemberReport | None,
) -> PlanRow:
    stored = (observation.quotas or {}).get(entity)
    in_force = stored.values.get(key) if stored else None
    following = write.values[key] if write and key in write.values else in_force
    return PlanRow(
        entity=entity, key=key, in_force=in_force, next=following, write=write, report=report
    )


def plan_exit_code(decision: Decision) -> ExitCode:
    """2 when anything would be written now or later, 1 when a hold leaves that unknown, else 0."""
    stepping = any(report.state is MemberState.STEPPING for report in decision.members)
    if planned_writes(decision) or decision.deferred_writes or decision.leaving or stepping:
        return ExitCode.WOULD_CHANGE
    return ExitCode.ERROR if decision.holds else ExitCode.OK


# A plan for people: holds, changes with reason and cost, and one line that sums it up. Rates are
# rounded; `--output json` has every digit.


COLUMNS = (
    Column("entity", fold=True),
    Column("key"),
    Column("now", right=True),
    Column("next", right=True),
    Column("target", right=True),
    Column("reason"),
    Column("leaders", right=True),
    Column("skew", right=True),
    Column("promised", right=True),
    Column("permitted", right=True),
    Column("mute", right=True),
    Column("who", fold=True),
)
_KIND_WORDS = {
    WriteKind.RECOVERY: "raised because leaders moved",
    WriteKind.LOWERING: "lowered",
    WriteKind.RAISE: "raised",
    WriteKind.FIRST: "set by Tidegate for the first time",
    WriteKind.GIVE_BACK: "restored",
    WriteKind.RECORD: "only recorded as ours",
    WriteKind.NOTIFY: "brokers notified again",
}


def show_plan(
    page: Page, observation: Observation, decision: Decision, *, show_unchanged: bool
) -> None:
    """Print the plan; `show_unchanged` adds the rows that would stay as they are."""
    _show_head(page, observation)
    for hold in decision.holds:
        page.warn(f"held ({hold.reason.value}): {hold.message}")
    rows = [row for row in plan_rows(observation, decision) if row.changes or show_unchanged]
    if rows:
        page.say()
    page.sheet(Sheet(COLUMNS, [_cells(row) for row in rows]))
    _show_remarks(page, observation, decision)
    page.heading(summary_line(decision))


def _show_head(page: Page, observation: Observation) -> None:
    policy = observation.policy
    known = len(observation.topology.brokers) if observation.topology else 0
    brokers = f", {known} broker{'s'[: known != 1]}" if observation.topology else ""
    page.say(
        f"Policy {policy.key}, mode {policy.mode.value}{brokers}. This command writes nothing.",
        "bold",
    )
    if policy.mode is Mode.OBSERVE:
        page.say("The policy only observes: the operator writes nothing until mode is Enforce.")
    if policy.paused:
        page.warn(
            f"the policy is paused by {' and '.join(policy.paused_by)}. The operator writes "
            f"nothing until that ends."
        )


def _cells(row: PlanRow) -> tuple[str, ...]:
    report = row.report
    return (
        str(row.entity),
        KEY_WORDS[row.key],
        short_words(row.key, row.in_force),
        short_words(row.key, row.next) if row.changes else "same",
        "" if row.target is None else short_words(row.key, row.target),
        row.write.reason.value if row.write else _state(report),
        "" if report is None or report.leaders is None else str(report.leaders),
        _skew(row),
        _total(row, report.contract_total.get(row.key) if report else None),
        _total(row, report.permitted_total.get(row.key) if report else None),
        f"{row.write.predicted_mute_seconds:.0f} s"
        if row.write and row.write.predicted_mute_seconds and row.lowers
        else "",
        row.who,
    )


def _skew(row: PlanRow) -> str:
    """Of leaders, or of reads where followers serve them, and what those go by."""
    report = row.report
    fetch = report.fetch if report and row.key is QuotaKey.CONSUMER_BYTE_RATE else None
    if fetch is not None and fetch.skew is not None and fetch.fetch_basis is not None:
        return f"{fetch.skew:.2f} by {fetch.fetch_basis.lower()}"
    return "" if report is None or report.leader_skew is None else f"{report.leader_skew:.2f}"


def _state(report: MemberReport | None) -> str:
    return report.reason.value if report else ""


def _total(row: PlanRow, bytes_per_second: int | None) -> str:
    return "" if bytes_per_second is None else short_words(row.key, bytes_per_second)


def _show_remarks(page: Page, observation: Observation, decision: Decision) -> None:
    from tidegate.control.report.budgets import budget_words
    from tidegate.control.report.status import advice_remarks, override_remarks

    remarks = list(_member_remarks(decision))
    remarks += [f"{note.reason.value}: {note.message}" for note in decision.notes]
    remarks += override_remarks(decision.overridden, observation.now_seconds)
    remarks += [budget_words(report) for report in decision.budgets.values()]
    remarks += advice_remarks(decision.advice)
    if remarks:
        page.heading("Notes")
    for remark in remarks:
        page.say(f"- {remark}")


def _member_remarks(decision: Decision) -> Iterator[str]:
    """Why members are not at their contract: each message once, without those of the holds, which
    stand above.
    """
    known = {hold.message for hold in decision.holds}
    by_message: dict[tuple[str, str], list[str]] = {}
    for report in decision.members:
        if report.state not in AT_CONTRACT and report.message not in known:
            same = by_message.setdefault((report.state.value, report.message), [])
            same.append(f"{report.tier_key} / {report.member_name}")
    for (state, message), members in by_message.items():
        yield f"{listed_words(members)} ({state}): {message}"


def summary_line(decision: Decision) -> str:
    """One sentence: how many entities would be written and how, how many are right, what waits."""
    if decision.holds:
        reasons = ", ".join(hold.reason.value for hold in decision.holds)
        return f"The plan is incomplete ({reasons}): what would be written is not known."
    kinds = Counter(write.kind for write in planned_writes(decision))
    changed = ", ".join(
        f"{kinds[kind]} {words}" for kind, words in _KIND_WORDS.items() if kinds[kind]
    )
    would = f"Would write {kinds.total()} of {decision.managed} managed entities: {changed}"
    parts = [
        would if changed else "Nothing would be written now",
        f"{decision.in_sync} of {decision.managed} {'then ' if changed else ''}at their target",
    ]
    if decision.contended:
        count = len(decision.contended)
        parts.append(f"{count} left alone because another writer keeps changing them")
    if decision.deferred_writes:
        parts.append(f"{decision.deferred_writes} more wait for the write budget")
    if decision.next_pass_in_seconds is not None:
        parts.append(f"the next step is due in {decision.next_pass_in_seconds:.0f} s")
    return "; ".join(parts) + "."


# What the clock says at another time. Quotas, leaders, write budget and ledger are those of now.


def as_at(observation: Observation, at_seconds: float) -> Observation:
    """The observation with the overrides and limits in force at a later time, as if they stayed."""
    policy = in_force(observation.policy, observation.tiers, at_seconds)
    return replace(
        observation,
        policy=replace(policy, schedules=()),
        overrides=tuple(
            replace(
                one,
                recurrence=None,
                starts_at_seconds=0.0,
                expires_at_seconds=one.until_seconds(at_seconds),
            )
            for one in observation.overrides
            if one.lasts(at_seconds)
        ),
    )


@dataclass(frozen=True, slots=True)
class ClockThen:
    """What is in force at a time: overrides, the calendar of levels, and the brokers' limits."""

    at_seconds: float
    overrides: tuple[Override, ...]
    calendar: tuple[LevelCalendar, ...]
    limits: LimitsNow | None

    def show(self, page: Page) -> None:
        at = rfc3339(self.at_seconds)
        page.say(f"In force at {at}; quotas, leaders and loads are those of now:", "bold")
        for line in (*self._lines(),) or ("no override, calendar entry or schedule",):
            page.say(f"- {line}")

    def _lines(self) -> Iterator[str]:
        for one in self.overrides:
            until = rfc3339(one.until_seconds(self.at_seconds))
            yield f"override {one.key} for {one.target} until {until}: {one.reason}"
        for level in self.calendar:
            if level.share is not None:
                yield f"{level.level.value} {level.words}"
        if self.limits is not None:
            now, following = self.limits, self.limits.next_limits
            until = "" if now.until_seconds is None else f" until {rfc3339(now.until_seconds)}"
            then = "" if following is None else f", then {_limit_words(following)}"
            yield f"limits of brokers {_limit_words(now.limits)}{until}{then}"

    def document(self) -> Document:
        limits = self.limits
        return {
            "time": rfc3339(self.at_seconds),
            "overrides": [
                {
                    "name": one.key,
                    "target": one.target,
                    "until": rfc3339(one.until_seconds(self.at_seconds)),
                }
                for one in self.overrides
            ],
            "calendar": {
                one.level.value: None if one.share is None else round(100 * one.share)
                for one in self.calendar
            },
            "limits": None
            if limits is None
            else {
                "schedule": limits.schedule,
                **_limit_rates(limits.limits),
                "until": None if limits.until_seconds is None else rfc3339(limits.until_seconds),
            },
        }


def clock_then(observation: Observation, declared: Declared, at_seconds: float) -> ClockThen:
    """What the policy and its overrides declare for a time."""
    policy, tiers = declared.policy, observation.tiers or ()
    return ClockThen(
        at_seconds,
        observation.overrides,
        level_calendars(policy.calendar, at_seconds),
        limits_now(policy, tiers, at_seconds),
    )


def _limit_rates(limits: BrokerLimits) -> dict[str, int]:
    every = ((way, limits.everywhere.limit(way)) for way in Direction)
    return {way.value: limit for way, limit in every if limit is not None}


def _limit_words(limits: BrokerLimits) -> str:
    rates = _limit_rates(limits).items()
    return ", ".join(f"{way} {rate_words(limit)}" for way, limit in rates) or "none"


# A plan as plain data for programs, for `--output json` and `yaml`. Byte rates are integers in
# bytes per second, stored values are exact texts, and an absent field is unknown or does not apply.


def plan_document(
    observation: Observation, decision: Decision, *, warnings: Sequence[str] = ()
) -> Document:
    """The whole plan. `changes` has a row a quota key to write, `members` all, changed or not."""
    rows = plan_rows(observation, decision)
    policy = observation.policy
    return {
        "policy": policy.key,
        "mode": policy.mode.value,
        "paused": policy.paused,
        "brokers": sorted(observation.topology.brokers) if observation.topology else None,
        "changes": [_change(row) for row in rows if row.changes],
        "members": [_member(report) for report in decision.members],
        "recommendations": [
            _recommendation(one) for said in decision.advice.values() for one in said
        ],
        "holds": [
            {"reason": hold.reason.value, "message": hold.message} for hold in decision.holds
        ],
        "notes": [_note(note) for note in decision.notes],
        "warnings": list(warnings),
        "summary": _summary(rows, decision),
    }


def entity_document(entity: Entity) -> Document:
    """`user`, `clientId`, each if part of it; `defaults` names those that are Kafka's default."""
    parts = {"user": entity.user, "clientId": entity.client_id}
    document: dict[str, object] = {
        name: part.value if isinstance(part, Default) else part
        for name, part in parts.items()
        if part is not None
    }
    defaults = [name for name, part in parts.items() if isinstance(part, Default)]
    return {**document, "defaults": defaults} if defaults else document


def _change(row: PlanRow) -> Document:
    change: dict[str, object] = {"entity": entity_document(row.entity), "key": row.key.value}
    change |= {"inForce": row.in_force, "next": row.next, "target": row.target}
    if row.write:
        change |= {
            "kind": row.write.kind.value,
            "reason": row.write.reason.value,
            "message": row.write.message,
            "predictedMuteSeconds": round(row.write.predicted_mute_seconds, 1)
            if row.lowers
            else 0.0,
            "charged": row.write.charged,
        }
    if row.report:
        change |= {"tier": row.report.tier_key, "member": row.report.member_name}
    return change


def _member(report: MemberReport) -> Document:
    return {
        "tier": report.tier_key,
        "member": report.member_name,
        "level": report.level.value,
        "entity": entity_document(report.entity),
        "state": report.state.value,
        "reason": report.reason.value,
        "message": report.message,
        "leaders": report.leaders,
        "leadingBrokers": report.leading_brokers,
        "leaderSkew": None if report.leader_skew is None else round(report.leader_skew, 3),
        **fetch_fields(report),
        "quota": _rates(report.quota),
        "target": _rates(report.target),
        "promisedTotal": _rates(report.contract_total),
        "permittedTotal": _rates(report.permitted_total),
    }


def fetch_fields(report: MemberReport) -> Document:
    """What fetch goes by where consumers read from followers; nothing if leaders serve reads."""
    fetch = report.fetch
    if fetch is None:
        return {}
    skew = None if fetch.skew is None else round(fetch.skew, 3)
    return {"fetchSkew": skew, "fetchBy": fetch.fetch_basis, "fetchBrokers": sorted(fetch.serving)}


def _recommendation(advice: Advice) -> Document:
    document: dict[str, object] = {
        "tier": advice.tier_key,
        "member": advice.member_name,
        "key": advice.key.value,
    }
    document |= {
        "declared": advice.declared,
        "recommended": advice.recommended,
        "applied": advice.applied,
    }
    return document | {"reason": advice.reason.value, "message": advice.message}


def _rates(values: Mapping[QuotaKey, int]) -> Document:
    return {key.value: value for key, value in values.items()}


def _note(note: Note) -> Document:
    document: dict[str, object] = {"reason": note.reason.value, "message": note.message}
    if note.entity:
        document["entity"] = entity_document(note.entity)
    return document | ({"tier": note.tier_key} if note.tier_key else {})


def _summary(rows: tuple[PlanRow, ...], decision: Decision) -> Document:
    return {
        "entitiesToWrite": len(planned_writes(decision)),
        "keysToChange": sum(row.changes for row in rows),
        "managed": decision.managed,
        "inSync": decision.in_sync,
        "contended": len(decision.contended),
        "deferredWrites": decision.deferred_writes,
        "nextPassInSeconds": decision.next_pass_in_seconds,
        "largestLeaderSkew": decision.largest_leader_skew,
    }


@options.command
def plan(
    around: CommandContext,
    *,
    asked: CommandOptions,
    everything: Annotated[bool, typer.Option("--all", help="Also show unchanged quotas.")] = False,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="Show overrides, calendar and limits as at a later time, such as "
            "2026-12-24T23:00:00+01:00. All else is as now.",
        ),
    ] = None,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Preview the changes that the operator would make now.

    Shows for every quota the value before and after, the reason, the clients and how long they may
    be delayed. Nothing is written, neither to Kafka nor to the ledger.

    With --file, Kubernetes is not needed. The files must then hold the policy and all its tiers: a
    quota that the ledger shows as Tidegate's and that no file declares would be restored.

    With spec.replication, changes of replication throttles are shown too. This command does not
    read NIC loads, so a rate that follows the load is shown unchanged.

    Exit code 2 means that something would change, 0 that nothing would, 1 that it is not known.
    """
    from tidegate.observe.broker_settings import follower_reads_notes

    at_seconds = None if at is None else _later(at, around.now_seconds())
    source = find_policy(around, asked.policy)
    seen, decision, replication = decided_with_replication(
        around, source, asked.access, at_seconds=at_seconds
    )
    then = None if at_seconds is None else clock_then(seen.observation, source.declared, at_seconds)
    warnings = (
        *source.remarks(),
        *(warning.message for warning in seen.warnings),
        *follower_reads_notes(seen.reads, seen.observation.tiers, seen.observation.policy),
        *((replication.message,) if isinstance(replication, TidegateError) else ()),
    )
    document = plan_document(seen.observation, decision, warnings=warnings)
    if isinstance(replication, ReplicationDecision):
        document = {**document, "replication": planned_replication_document(replication)}

    if then is not None:
        document = {**document, "at": then.document()}

    def show(page: Page) -> None:
        for warning in warnings:
            page.warn(warning)
        if then is not None:
            then.show(page)
        show_plan(page, seen.observation, decision, show_unchanged=everything)
        if isinstance(replication, ReplicationDecision):
            show_planned_replication(replication, page)

    publish(around.out, output, document, show=show)
    around.exit_code = plan_exit_code(decision)
    if isinstance(replication, ReplicationDecision) and replication.changes:
        around.exit_code = ExitCode.WOULD_CHANGE
    elif isinstance(replication, TidegateError) and around.exit_code == ExitCode.OK:
        around.exit_code = ExitCode.ERROR


def decided(
    around: CommandContext, source: PolicySource, access: AccessOptions
) -> tuple[ObservationResult, Decision]:
    """The operator's own observation and decision, made once and not carried out.

    The decision ignores a pause, so that people can see what would be written after it; the
    observation still shows the pause.
    """
    with opened_cluster(around, source, access) as cluster:
        seen = observed(around, source, cluster)
    return seen, _awake(seen, source)


def _later(text: str, now_seconds: float) -> float:
    """The moment of --at. Raises InvalidResource for one that is over, or is none."""
    from tidegate.resources.fields import is_ago, moment

    at_seconds = moment(text, now_seconds=now_seconds)
    if is_ago(text) or at_seconds < now_seconds:
        raise InvalidResource(
            f"--at {text} is in the past: what was in force then is in `tidegate audit`. Write a "
            "later time, such as 2026-12-24T23:00:00Z."
        )
    return at_seconds


def decided_with_replication(
    around: CommandContext,
    source: PolicySource,
    access: AccessOptions,
    *,
    at_seconds: float | None = None,
) -> tuple[ObservationResult, Decision, ReplicationDecision | TidegateError | None]:
    """The same with what would be done about replication, or why that is not known.

    None = the policy does not ask for it, and nothing of ours is left. `at_seconds` moves the clock
    of overrides and of brokers' limits.
    """
    with opened_cluster(around, source, access) as cluster:
        seen = observed(around, source, cluster)
        if at_seconds is not None:
            seen = replace(seen, observation=as_at(seen.observation, at_seconds))
        replication: ReplicationDecision | TidegateError | None = None
        try:
            if cluster.replication is not None and seen.facts is not None:
                spec = source.declared.spec
                wanted = spec.replication is not None or spec.background is not None
                if wanted or cluster.store.throttle_record() is not None:
                    replication, _ = decided_now(around, source, cluster, ReplicationMemory())
        except TidegateError as error:
            replication = error
    return seen, _awake(seen, source), replication


def _awake(seen: ObservationResult, source: PolicySource) -> Decision:
    awake = replace(seen.observation, policy=replace(seen.observation.policy, paused_by=()))
    decision, _ = decide(awake, source.memory(awake.quotas or (), awake.now_seconds))
    return decision
