"""Statuses after a pass: of the policy, of each BusinessTier and of each QuotaOverride.

Every number comes from the decision or, for limits of brokers, from the policy. Where a pass has no
value (the brokers, while none answers), the previous one stays. Rates are metrics, not status.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any, TypeVar

from tidegate.control.report.background import background_status, background_verdicts
from tidegate.control.report.budgets import limited_by, short_of
from tidegate.control.report.conditions import (
    Truth,
    Verdict,
    follower_fetch,
    listed,
    policy_verdicts,
    ready,
    rollup_status,
    rollups_current,
    shortened,
)
from tidegate.control.report.replication import replication_status, replication_verdicts
from tidegate.kube.api import JsonObject
from tidegate.observe.declared import Declared, object_key
from tidegate.resources.policy import PolicySpec
from tidegate.resources.schema import SchemaModel
from tidegate.resources.status import (
    MAX_SHOWN_LEAVING,
    MAX_SHOWN_MEMBERS,
    AppliedRates,
    BrokerStatus,
    CalendarStatus,
    LeavingQuota,
    LedgerStatus,
    LevelStatus,
    LimitsInForce,
    MemberStatus,
    OverriddenMember,
    OverrideState,
    OverrideStatus,
    OverrideStatusSummary,
    PolicyStatus,
    PolicySummary,
    QuotaCounts,
    QuotaInForce,
    Recommendation,
    ScheduledLimits,
    TierStatus,
    TierStatusSummary,
    TotalRates,
)
from tidegate.resources.tiers import OverrideTarget
from tidegate_logic.contracts.desired import AT_CONTRACT, MemberReport, MemberState
from tidegate_logic.contracts.overrides import NotApplicable, Overridden
from tidegate_logic.decision import Decision, LevelReport, LevelState
from tidegate_logic.model import (
    Advice,
    BrokerLimit,
    BrokerLimits,
    Direction,
    DirectReading,
    Entity,
    Hold,
    Interface,
    Mode,
    Override,
    QuotaKey,
)
from tidegate_logic.quota_values import KEY_WORDS
from tidegate_logic.quotas.contention import Contention
from tidegate_logic.reasons import Reason
from tidegate_logic.recurrence import Window
from tidegate_logic.throttle.calendar import LIMITED_BY_CALENDAR, LevelCalendar
from tidegate_logic.throttle.nic_status import Pressure, over_count_words
from tidegate_logic.throttle.schedules import LimitsNow
from tidegate_logic.words import clock_words, counted, rfc3339

if TYPE_CHECKING:  # a command has words of this module, and waits for its imports
    from tidegate.control.reconcile import PassResult
    from tidegate.control.rollups import RollupProgress

# --- recommended contracts, as a tier's status and `tidegate plan` show them ----------------------

_FETCH, _PRODUCE = QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.PRODUCER_BYTE_RATE


def recommendation(advice: Sequence[Advice]) -> Recommendation | None:
    """One member's advice in both directions; None without any.

    A contract that fits is reported without its figures, which change by the hour.
    """
    if not advice:
        return None
    rates = {one.key: one.recommended for one in advice}
    applied = {one.key: one.applied for one in advice if one.applied is not None}
    changes = [one for one in advice if one.reason is not Reason.CONTRACT_FITS]
    text = "; ".join(f"{KEY_WORDS[one.key]}: {one.message}" for one in changes)
    return Recommendation(
        fetch=rates.get(_FETCH),
        produce=rates.get(_PRODUCE),
        applied=AppliedRates(fetch=applied.get(_FETCH), produce=applied.get(_PRODUCE))
        if applied
        else None,
        reason=_first_reason(advice).value,
        message=shortened(text) if text else None,
    )


def advice_remarks(advice: Mapping[tuple[str, str], Iterable[Advice]]) -> Iterator[str]:
    """A sentence for every rate that is recommended or applied, for a plan."""
    for (tier_key, member), advices in advice.items():
        for one in advices:
            if one.recommended is not None:
                yield (
                    f"{tier_key} / {member} ({one.reason.value}): {KEY_WORDS[one.key]}: "
                    f"{one.message}"
                )


def _first_reason(advice: Sequence[Advice]) -> Reason:
    """The reason of the pair: a recommendation first, a contract that fits last."""
    reasons = [one.reason for one in advice]
    order = (Reason.RECOMMENDATION_APPLIED, Reason.RECOMMENDED)
    first = next((reason for reason in order if reason in reasons), None)
    return first or next(
        (reason for reason in reasons if reason is not Reason.CONTRACT_FITS), Reason.CONTRACT_FITS
    )


# --- the status of a BusinessTier -----------------------------------------------------------------
#
# A tier is Ready when each of its members is at its contract (or would be, in Observe mode). While
# an input is missing it is Unknown.

# what needs attention most comes first: it becomes the tier's state and the reason of its Ready
_WORST_FIRST = (
    MemberState.FOREIGN_CONTENT,
    MemberState.CONTENDED,
    MemberState.NOT_ALLOWED,
    MemberState.OWNED_BY_STRIMZI,
    MemberState.OVERLAPPING,
    MemberState.TOPIC_NOT_FOUND,
    MemberState.HELD,
    MemberState.STEPPING,
    MemberState.THROTTLED,
    MemberState.UNLIMITED,
    MemberState.CONTRACT,
)
# a throttle is what the tier declares for a broker over its limit
_AS_DECLARED = AT_CONTRACT | {MemberState.THROTTLED}


@dataclass(frozen=True, slots=True)
class TierVerdict:
    """A tier's status without conditions, and these as verdicts, which have no times yet."""

    status: TierStatus
    verdicts: tuple[Verdict, ...]


