"""What the status of a QuotaOverride says after a pass: whether it is in force, for whom, and else why not.

Everything comes from the decision. An override is Ready when everybody whom it names has what it says (or would have, in Observe mode);
one that is over is not Ready any more, and says since when it was in force.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller_logic.contracts.overrides import Misfit, Overridden
from controller_logic.decision import MemberReport, MemberState
from controller_logic.model import Entity, Hold, Mode, Override
from controller_logic.reasons import Reason
from tidegate.control.declared import Declared
from tidegate.control.reconcile import PassResult
from tidegate.control.report.status import rfc3339
from tidegate.control.translate import object_key
from tidegate.control.verdict import Truth, Verdict, counted, listed, ready
from tidegate.kube.api import JsonObject
from tidegate.resources.status import MAX_SHOWN_MEMBERS, OverriddenMember, OverrideState, OverrideStatus, OverrideStatusSummary

_AT_CONTRACT = frozenset({MemberState.CONTRACT, MemberState.UNLIMITED})
_IN_PLACE = frozenset({Reason.OVERRIDDEN, Reason.OBSERVING})


@dataclass(frozen=True, slots=True)
class OverrideVerdict:
    """The whole status of an override: everything but conditions, and the conditions still without their times."""

    status: OverrideStatus
    verdicts: tuple[Verdict, ...]


def override_reports(result: PassResult, declared: Declared, overrides: Iterable[JsonObject]) -> list[tuple[JsonObject, OverrideVerdict]]:
    """What is to be said of each of the policy's overrides that was read before the pass, broken ones included."""
    if declared.overrides is None:
        return [(raw, _unknown(result.decision.holds)) for raw in overrides]
    known = {override.key: override for override in declared.overrides}
    broken = {override.key: override.message for override in declared.broken_overrides}
    carried: dict[str, list[MemberReport]] = defaultdict(list)
    for member in result.decision.members:
        if member.member.override is not None:
            carried[member.member.override].append(member)
    said = []
    for raw in overrides:
        key = object_key(raw)
        if key in known:
            said.append((raw, override_report(known[key], result, carried[key], previous=raw.get("status") or {})))
        elif key in broken:
            said.append((raw, unread_override(Reason.INVALID_SPEC, broken[key])))
    return said


def override_report(
    override: Override, result: PassResult, members: Sequence[MemberReport], *, previous: Mapping[str, Any]
) -> OverrideVerdict:
    """The status of an override that was read. `members` are the reports of those who have it; `previous` is the status as it stands."""
    observation, holds = result.seen.observation, result.decision.holds
    if not override.lasts(observation.now_seconds):
        told = f"it ended at {rfc3339(override.expires_at_seconds)} and may be deleted; its members go back to what their tiers say"
        told += f", but not yet: {holds[0].message}" if holds else ""
        return OverrideVerdict(_status(override, "Expired", ()), (ready(Truth.FALSE, Reason.OVERRIDE_EXPIRED, told),))
    if observation.tiers is None:
        return _unknown(holds)
    verdict = _ready(override, result, members)
    if not members or observation.policy.deleting:
        return OverrideVerdict(_since(_status(override, "Pending", ()), None), (verdict,))
    began = previous.get("since") if previous.get("state") == "Active" else None
    return OverrideVerdict(_since(_status(override, "Active", members), began or rfc3339(observation.now_seconds)), (verdict,))


def unread_override(reason: Reason, message: str) -> OverrideVerdict:
    """The status of an override that takes no part: it does not read, or its policy does not exist or cannot be read."""
    status = OverrideStatus(state="Pending", members=None, since=None)
    return OverrideVerdict(status, (ready(Truth.FALSE, reason, message),))


def starting_override() -> OverrideVerdict:
    """The status on first sight, before any pass has ended."""
    message = "Seen; the first pass over its policy has not ended yet"
    return OverrideVerdict(OverrideStatus(), (ready(Truth.UNKNOWN, Reason.STARTING, message),))


def _unknown(holds: Sequence[Hold]) -> OverrideVerdict:
    """The status while an input is missing that decides whether it is in force: what was said of it stays."""
    reason, told = (holds[0].reason, holds[0].message) if holds else (Reason.LIST_INCOMPLETE, Reason.LIST_INCOMPLETE.meaning)
    return OverrideVerdict(OverrideStatus(), (ready(Truth.UNKNOWN, reason, told),))


