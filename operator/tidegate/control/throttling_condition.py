"""The condition Throttling of a policy: which levels are below their contracts, because of which broker, and whether that is enough.

Its words change with decisions, not with readings, so that a status is not written at every scrape.
"""

from controller_logic.decision import Decision, LevelReport, LevelState
from controller_logic.model import Direction
from controller_logic.reasons import Reason
from controller_logic.throttle.pressure import Pressure
from tidegate.control.reconcile import PassResult
from tidegate.control.verdict import Truth, Verdict, counted, sentence, shortened


def throttling(result: PassResult, *, measured: bool) -> Verdict:
    """True while any member is below its contract because of load. `measured`: the policy names metrics."""
    decision = result.decision
    if decision.holds:
        return Verdict("Throttling", Truth.UNKNOWN, decision.holds[0].reason, "Not decided now: nothing is throttled further or given back")
    below = [one for one in decision.levels if one.below_contract]
    if not below:
        return _nobody(decision, measured=measured)
    reason = Reason.RELAXING if all(one.state is LevelState.RELAXING for one in below) else Reason.THROTTLED
    told = "; ".join(_level_words(one) for one in reversed(below))
    exhausted = _brokers_with(decision, Reason.QUOTA_EXHAUSTED)
    if exhausted:
        reason = Reason.QUOTA_EXHAUSTED
        told = f"{told}. Every tier below L0 gives what it can, and {exhausted} is still over its limit"
    return Verdict("Throttling", Truth.TRUE, reason, shortened(sentence(told)))


def _level_words(one: LevelReport) -> str:
    what = "on the way back to the contract" if one.state is LevelState.RELAXING else "below the contract"
    because = f": {one.because}" if one.because else ""
    return f"{one.level.value} {what} ({one.below_contract} of {counted(one.members, 'member')}){because}"


def _nobody(decision: Decision, *, measured: bool) -> Verdict:
    told = "No tier is below its contract"
    if not measured:
        return Verdict("Throttling", Truth.FALSE, Reason.WITHIN_CONTRACT, f"{told}; load is not measured, so nobody is throttled for it")
    helpless = _brokers_with(decision, Reason.QUOTA_CANNOT_HELP)
    if helpless:
        why = "what no tier below L0 could give back (replication, L0, clients without a tier, other programs); nothing is cut for it"
        return Verdict("Throttling", Truth.FALSE, Reason.QUOTA_CANNOT_HELP, f"{told}; {helpless} is over its limit by {why}")
    if any(one.pressure is Pressure.OVER for one in decision.watched or ()):
        return Verdict("Throttling", Truth.FALSE, Reason.WITHIN_CONTRACT, f"{told}; a broker is over its limit since a moment ago")
    return Verdict("Throttling", Truth.FALSE, Reason.WITHIN_CONTRACT, told)


def _brokers_with(decision: Decision, reason: Reason) -> str:
    """`broker 1 (egress), broker 2 (ingress)`; empty where no broker has that finding."""
    rounds = decision.throttle.rounds if decision.throttle is not None else ()
    found: dict[int, list[Direction]] = {}
    for one in rounds:
        for finding in one.findings:
            if finding.reason is reason and finding.broker is not None:
                found.setdefault(finding.broker, []).append(one.direction)
    return ", ".join(f"broker {broker} ({' and '.join(way.value for way in ways)})" for broker, ways in sorted(found.items()))