def tier_verdict(members: Sequence[MemberReport], decision: Decision, mode: Mode) -> TierVerdict:
    """The status of a tier that was read and decided on. `members` are its own reports."""
    short = short_of(decision)
    status = TierStatus(
        members=tuple(
            member_status(
                member,
                decision.advice.get((member.tier_key, member.member_name), ()),
                decision.contended.get(member.entity),
                is_short=member.entity in short,
            )
            for member in members
        ),
        summary=TierStatusSummary(members=len(members), state=_worst(members)),
    )
    verdict = _ready(members, decision, mode)
    if members and (leaving := leaving_words(decision, members[0].tier_key)):
        verdict = replace(verdict, message=shortened(f"{verdict.message}; {listed(leaving)}"))
    return TierVerdict(status, (verdict, _conflict(members)))


def leaving_words(decision: Decision, tier_key: str) -> tuple[str, ...]:
    """What is said of quotas of members that this tier does not name any more."""
    return tuple(
        note.message
        for note in decision.notes
        if note.reason is Reason.RESTORE_WAITS and note.tier_key == tier_key
    )


def unread_tier(reason: Reason, message: str) -> TierVerdict:
    """The status of a tier that takes no part: it or its policy cannot be read or found."""
    conflict = Verdict("Conflict", Truth.UNKNOWN, reason, "Not checked: see the condition Ready")
    return TierVerdict(TierStatus(), (ready(Truth.FALSE, reason, message), conflict))


def starting_tier() -> TierVerdict:
    """The status of an object that was just created, before any pass has ended."""
    message = "Waiting for the first pass of its policy to finish"
    return TierVerdict(
        TierStatus(),
        (
            ready(Truth.UNKNOWN, Reason.STARTING, message),
            Verdict("Conflict", Truth.UNKNOWN, Reason.STARTING, message),
        ),
    )


def member_status(
    member: MemberReport,
    advice: Sequence[Advice],
    contention: Contention | None,
    *,
    is_short: bool,
) -> MemberStatus:
    """One member's report as a part of the status; the message only where it adds something."""
    until = None
    if contention is not None and member.state is MemberState.CONTENDED:
        until = rfc3339(contention.until_seconds)
    fetch_basis = member.fetch.fetch_basis if member.fetch is not None else None
    limits = limited_by(member.member, member, is_short=is_short) if member.counts else None
    return MemberStatus(
        name=member.member_name,
        leaders=member.leaders,
        leader_skew=skew_text(member.leader_skew),
        fetch_skew=skew_text(member.fetch.skew) if member.fetch is not None else None,
        fetch_by=fetch_basis.value if fetch_basis is not None else None,
        quota=_quota(member.quota),
        target=_target(member),
        contract_total=_totals(member.contract_total),
        permitted_total=_totals(member.permitted_total),
        state=member.state.value,
        override=member.member.override,
        limited_by=None if limits == "Contract" else limits,
        message=_message(member),
        contended_until=until,
        recommended=recommendation(advice),
    )


