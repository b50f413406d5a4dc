"""What the status of a BusinessTier says after a pass: its members as the decision reports them, and two conditions.

Every number comes from the decision. A tier is Ready when each of its members is at its contract (or would be, in
Observe mode); while an input is missing it is Unknown, because then nobody knows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controller_logic.decision import Decision, MemberReport, MemberState
from controller_logic.model import Advice, Mode, QuotaKey
from controller_logic.reasons import Reason
from tidegate.control.advice_words import recommendation
from tidegate.control.verdict import Truth, Verdict, counted, listed, ready, shortened
from tidegate.resources.status import MemberStatus, QuotaInForce, TierStatus, TierStatusSummary, TotalRates

# what needs attention most comes first; it becomes the tier's state and the reason of its Ready condition
_WORST_FIRST = (
    MemberState.FOREIGN_CONTENT,
    MemberState.CONTENDED,
    MemberState.OVERLAPPING,
    MemberState.TOPIC_NOT_FOUND,
    MemberState.HELD,
    MemberState.STEPPING,
    MemberState.THROTTLED,
    MemberState.UNLIMITED,
    MemberState.CONTRACT,
)
_AT_CONTRACT = frozenset({MemberState.CONTRACT, MemberState.UNLIMITED})
_AS_DECLARED = _AT_CONTRACT | {MemberState.THROTTLED}  # a throttle is what the tier declares for a broker over its limit


@dataclass(frozen=True, slots=True)
class TierVerdict:
    """The whole status of one tier: everything but conditions, and the conditions still without their times."""

    status: TierStatus
    verdicts: tuple[Verdict, ...]


def tier_verdict(members: Sequence[MemberReport], decision: Decision, mode: Mode) -> TierVerdict:
    """The status of a tier that was read and decided on. `members` are its own reports."""
    status = TierStatus(
        members=tuple(member_status(member, decision.advice.get((member.tier_key, member.member_name), ())) for member in members),
        summary=TierStatusSummary(members=len(members), state=_worst(members)),
    )
    return TierVerdict(status, (_ready(members, decision, mode), _conflict(members)))


def unread_tier(reason: Reason, message: str) -> TierVerdict:
    """The status of a tier that takes no part: it does not read, or its policy does not exist or cannot be read."""
    conflict = Verdict("Conflict", Truth.UNKNOWN, reason, "Not looked at: see the condition Ready")
    return TierVerdict(TierStatus(), (ready(Truth.FALSE, reason, message), conflict))


def starting_tier() -> TierVerdict:
    """The status on first sight, before any pass has ended."""
    message = "Seen; the first pass over its policy has not ended yet"
    return TierVerdict(
        TierStatus(),
        (ready(Truth.UNKNOWN, Reason.STARTING, message), Verdict("Conflict", Truth.UNKNOWN, Reason.STARTING, message)),
    )


def member_status(member: MemberReport, advice: Sequence[Advice] = ()) -> MemberStatus:
    """One member's report in the words of the resource; the message only where there is something to say."""
    return MemberStatus(
        name=member.member_name,
        leaders=member.leaders,
        leader_skew=skew_text(member.leader_skew),
        quota=_quota(member.quota),
        target=_target(member),
        contract_total=_totals(member.contract_total),
        permitted_total=_totals(member.permitted_total),
        state=member.state.value,
        override=member.member.override,
        message=_message(member),
        recommended=recommendation(advice),
    )


def skew_text(skew: float | None) -> str | None:
    return None if skew is None else f"{skew:.2f}"


def _message(member: MemberReport) -> str | None:
    silent = member.state is MemberState.CONTRACT and member.reason in (Reason.CONTRACT, Reason.IN_SYNC)
    return None if silent or not member.message else shortened(member.message)


def _target(member: MemberReport) -> QuotaInForce | None:
    """Where it is on its way to; where a throttle ends follows the load and is told in words."""
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
    fetch, produce = values.get(QuotaKey.CONSUMER_BYTE_RATE), values.get(QuotaKey.PRODUCER_BYTE_RATE)
    return None if fetch is None and produce is None else TotalRates(fetch=fetch, produce=produce)


def _worst(members: Iterable[MemberReport]) -> str:
    states = {member.state for member in members}
    return next((state.value for state in _WORST_FIRST if state in states and state not in _AT_CONTRACT), MemberState.CONTRACT.value)


def _ready(members: Sequence[MemberReport], decision: Decision, mode: Mode) -> Verdict:
    if decision.holds:
        hold = decision.holds[0]
        return ready(Truth.UNKNOWN, hold.reason, hold.message)
    lacking = sorted((member for member in members if not _is_content(member)), key=lambda member: _WORST_FIRST.index(member.state))
    if lacking:
        told = listed([f"{member.member_name}: {member.message}" for member in lacking])
        of_all = f"{len(lacking)} of {counted(len(members), 'member')} not at the contract: {told}"
        return ready(Truth.FALSE, lacking[0].reason, of_all)
    if mode is Mode.OBSERVE:
        return ready(
            Truth.TRUE, Reason.OBSERVING, f"mode is Observe: {counted(len(members), 'member')} decided on, nothing written to Kafka"
        )
    throttled = [member for member in members if member.state is MemberState.THROTTLED]
    if throttled:
        told = listed([f"{member.member_name}: {member.message}" for member in throttled])
        of_all = f"{len(throttled)} of {counted(len(members), 'member')} throttled, as declared for a broker over its limit: {told}"
        return ready(Truth.TRUE, throttled[0].reason, of_all)
    told = listed([f"{member.member_name}: {member.message}" for member in members])
    return ready(Truth.TRUE, Reason.CONTRACT, f"{counted(len(members), 'member')} at the contract: {told}")


def _is_content(member: MemberReport) -> bool:
    """At its contract or throttled, or kept from it by nothing but mode Observe."""
    return member.state in _AS_DECLARED or member.reason is Reason.OBSERVING


def _conflict(members: Sequence[MemberReport]) -> Verdict:
    overlapping = [f"{member.member_name}: {member.message}" for member in members if member.state is MemberState.OVERLAPPING]
    if overlapping:
        return Verdict("Conflict", Truth.TRUE, Reason.OVERLAPPING, shortened(listed(overlapping)))
    return Verdict("Conflict", Truth.FALSE, Reason.CONTRACT, "No other tier or member names the same user and client id before this one")