def override_remarks(overridden: Overridden) -> list[str]:
    """A sentence for each override that is in force, and for each member that one names and leaves alone."""
    applied = {override.key: override for override in overridden.applied.values()}
    in_force = [
        f"override {override.key} is in force for {override.target} until {rfc3339(override.expires_at_seconds)}: {override.reason}"
        for override in applied.values()
    ]
    return in_force + [f"override {key} changes nothing for {_why_not(misfits)}" for key, misfits in overridden.misfits.items()]


def _status(override: Override, state: OverrideState, members: Sequence[MemberReport]) -> OverrideStatus:
    """The status but for its conditions and `since`, which stays what it was."""
    return OverrideStatus(
        state=state,
        members=tuple(_member(member) for member in members[:MAX_SHOWN_MEMBERS]) or None,
        until=rfc3339(override.expires_at_seconds),
        summary=OverrideStatusSummary(target=override.target, members=len(members)),
    )


def _since(status: OverrideStatus, since: str | None) -> OverrideStatus:
    return status.model_copy(update={"since": since})


def _member(report: MemberReport) -> OverriddenMember:
    entity: Entity = report.entity
    user, client_id = (part if isinstance(part, str) else None for part in (entity.user, entity.client_id))
    return OverriddenMember(tier=report.tier_key, member=report.member_name, user=user, client_id=client_id)


def _ready(override: Override, result: PassResult, members: Sequence[MemberReport]) -> Verdict:
    policy, holds = result.seen.observation.policy, result.decision.holds
    misfits = result.decision.overridden.misfits.get(override.key, ())
    if policy.deleting:
        return ready(Truth.FALSE, Reason.GIVEN_BACK, f"policy {policy.key} is being deleted, and every quota goes back to what it was")
    if not members:
        return _ready_for_nobody(override, policy.key, misfits)
    if holds:
        return ready(Truth.UNKNOWN, holds[0].reason, holds[0].message)
    unfit = [misfit for misfit in misfits if misfit.reason is not Reason.OVERRULED]
    if unfit:
        told = f"in force for {len(members)} of {counted(len(members) + len(unfit), 'member')}: {_why_not(unfit)}"
        return ready(Truth.FALSE, unfit[0].reason, told)
    lacking = [member for member in members if member.state not in _AT_CONTRACT and member.reason not in _IN_PLACE]
    if lacking:
        told = f"{len(lacking)} of {counted(len(members), 'member')} not there yet: {_told(lacking)}"
        return ready(Truth.FALSE, lacking[0].reason, told)
    return _ready_for_all(override, members, misfits, mode=policy.mode)


def _ready_for_nobody(override: Override, policy_key: str, misfits: Sequence[Misfit]) -> Verdict:
    if misfits:
        return ready(Truth.FALSE, misfits[0].reason, f"changes nothing: {_why_not(misfits)}")
    who = f"no BusinessTier of level {override.target}" if override.level is not None else f"no member with exactly {override.target}"
    told = f"policy {policy_key} has {who}, so this changes nothing; it takes effect by itself when there is one"
    return ready(Truth.FALSE, Reason.NO_SUCH_MEMBER, told)


def _ready_for_all(override: Override, members: Sequence[MemberReport], misfits: Sequence[Misfit], *, mode: Mode) -> Verdict:
    besides = f"; not for {_why_not(misfits)}" if misfits else ""
    until = f"until {rfc3339(override.expires_at_seconds)}"
    if mode is Mode.OBSERVE:
        told = f"mode is Observe, nothing is written; Enforce would have it in force for {counted(len(members), 'member')} {until}{besides}"
        return ready(Truth.TRUE, Reason.OBSERVING, told)
    never = "never throttled " if override.exempt else ""
    told = f"{never}{until}: {_told(members)}{besides}"
    return ready(Truth.TRUE, Reason.OVERRIDDEN, f"{counted(len(members), 'member')} {told}")


def _told(members: Sequence[MemberReport]) -> str:
    return listed([f"{member.tier_key} {member.member_name}: {member.message}" for member in members])


def _why_not(misfits: Sequence[Misfit]) -> str:
    return listed([f"{misfit.tier_key} {misfit.member_name}: {misfit.message}" for misfit in misfits])