def skew_text(skew: float | None) -> str | None:
    return None if skew is None else f"{skew:.2f}"


def _message(member: MemberReport) -> str | None:
    silent = member.state is MemberState.CONTRACT and member.reason in (
        Reason.CONTRACT,
        Reason.IN_SYNC,
    )
    return None if silent or not member.message else shortened(member.message)


def _target(member: MemberReport) -> QuotaInForce | None:
    """The rates that it steps down to. A throttle has none: its end follows the load."""
    if member.state is MemberState.THROTTLED or dict(member.target) == dict(member.quota):
        return None
    return _quota(member.target)


def _quota(values: Mapping[QuotaKey, int]) -> QuotaInForce | None:
    if not values:
        return None
    return QuotaInForce(
        fetch=values.get(QuotaKey.CONSUMER_BYTE_RATE),
        produce=values.get(QuotaKey.PRODUCER_BYTE_RATE),
        request_percentage=values.get(QuotaKey.REQUEST_PERCENTAGE),
        controller_mutations_per_second=values.get(QuotaKey.CONTROLLER_MUTATION_RATE),
    )


def _totals(values: Mapping[QuotaKey, int]) -> TotalRates | None:
    fetch, produce = (
        values.get(QuotaKey.CONSUMER_BYTE_RATE),
        values.get(QuotaKey.PRODUCER_BYTE_RATE),
    )
    return None if fetch is None and produce is None else TotalRates(fetch=fetch, produce=produce)


def _worst(members: Iterable[MemberReport]) -> str:
    states = {member.state for member in members}
    return next(
        (state.value for state in _WORST_FIRST if state in states and state not in AT_CONTRACT),
        MemberState.CONTRACT.value,
    )


def _ready(members: Sequence[MemberReport], decision: Decision, mode: Mode) -> Verdict:
    if decision.holds:
        hold = decision.holds[0]
        return ready(Truth.UNKNOWN, hold.reason, hold.message)
    lacking = sorted(
        (member for member in members if not _is_content(member)),
        key=lambda member: _WORST_FIRST.index(member.state),
    )
    if lacking:
        text = listed([f"{member.member_name}: {member.message}" for member in lacking])
        of_all = f"{len(lacking)} of {counted(len(members), 'member')}"
        return ready(Truth.FALSE, lacking[0].reason, f"{of_all} not at the contracted rate: {text}")
    if mode is Mode.OBSERVE:
        return ready(
            Truth.TRUE,
            Reason.OBSERVING,
            (
                f"mode is Observe: {counted(len(members), 'member')} decided on, nothing written "
                "to Kafka"
            ),
        )
    throttled = [member for member in members if member.state is MemberState.THROTTLED]
    if throttled:
        text = listed([f"{member.member_name}: {member.message}" for member in throttled])
        by_calendar = all(member.reason is Reason.CALENDAR for member in throttled)
        declared_for = "in the calendar" if by_calendar else "for a broker over its limit"
        of_all = (
            f"{len(throttled)} of {counted(len(members), 'member')} throttled, as declared "
            f"{declared_for}: {text}"
        )
        return ready(Truth.TRUE, throttled[0].reason, of_all)
    protected = [member for member in members if member.member.protected]
    if protected:
        text = listed([f"{member.member_name}: {member.message}" for member in protected])
        of_all = f"{len(protected)} of {counted(len(members), 'member')} without a fetch quota"
        return ready(Truth.TRUE, Reason.SHARE_GROUP, f"{of_all}: {text}")
    text = listed([f"{member.member_name}: {member.message}" for member in members])
    return ready(
        Truth.TRUE,
        Reason.CONTRACT,
        f"{counted(len(members), 'member')} at the contracted rate: {text}",
    )


