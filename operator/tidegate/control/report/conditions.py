"""The five conditions of a BrokerBandwidthPolicy after a pass.

Ready says that the policy does its work: the cluster answers, nothing is held and no write failed. That a quota is on its
way down in steps, or that one entity is contended, is in QuotasInSync and in the tier, and does not make the policy unready.
MetricsFresh says what is known of the brokers' load, and Ready does not depend on it.
"""

from controller_logic.decision import Decision, MemberState
from controller_logic.model import Hold, Mode
from controller_logic.reasons import Reason
from tidegate.control.metrics_condition import metrics_fresh
from tidegate.control.reconcile import PassResult
from tidegate.control.throttling_condition import throttling
from tidegate.control.verdict import Truth, Verdict, counted, listed, ready, sentence, shortened

_NOT_REACHED = frozenset(
    {
        Reason.ZOOKEEPER_UNREACHABLE,
        Reason.BROKERS_UNREACHABLE,
        Reason.TOPOLOGY_INCOMPLETE,
        Reason.CONTROLLER_ABSENT,
        Reason.WRONG_CLUSTER,
        Reason.NOT_AUTHORIZED,
        Reason.SECRET_UNREADABLE,
    }
)
# notes that mean a person has to do something before the rest is done
_BLOCKING_NOTES = (Reason.REMOVAL_HELD, Reason.WRITE_BUDGET_SPENT)
_TELLING_STATES = (MemberState.FOREIGN_CONTENT, MemberState.CONTENDED, MemberState.STEPPING, MemberState.TOPIC_NOT_FOUND, MemberState.HELD)


def policy_verdicts(result: PassResult, *, measured: bool) -> tuple[Verdict, ...]:
    """Ready, ClusterReachable, MetricsFresh, QuotasInSync and Throttling, in this order. `measured`: the policy names metrics."""
    return (
        _ready(result),
        _cluster_reachable(result),
        metrics_fresh(result, measured=measured),
        _quotas_in_sync(result),
        throttling(result, measured=measured),
    )


def _ready(result: PassResult) -> Verdict:
    decision = result.decision
    if decision.holds:
        return ready(Truth.FALSE, decision.holds[0].reason, _holds_text(decision.holds))
    if result.error is not None:
        return ready(Truth.FALSE, result.error.reason, result.error.message)
    for reason in _BLOCKING_NOTES:
        notes = [note.message for note in decision.notes if note.reason is reason]
        if notes:
            return ready(Truth.FALSE, reason, listed(notes))
    if result.seen.observation.policy.mode is Mode.OBSERVE:
        return ready(
            Truth.TRUE,
            Reason.OBSERVING,
            f"mode is Observe: {counted(len(decision.would_write), 'quota')} would be written now; nothing is written to Kafka",
        )
    below = sum(one.below_contract for one in decision.levels)
    at_contract = f"{max(0, decision.in_sync - below)} of {counted(decision.managed, 'quota')} at the contract on today's leaders"
    told = f"{at_contract}{f', {below} throttled' if below else ''}{_skew_words(decision)}"
    reason = Reason.IN_SYNC if decision.in_sync >= decision.managed else _members_that_tell(decision)[0]
    return ready(Truth.TRUE, reason, "; but ".join([told, *(warning.message for warning in result.seen.warnings)]))


def _skew_words(decision: Decision) -> str:
    return "" if decision.largest_leader_skew is None else f", largest leader skew {decision.largest_leader_skew:.2f}"


def _holds_text(holds: tuple[Hold, ...]) -> str:
    return listed([hold.message for hold in holds])


def _cluster_reachable(result: PassResult) -> Verdict:
    causes = [hold for hold in result.decision.holds if hold.reason in _NOT_REACHED]
    if causes:
        return Verdict("ClusterReachable", Truth.FALSE, causes[0].reason, shortened(_holds_text(tuple(causes))))
    if result.error is not None and result.error.reason in _NOT_REACHED:
        return Verdict("ClusterReachable", Truth.FALSE, result.error.reason, shortened(result.error.message))
    if result.seen.facts is None:
        return Verdict("ClusterReachable", Truth.UNKNOWN, Reason.STARTING, "The cluster has not been asked yet")
    told = f"ZooKeeper and the brokers of cluster {result.seen.facts.cluster_id} answer"
    for warning in result.seen.warnings:
        if warning.reason is Reason.MIGRATION_PREPARED:
            return Verdict("ClusterReachable", Truth.TRUE, warning.reason, shortened(f"{told}; but {warning.message}"))
    return Verdict("ClusterReachable", Truth.TRUE, Reason.REACHABLE, told)


def _quotas_in_sync(result: PassResult) -> Verdict:
    decision = result.decision
    if result.seen.observation.quotas is None:
        reason = decision.holds[0].reason if decision.holds else Reason.STARTING
        return Verdict("QuotasInSync", Truth.UNKNOWN, reason, "The quotas in place are not known now; they stay as they are")
    for warning in result.seen.warnings:
        if warning.reason is Reason.QUOTAS_IGNORED:
            return Verdict("QuotasInSync", Truth.FALSE, warning.reason, shortened(sentence(warning.message)))
    if decision.in_sync >= decision.managed and not decision.deferred_writes and not decision.writes:
        return Verdict(
            "QuotasInSync", Truth.TRUE, Reason.IN_SYNC, f"{decision.in_sync} of {counted(decision.managed, 'quota')} in force as decided"
        )
    reason, causes = _why_not(result)
    told = f": {listed(causes)}" if causes else ""
    return Verdict(
        "QuotasInSync",
        Truth.FALSE,
        reason,
        shortened(f"{decision.in_sync} of {counted(decision.managed, 'quota')} in force as decided{told}"),
    )


def _why_not(result: PassResult) -> tuple[Reason, list[str]]:
    decision = result.decision
    refused = [outcome for done in result.applied for outcome in done.refused]
    if decision.holds:
        return decision.holds[0].reason, [hold.message for hold in decision.holds]
    if result.error is not None:
        return result.error.reason, [result.error.message]
    if refused and decision.writes:
        return refused[0].reason or Reason.CONFLICT, [f"{outcome.entity}: {outcome.message}" for outcome in refused]
    if result.seen.observation.policy.mode is Mode.OBSERVE:
        return Reason.OBSERVING, [f"{counted(len(decision.would_write), 'quota')} would be written"]
    return _members_that_tell(decision)


def _members_that_tell(decision: Decision) -> tuple[Reason, list[str]]:
    for state in _TELLING_STATES:
        members = [member for member in decision.members if member.state is state]
        if members:
            return members[0].reason, [f"{member.entity}: {member.message}" for member in members]
    notes = [note for note in decision.notes if note.reason is not Reason.HIGH_SKEW]
    if notes:
        return notes[0].reason, [note.message for note in notes]
    if decision.next_pass_in_seconds is not None:
        return Reason.STEPPING, ["what no member speaks of goes down in safe steps"]
    return Reason.CONFLICT, []