def _is_content(member: MemberReport) -> bool:
    """At its contract or throttled, or kept from it by nothing but mode Observe."""
    return member.state in _AS_DECLARED or member.reason is Reason.OBSERVING


def _conflict(members: Sequence[MemberReport]) -> Verdict:
    overlapping = [
        f"{member.member_name}: {member.message}"
        for member in members
        if member.state is MemberState.OVERLAPPING
    ]
    if overlapping:
        return Verdict("Conflict", Truth.TRUE, Reason.OVERLAPPING, shortened(listed(overlapping)))
    return Verdict(
        "Conflict",
        Truth.FALSE,
        Reason.CONTRACT,
        "No other tier or member names the same user and client id before this one",
    )


MAX_BROKERS = 1000
MAX_INTERFACES = 32  # of one broker
Part = TypeVar("Part", bound=SchemaModel)
_NOW = "; "  # between what began a throttle and what is now
_BELOW_CONTRACT = frozenset({LevelState.THROTTLED.value, LevelState.RELAXING.value})
CONDITION_TYPES = ("Ready", "ClusterReachable", "MetricsFresh", "QuotasInSync", "Throttling")


@dataclass(frozen=True, slots=True)
class PolicyVerdict:
    """A policy's status without conditions, and these as verdicts, which have no times yet."""

    status: PolicyStatus
    verdicts: tuple[Verdict, ...]


def policy_verdict(
    result: PassResult,
    spec: PolicySpec,
    *,
    previous: Mapping[str, Any],
    rollups: RollupProgress | None = None,
    ledger: LedgerStatus | None = None,
    budgets: int | None = None,
    unreadable: Collection[str] = (),
) -> PolicyVerdict:
    """The status after a pass. `previous` is the present one, for values that this pass lacks.

    `ledger` is the one that is remembered, without the count of managed quotas; `budgets` are how
    many the policy has; `unreadable` are the keys of tiers that cannot be read.
    """
    decision = result.decision
    brokers, levels = _brokers(result, previous), _levels(result, previous)
    known = result.seen.observation.quotas is not None
    counts = _counts(decision) if known else _previous_counts(previous)
    if ledger is not None:
        ledger = ledger.model_copy(update={"managed": None if counts is None else counts.managed})
    status = PolicyStatus(
        cluster_id=result.seen.facts.cluster_id
        if result.seen.facts is not None
        else previous.get("clusterId"),
        brokers=brokers,
        levels=levels,
        calendar=tuple(_calendar(one) for one in decision.calendar) or None,
        limits=None if decision.limits is None else _scheduled(decision.limits),
        quotas=counts,
        ledger=ledger,
        budgets=budgets,
        leaving=_leaving(decision),
        rollup=rollup_status(rollups, wanted=spec.rollup is not None, previous=previous),
        replication=replication_status(
            result.replication, wanted=spec.replication is not None, previous=previous
        ),
        background=background_status(
            result.replication, wanted=spec.background is not None, previous=previous
        ),
        summary=PolicySummary(
            brokers=None if brokers is None else len(brokers),
            over=_over(result),
            over_shown=_over_shown(result, measured=spec.metrics is not None),
            throttled=_throttled(result, previous),
            unreadable_tiers=len(unreadable) or None,
        ),
    )
    now_seconds = result.seen.observation.now_seconds
    current = rollups_current(
        rollups, wanted=spec.rollup is not None, previous=previous, now_seconds=now_seconds
    )
    return PolicyVerdict(
        status,
        (
            *policy_verdicts(
                result,
                measured=spec.metrics is not None,
                because={one.level: one.because or "" for one in levels or ()},
                unreadable=unreadable,
            ),
            *replication_verdicts(
                result.replication, wanted=spec.replication is not None, previous=previous
            ),
            *background_verdicts(
                result.replication, wanted=spec.background is not None, previous=previous
            ),
            *current,
            *follower_fetch(result, previous=previous),
        ),
    )


def _calendar(one: LevelCalendar) -> CalendarStatus:
    return CalendarStatus(
        level=one.level.value,
        percent=_percent(one.share),
        until=None if one.until_seconds is None else rfc3339(one.until_seconds),
        next_percent=None if one.until_seconds is None else _percent(one.next_share),
    )


def _scheduled(now: LimitsNow) -> ScheduledLimits:
    following = now.next_limits
    return ScheduledLimits(
        schedule=now.schedule,
        **_limit_fields(now.limits),
        until=None if now.until_seconds is None else rfc3339(now.until_seconds),
        next=None
        if following is None
        else LimitsInForce(schedule=now.next_schedule, **_limit_fields(following)),
    )


def _limit_fields(limits: BrokerLimits) -> dict[str, int | None]:
    return {way.value: limits.everywhere.limit(way) for way in Direction}


def _percent(share: float | None) -> int:
    return 100 if share is None else round(100 * share)


def _leaving(decision: Decision) -> tuple[LeavingQuota, ...] | None:
    ends = sorted(decision.leaving.items(), key=lambda one: (one[1], one[0].sort_key))
    return (
        tuple(
            LeavingQuota(entity=shortened(str(entity)), restored_at=rfc3339(ceil(at_seconds)))
            for entity, at_seconds in ends[:MAX_SHOWN_LEAVING]
        )
        or None
    )


def unread_policy(reason: Reason, message: str) -> PolicyVerdict:
    """The status of a policy whose spec is unusable. The fields of its cluster stay as they are."""
    return PolicyVerdict(
        PolicyStatus(), (ready(Truth.FALSE, reason, message), *_not_looked_at(reason))
    )


def starting_policy() -> PolicyVerdict:
    """The status of an object that was just created, before any pass has ended."""
    message = "Waiting for the first pass to finish"
    return PolicyVerdict(
        PolicyStatus(),
        (ready(Truth.UNKNOWN, Reason.STARTING, message), *_not_looked_at(Reason.STARTING)),
    )


def _not_looked_at(reason: Reason) -> tuple[Verdict, ...]:
    return tuple(
        Verdict(kind, Truth.UNKNOWN, reason, "Not checked: see the condition Ready")
        for kind in CONDITION_TYPES[1:]
    )


def _brokers(result: PassResult, previous: Mapping[str, Any]) -> tuple[BrokerStatus, ...] | None:
    topology = result.seen.observation.topology
    if topology is None:
        return _parsed(previous, "brokers", BrokerStatus)
    limits, readings = result.seen.observation.policy.limits, result.seen.observation.readings
    pressures = {one.broker: one.pressure for one in result.decision.watched or ()}
    now = rfc3339(result.seen.observation.now_seconds) if pressures else None
    since = {
        (entry.get("id"), entry.get("pressure")): entry.get("since")
        for entry in previous.get("brokers") or ()
    }
    return tuple(
        _broker(
            broker,
            limits.of(broker),
            pressure := pressures.get(broker, Pressure.UNKNOWN),
            since.get((broker, pressure.value)) or now,
            readings.interfaces.get(broker, ()) if readings is not None else (),
            readings.direct.get(broker) if readings is not None else None,
        )
        for broker in sorted(topology.brokers)[:MAX_BROKERS]
    )


def _broker(
    broker: int,
    limit: BrokerLimit,
    pressure: Pressure,
    since: str | None,
    interfaces: Sequence[Interface],
    direct: DirectReading | None,
) -> BrokerStatus:
    document = {
        "id": broker,
        "egressLimit": limit.egress,
        "ingressLimit": limit.ingress,
        "combinedLimit": limit.combined,
        "pressure": pressure.value,
        "since": since,
        "interfaces": tuple(one.name for one in interfaces[:MAX_INTERFACES]) or None,
        "directSince": None if direct is None else rfc3339(direct.since_seconds),
    }
    return BrokerStatus.model_validate(
        {name: value for name, value in document.items() if value is not None}
    )


def _over(result: PassResult) -> int | None:
    watched = result.decision.watched
    return None if watched is None else sum(one.pressure is Pressure.OVER for one in watched)


def _over_shown(result: PassResult, *, measured: bool) -> str | None:
    """`1`; `1?` or `?` while the load of others is not known."""
    watched = result.decision.watched
    if not measured or result.seen.observation.topology is None:
        return None
    return over_count_words(watched)


def _levels(result: PassResult, previous: Mapping[str, Any]) -> tuple[LevelStatus, ...] | None:
    """The levels as decided; a held pass leaves the previous ones."""
    if result.decision.holds:
        return _parsed(previous, "levels", LevelStatus)
    now = rfc3339(result.seen.observation.now_seconds)
    earlier = {level.get("level"): level for level in previous.get("levels") or ()}
    return tuple(
        _level(one, earlier.get(one.level.value) or {}, now) for one in result.decision.levels
    )


def _level(one: LevelReport, before: Mapping[str, Any], now: str) -> LevelStatus:
    same = before.get("state") == one.state.value
    because = _because(one, before)
    document = {
        "level": one.level.value,
        "state": one.state.value,
        "since": before.get("since") if same else now,
    }
    return LevelStatus.model_validate(
        document | ({"because": shortened(because)} if one.below_contract and because else {})
    )


def _because(one: LevelReport, before: Mapping[str, Any]) -> str:
    """What began the throttling of a level, and what these brokers carry now.

    The beginning comes from the status, which keeps it over a restart. What another broker carries
    is not put behind it.
    """
    noted = str(before.get("because") or "") if before.get("state") in _BELOW_CONTRACT else ""
    began, known = noted.split(_NOW, maxsplit=1)[0], ""
    if one.by_calendar:
        return one.because
    if began.startswith(
        ("now ", LIMITED_BY_CALENDAR)
    ):  # the beginning is not known, or was no load
        began = ""
    if one.because and one.since_seconds is not None:
        known = f"since {clock_words(one.since_seconds)} UTC {one.because}"
    now = one.now if not known or began in ("", known) else ""
    return _NOW.join(part for part in (began or known, now) if part)


def _throttled(result: PassResult, previous: Mapping[str, Any]) -> int | None:
    if result.decision.holds:
        before: int | None = (previous.get("summary") or {}).get("throttled")
        return before
    return sum(one.below_contract > 0 for one in result.decision.levels)


def _counts(decision: Decision) -> QuotaCounts:
    return QuotaCounts(
        managed=decision.managed,
        in_sync=decision.in_sync,
        contended=len(decision.contended),
        largest_leader_skew=skew_text(decision.largest_leader_skew),
    )


def _previous_counts(previous: Mapping[str, Any]) -> QuotaCounts | None:
    counts = previous.get("quotas")
    return None if not counts else QuotaCounts.model_validate(counts)


def _parsed(previous: Mapping[str, Any], field: str, model: type[Part]) -> tuple[Part, ...] | None:
    entries = previous.get(field)
    if entries is None:
        return None
    # a list of Kubernetes' is a tuple here
    return tuple(model.model_validate(entry, strict=False) for entry in entries)


# --- the status of a QuotaOverride ----------------------------------------------------------------
#
# An override is Ready when each member that it names has its rates (or would have them, in Observe
# mode). One that has expired is not Ready any more, and keeps the time since when it was in force.

_IN_PLACE = frozenset({Reason.OVERRIDDEN, Reason.OBSERVING})


@dataclass(frozen=True, slots=True)
class OverrideVerdict:
    """An override's status without conditions, and these as verdicts, which have no times yet."""

    status: OverrideStatus
    verdicts: tuple[Verdict, ...]


def override_reports(
    result: PassResult, declared: Declared, overrides: Iterable[JsonObject]
) -> list[tuple[JsonObject, OverrideVerdict]]:
    """A status for each override that was read before the pass, broken ones included."""
    if declared.overrides is None:
        return [(raw, _unknown(result.decision.holds)) for raw in overrides]
    known = {override.key: override for override in declared.overrides}
    broken = {override.key: override.message for override in declared.broken_overrides}
    carried: dict[str, list[MemberReport]] = defaultdict(list)
    for member in result.decision.members:
        if member.member.override is not None:
            carried[member.member.override].append(member)
    reports = []
    for raw in overrides:
        key = object_key(raw)
        if key in known:
            reports.append(
                (
                    raw,
                    override_report(
                        known[key], result, carried[key], previous=raw.get("status") or {}
                    ),
                )
            )
        elif key in broken:
            reports.append((raw, unread_override(raw, Reason.INVALID_SPEC, broken[key])))
    return reports


def override_report(
    override: Override,
    result: PassResult,
    members: Sequence[MemberReport],
    *,
    previous: Mapping[str, Any],
) -> OverrideVerdict:
    """The status of an override that was read. `members` have it; `previous` is its status now."""
    observation, holds = result.seen.observation, result.decision.holds
    now_seconds = observation.now_seconds
    window = override.window(now_seconds)
    if window is not None and not window.has(now_seconds):
        text = (
            f"it begins at {rfc3339(window.begin_seconds)} and ends at "
            f"{rfc3339(window.end_seconds)}; until then its members have what their tiers declare"
        )
        text += f", but not yet: {holds[0].message}" if holds else ""
        status = _status(override, "Scheduled", (), window)
        return OverrideVerdict(status, (ready(Truth.FALSE, Reason.OVERRIDE_SCHEDULED, text),))
    if window is None:
        text = (
            f"it ended at {rfc3339(override.expires_at_seconds)} and may be deleted; its "
            f"members go back to what their tiers declare"
        )
        text += f", but not yet: {holds[0].message}" if holds else ""
        return OverrideVerdict(
            _status(override, "Expired", (), None),
            (ready(Truth.FALSE, Reason.OVERRIDE_EXPIRED, text),),
        )
    if observation.tiers is None:
        return _unknown(holds)
    verdict = _override_ready(override, result, members)
    if not members or observation.policy.deleting:
        return OverrideVerdict(_since(_status(override, "Pending", (), window), None), (verdict,))
    began = previous.get("since") if previous.get("state") == "Active" else None
    return OverrideVerdict(
        _since(_status(override, "Active", members, window), began or rfc3339(now_seconds)),
        (verdict,),
    )


def unread_override(raw: JsonObject, reason: Reason, message: str) -> OverrideVerdict:
    """The status of an override without effect: it or its policy cannot be read or found."""
    status = OverrideStatus(
        state="Pending", members=None, since=None, starts_at=None, summary=_target_of(raw)
    )
    return OverrideVerdict(status, (ready(Truth.FALSE, reason, message),))


def starting_override(raw: JsonObject) -> OverrideVerdict:
    """The status of an object that was just created, before any pass has ended."""
    message = "Waiting for the first pass of its policy to finish"
    status = OverrideStatus(summary=_target_of(raw))
    return OverrideVerdict(status, (ready(Truth.UNKNOWN, Reason.STARTING, message),))


def _target_of(raw: JsonObject) -> OverrideStatusSummary:
    """Whom an override that no pass has read is for, as far as its spec says."""
    target = (raw.get("spec") or {}).get("target")
    try:
        asked = OverrideTarget.model_validate(target)
    except ValueError:
        return OverrideStatusSummary(target=None)
    member = asked.level or str(Entity(user=asked.user, client_id=asked.client_id))
    return OverrideStatusSummary(target=member)


def _unknown(holds: Sequence[Hold]) -> OverrideVerdict:
    """The status while it is unknown whether it is in force: the previous fields stay."""
    reason, text = (
        (holds[0].reason, holds[0].message)
        if holds
        else (Reason.LIST_INCOMPLETE, Reason.LIST_INCOMPLETE.meaning)
    )
    return OverrideVerdict(OverrideStatus(), (ready(Truth.UNKNOWN, reason, text),))


def override_remarks(overridden: Overridden, now_seconds: float) -> list[str]:
    """A sentence for each override in force, and for each that leaves members alone."""
    applied = {override.key: override for override in overridden.applied.values()}
    in_force = [
        (
            f"override {override.key} is in force for {override.target} until "
            f"{rfc3339(override.until_seconds(now_seconds))}: {override.reason}"
        )
        for override in applied.values()
    ]
    return in_force + [
        f"override {key} changes nothing for {_why_not(not_applicable)}"
        for key, not_applicable in overridden.not_applicable.items()
    ]


def _status(
    override: Override,
    state: OverrideState,
    members: Sequence[MemberReport],
    window: Window | None,
) -> OverrideStatus:
    """The status but for its conditions and `since`, which stays what it was."""
    return OverrideStatus(
        state=state,
        members=tuple(_member(member) for member in members[:MAX_SHOWN_MEMBERS]) or None,
        starts_at=rfc3339(window.begin_seconds) if window and state == "Scheduled" else None,
        until=rfc3339(override.expires_at_seconds if window is None else window.end_seconds),
        summary=OverrideStatusSummary(target=override.target, members=len(members)),
    )


def _since(status: OverrideStatus, since: str | None) -> OverrideStatus:
    return status.model_copy(update={"since": since})


def _member(report: MemberReport) -> OverriddenMember:
    entity: Entity = report.entity
    user, client_id = (
        part if isinstance(part, str) else None for part in (entity.user, entity.client_id)
    )
    return OverriddenMember(
        tier=report.tier_key, member=report.member_name, user=user, client_id=client_id
    )


def _override_ready(
    override: Override, result: PassResult, members: Sequence[MemberReport]
) -> Verdict:
    policy, holds = result.seen.observation.policy, result.decision.holds
    not_applicable = result.decision.overridden.not_applicable.get(override.key, ())
    if policy.deleting:
        return ready(
            Truth.FALSE,
            Reason.GIVEN_BACK,
            f"policy {policy.key} is being deleted, and every quota goes back to what it was",
        )
    if not members:
        return _ready_without_members(override, policy.key, not_applicable)
    if holds:
        return ready(Truth.UNKNOWN, holds[0].reason, holds[0].message)
    unfit = [misfit for misfit in not_applicable if misfit.reason is not Reason.OVERRULED]
    if unfit:
        text = (
            f"in force for {len(members)} of {counted(len(members) + len(unfit), 'member')}: "
            f"{_why_not(unfit)}"
        )
        return ready(Truth.FALSE, unfit[0].reason, text)
    lacking = [
        member
        for member in members
        if member.state not in AT_CONTRACT and member.reason not in _IN_PLACE
    ]
    if lacking:
        text = (
            f"{len(lacking)} of {counted(len(members), 'member')} not there yet: "
            f"{_member_words(lacking)}"
        )
        return ready(Truth.FALSE, lacking[0].reason, text)
    now_seconds = result.seen.observation.now_seconds
    return _ready_for_all(
        override, members, not_applicable, mode=policy.mode, now_seconds=now_seconds
    )


def _ready_without_members(
    override: Override, policy_key: str, not_applicable: Sequence[NotApplicable]
) -> Verdict:
    if not_applicable:
        return ready(
            Truth.FALSE, not_applicable[0].reason, f"changes nothing: {_why_not(not_applicable)}"
        )
    who = (
        f"no BusinessTier of level {override.target}"
        if override.level is not None
        else f"no member with exactly {override.target}"
    )
    text = f"policy {policy_key} has {who}, so this object has no effect until there is one"
    return ready(Truth.FALSE, Reason.NO_SUCH_MEMBER, text)


def _ready_for_all(
    override: Override,
    members: Sequence[MemberReport],
    not_applicable: Sequence[NotApplicable],
    *,
    mode: Mode,
    now_seconds: float,
) -> Verdict:
    besides = f"; not for {_why_not(not_applicable)}" if not_applicable else ""
    until = f"until {rfc3339(override.until_seconds(now_seconds))}"
    if mode is Mode.OBSERVE:
        text = (
            f"mode is Observe, nothing is written; Enforce would have it in force for "
            f"{counted(len(members), 'member')} {until}{besides}"
        )
        return ready(Truth.TRUE, Reason.OBSERVING, text)
    never = "never throttled " if override.exempt else ""
    text = f"{never}{until}: {_member_words(members)}{besides}"
    return ready(Truth.TRUE, Reason.OVERRIDDEN, f"{counted(len(members), 'member')} {text}")


def _member_words(members: Sequence[MemberReport]) -> str:
    return listed(
        [f"{member.tier_key} {member.member_name}: {member.message}" for member in members]
    )


def _why_not(not_applicable: Sequence[NotApplicable]) -> str:
    return listed(
        [f"{misfit.tier_key} {misfit.member_name}: {misfit.message}" for misfit in not_applicable]
    )
