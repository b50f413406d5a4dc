"""The conditions of a BrokerBandwidthPolicy after a pass.

Ready: the cluster answers, nothing is held, no write failed and no other writer keeps changing a
quota. A quota on its way down in steps is in QuotasInSync and in the tier and does not make the
policy unready.
Ready does not depend on MetricsFresh, the condition of the brokers' load.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tidegate.resources.status import RollupStatus
from tidegate_logic.contracts.desired import MemberState
from tidegate_logic.decision import Decision, LevelReport, LevelState
from tidegate_logic.model import Direction, Hold, Mode, ReadingProblem
from tidegate_logic.quotas.contention import resync_command
from tidegate_logic.reasons import STALLED, Reason
from tidegate_logic.rollup_schedule import Due, Window
from tidegate_logic.throttle.nic_status import NicStatus, Pressure
from tidegate_logic.words import broker_words, counted, rfc3339_ms

if TYPE_CHECKING:  # a command has words of this module, and waits for its imports
    from tidegate.control.reconcile import PassResult
    from tidegate.control.rollups import RollupProgress

MAX_MESSAGE_LENGTH = 1024
SHOWN = 5  # of a list of things that may be long


class Truth(StrEnum):
    """The three values of a condition's status."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One condition (`type`) of one object, before it has times and generations."""

    type: str
    status: Truth
    reason: Reason
    message: str


def ready(status: Truth, reason: Reason, message: str) -> Verdict:
    return Verdict("Ready", status, reason, shortened(sentence(message)))


def stalled(of: Verdict) -> Verdict:
    """The condition Stalled for this Ready: whether a person must act before anything goes on."""
    if of.status is Truth.FALSE and of.reason in STALLED:
        return Verdict("Stalled", Truth.TRUE, of.reason, of.message)
    return Verdict(
        "Stalled", Truth.FALSE, of.reason, "Tidegate resumes automatically; see the condition Ready"
    )


def sentence(text: str) -> str:
    """The text with a capital first letter, as conditions and Events have it."""
    return text[:1].upper() + text[1:]


def shortened(text: str, most: int = MAX_MESSAGE_LENGTH) -> str:
    """The text, cut with an ellipsis where it is longer than Kubernetes takes."""
    return text if len(text) <= most else text[: most - 1] + "…"


def listed(texts: Sequence[str], *, of: int | None = None) -> str:
    """The first few texts and the number of the others; `of` = the total when not all are given."""
    total = len(texts) if of is None else of
    shown = "; ".join(text.rstrip(".") for text in texts[:SHOWN])
    return shown if total <= SHOWN else f"{shown}; and {total - SHOWN} more"


# --- MetricsFresh: whether the load of every live broker is known, and if not, why ----------------
#
# It holds no rates: those are metrics.

_TYPE = "MetricsFresh"
_ALL_KNOWN = "The load of every live broker is known"
_NOT_MEASURED = "The policy names no metrics, so no broker's load is read"
# rates of clients are not needed to decide whether a broker is over its limit
_OF_CLIENTS = frozenset({Reason.CLIENTS_NOT_METERED})
# no cause of a load that is not known
_OF_NO_NIC = frozenset({Reason.CLIENTS_NOT_NAMED, Reason.NOT_READ_DIRECTLY})


def metrics_fresh(result: PassResult, *, measured: bool) -> Verdict:
    """True while the load of every NIC with a limit is known. The message names what is missing."""
    readings = result.seen.observation.readings
    withheld = [
        note.message for note in result.decision.notes if note.reason is Reason.METERING_WITHHELD
    ]
    if not measured:
        also = f"; and {listed(withheld)}" if withheld else ""
        return Verdict(
            _TYPE,
            Truth.UNKNOWN,
            Reason.METRICS_NOT_WATCHED,
            shortened(sentence(f"{_NOT_MEASURED}{also}")),
        )
    if readings is None:
        return Verdict(
            _TYPE, Truth.UNKNOWN, Reason.STARTING, "No reading of the brokers' load has arrived yet"
        )
    if result.decision.watched is None:
        holds = result.decision.holds
        return Verdict(
            _TYPE,
            Truth.UNKNOWN,
            holds[0].reason if holds else Reason.STARTING,
            "Not judged now: it is unknown which brokers are live",
        )
    unknown = [
        nic
        for one in result.decision.watched
        for nic in one.nics.values()
        if nic.pressure is Pressure.UNKNOWN
    ]
    limited = {way for one in result.decision.watched for way in one.nics}
    problems = [
        problem
        for problem in readings.problems
        if problem.reason not in _OF_CLIENTS and _matters(problem, limited)
    ]
    problems.sort(key=lambda problem: problem.reason in _OF_NO_NIC)
    if unknown:
        causes = [one for one in problems if one.reason is not Reason.NOT_READ_DIRECTLY]
        return _not_fresh(causes, unknown)
    if problems:
        return Verdict(
            _TYPE,
            Truth.TRUE,
            problems[0].reason,
            _problems_text("The load of every broker with a limit is known.", problems),
        )
    if withheld:
        return Verdict(
            _TYPE,
            Truth.TRUE,
            Reason.METERING_WITHHELD,
            shortened(sentence(f"{_ALL_KNOWN}; but {listed(withheld)}")),
        )
    return Verdict(_TYPE, Truth.TRUE, Reason.METRICS_FRESH, _ALL_KNOWN)


def _matters(problem: ReadingProblem, limited: set[Direction]) -> bool:
    """Whether the problem concerns a direction with a limit; the others need no reading."""
    return not problem.directions or bool(limited & set(problem.directions))


def _not_fresh(problems: list[ReadingProblem], unknown: list[NicStatus]) -> Verdict:
    brokers = ", ".join(str(broker) for broker in sorted({nic.broker for nic in unknown}))
    if problems:
        return Verdict(
            _TYPE,
            Truth.FALSE,
            problems[0].reason,
            _problems_text(f"Not known of broker {brokers}.", problems),
        )
    lie = any(nic.lies for nic in unknown)
    why = (
        "its NIC reports less than half of what Kafka moves for clients there"
        if lie
        else "its NIC reports nothing usable"
    )
    return Verdict(_TYPE, Truth.FALSE, Reason.STALE_DATA, f"Not known of broker {brokers}: {why}")


def _problems_text(beginning: str, problems: list[ReadingProblem]) -> str:
    return shortened(sentence(f"{beginning} {listed([problem.message for problem in problems])}"))


# --- Throttling: which levels are below their contracts, for which broker, and if it is enough ----
#
# What its brokers carry now is in it, so `SteadyWords` keeps it as it was for a minute at least.


def throttling(result: PassResult, because: Mapping[str, str], *, measured: bool) -> Verdict:
    """True while load keeps a member below its contract.

    `because` has the words of each level below it; `measured`: the policy names metrics.
    """
    decision = result.decision
    if decision.holds:
        return Verdict(
            "Throttling",
            Truth.UNKNOWN,
            decision.holds[0].reason,
            "Not decided now: nothing is throttled further or raised",
        )
    below = [one for one in decision.levels if one.below_contract]
    unmeasured = _unmeasured_words(result)
    if not below and unmeasured:
        return Verdict(
            "Throttling",
            Truth.FALSE,
            Reason.RELEASED_UNMEASURED,
            f"No tier is below its contract; {unmeasured}",
        )
    if not below:
        return _no_one(decision, measured=measured)
    reason = Reason.THROTTLED
    if all(one.state is LevelState.RELAXING for one in below):
        reason = Reason.RELAXING
    elif all(one.by_calendar for one in below):
        reason = Reason.CALENDAR
    text = "; ".join(
        [
            *(_level_words(one, because.get(one.level.value, "")) for one in reversed(below)),
            *([unmeasured] if unmeasured else []),
        ]
    )
    text += _contended_words(decision)
    reason = Reason.RELEASED_UNMEASURED if unmeasured else reason
    exhausted = _brokers_with(decision, Reason.QUOTA_EXHAUSTED)
    if exhausted:
        reason = Reason.QUOTA_EXHAUSTED
        text = (
            f"{text}. Every tier below L0 is throttled as far as allowed, and {exhausted} is still "
            f"over its limit"
        )
    return Verdict("Throttling", Truth.TRUE, reason, shortened(sentence(text)))


def _unmeasured_words(result: PassResult) -> str:
    """The brokers whose load is unknown for longer than metrics.whenStale allows; or empty."""
    brokers = _brokers_with(result.decision, Reason.RELEASED_UNMEASURED)
    seconds = result.seen.observation.policy.release_after_seconds or 0.0
    if not brokers:
        return ""
    return (
        f"the load of {brokers} has been unknown for {seconds:.0f} s (metrics.whenStale), so "
        f"no one is throttled for it"
    )


def _level_words(one: LevelReport, because: str) -> str:
    what = "recovering" if one.state is LevelState.RELAXING else "throttled"
    return (
        f"{one.level.value} {what} ({one.below_contract} of "
        f"{counted(one.members, 'member')}){f': {because}' if because else ''}"
    )


def _no_one(decision: Decision, *, measured: bool) -> Verdict:
    text = "No tier is below its contract"
    if not measured:
        return Verdict(
            "Throttling",
            Truth.FALSE,
            Reason.WITHIN_CONTRACT,
            f"{text}; load is not measured, so no one is throttled for it",
        )
    helpless = _brokers_with(decision, Reason.QUOTA_CANNOT_HELP)
    if helpless:
        why = (
            "what no throttle could relieve (replication that is not throttled, L0, clients "
            "without a tier, other programs); nothing is cut for it"
        )
        return Verdict(
            "Throttling",
            Truth.FALSE,
            Reason.QUOTA_CANNOT_HELP,
            f"{text}; {helpless} is over its limit by {why}{_contended_words(decision)}",
        )
    if any(one.pressure is Pressure.OVER for one in decision.watched or ()):
        return Verdict(
            "Throttling",
            Truth.FALSE,
            Reason.WITHIN_CONTRACT,
            f"{text}; a broker went over its limit a moment ago",
        )
    return Verdict("Throttling", Truth.FALSE, Reason.WITHIN_CONTRACT, text)


def _contended_words(decision: Decision) -> str:
    """Members that are left alone, and so not throttled on a broker over its limit."""
    rounds = decision.throttle.rounds if decision.throttle is not None else ()
    said = {
        finding.message
        for one in rounds
        for finding in one.findings
        if finding.reason is Reason.CONTENDED
    }
    return f"; {listed(sorted(said))}" if said else ""


def _brokers_with(decision: Decision, reason: Reason) -> str:
    """`broker 1 (egress), broker 2 (ingress)`; empty where no broker has that finding."""
    rounds = decision.throttle.rounds if decision.throttle is not None else ()
    found: dict[int, list[Direction]] = {}
    for one in rounds:
        for finding in one.findings:
            if finding.reason is reason and finding.broker is not None:
                found.setdefault(finding.broker, []).append(one.direction)
    return ", ".join(
        f"broker {broker} ({' and '.join(way.value for way in ways)})"
        for broker, ways in sorted(found.items())
    )


# --- FollowerFetch: whether consumers may read from followers, while leaders scale fetch quotas ---
#
# Information: neither Ready nor an Event depends on it. A cluster where leaders have always served
# all reads has no such condition.

_FOLLOWER_FETCH = "FollowerFetch"


def follower_fetch(result: PassResult, *, previous: Mapping[str, Any]) -> tuple[Verdict, ...]:
    """One verdict where it matters or did before; none where the condition stays as it is."""
    from tidegate.observe.broker_settings import follower_reads_words, has_scaled_fetch

    reads, tiers = result.seen.reads, result.seen.observation.tiers
    present = any(one.get("type") == _FOLLOWER_FETCH for one in previous.get("conditions") or ())
    if reads is None or tiers is None:
        return ()
    scaled = has_scaled_fetch(tiers)
    if not present and not (scaled and (reads.selectors or reads.refused)):
        return ()
    if not scaled:
        status, reason = Truth.FALSE, Reason.LEADERS_SERVE_READS
        text = "No fetch contract is scaled by leaders, so any replica may serve reads"
    elif reads.selectors:
        status, reason = Truth.TRUE, Reason.READS_FROM_FOLLOWERS
        text = follower_reads_words(reads)
    elif reads.refused:
        status, reason = Truth.UNKNOWN, Reason.NOT_AUTHORIZED
        text = (
            "Whether consumers may read from followers is not known: the login may not read the "
            f"settings of {broker_words(reads.refused)}. Grant the operator's Kafka user "
            "DescribeConfigs on the cluster"
        )
    elif not reads.leaders_only:  # after a start no broker has answered for a minute
        return ()
    elif reads.silent:
        status, reason = Truth.UNKNOWN, Reason.BROKERS_UNREACHABLE
        text = (
            "Whether consumers may read from followers is not known: no answer yet from "
            f"{broker_words(reads.silent)}, which Tidegate asks again"
        )
    else:
        status, reason = Truth.FALSE, Reason.LEADERS_SERVE_READS
        text = "Consumers read from leaders on every broker"
    return (Verdict(_FOLLOWER_FETCH, status, reason, shortened(text)),)


# --- RollupsCurrent: whether every window that ended is in the usage tables, and if not, why ------
#
# Its message changes when a window is published or a Job ends, not while one runs. Ready does not
# depend on it: tables do not move quotas.

TYPE = "RollupsCurrent"
UNSEEN_AFTER_SECONDS = 300.0
_NEWEST = 1  # the window that has just ended may be on its way into the tables


def rollups_current(
    progress: RollupProgress | None,
    *,
    wanted: bool,
    previous: Mapping[str, Any],
    now_seconds: float,
) -> tuple[Verdict, ...]:
    """One verdict, or none.

    There is none for a policy that never asked for rollups, and none until the first look where
    there is a condition already.
    """
    present = any(condition.get("type") == TYPE for condition in previous.get("conditions") or ())
    if not wanted:
        text = "The policy asks for no usage rollups any more; tables that exist stay as they are"
        return (Verdict(TYPE, Truth.UNKNOWN, Reason.ROLLUPS_NOT_WANTED, text),) if present else ()
    if progress is None:
        return (
            ()
            if present
            else (
                Verdict(
                    TYPE,
                    Truth.UNKNOWN,
                    Reason.STARTING,
                    "The policy's rollup Jobs have not been checked yet",
                ),
            )
        )
    status, reason, text = _judged(progress, now_seconds)
    return (Verdict(TYPE, status, reason, shortened(sentence(text))),)


def rollup_status(
    progress: RollupProgress | None, *, wanted: bool, previous: Mapping[str, Any]
) -> RollupStatus | None:
    """The figures of the status; the previous ones where this pass has none."""
    if not wanted:
        return None
    if progress is None or progress.due is None:
        return RollupStatus.model_validate(previous["rollup"]) if previous.get("rollup") else None
    due = progress.due
    until = None if due.published_until_ms is None else rfc3339_ms(due.published_until_ms)
    return RollupStatus(published_until=until, waiting=len(due.missing), failed=len(due.failed))


def _judged(progress: RollupProgress, now_seconds: float) -> tuple[Truth, Reason, str]:
    if not progress.offered:
        text = (
            "this operator was started without an image for rollup Jobs, so it creates none: set "
            "rollup.enabled of the chart"
        )
        return Truth.FALSE, Reason.ROLLUPS_NOT_OFFERED, text
    age_seconds = now_seconds - progress.looked_at_seconds
    if age_seconds > UNSEEN_AFTER_SECONDS:
        text = (
            f"the rollup Jobs have not been checked for {age_seconds / 60:.0f} minutes; quotas do "
            "not depend on it"
        )
        return Truth.UNKNOWN, Reason.ROLLUPS_UNSEEN, text
    if progress.trouble is not None:
        return (Truth.UNKNOWN if progress.due is None else Truth.FALSE), *progress.trouble
    if progress.due is None:
        return (
            Truth.UNKNOWN,
            Reason.STARTING,
            "the policy's rollup Jobs have not been checked yet",
        )
    return _published(progress, progress.due)


def _published(progress: RollupProgress, due: Due) -> tuple[Truth, Reason, str]:
    if due.published_until_ms is None:
        until = (
            "no window has begun and ended since the policy was created, so there is nothing to "
            "publish yet"
        )
    else:
        until = f"published without a gap until {rfc3339_ms(due.published_until_ms)}"
    if due.failed:
        failures = listed(
            [
                f"{_span(job.window)}: {job.message or 'no reason given'} (Job {job.name})"
                for job in due.failed
            ]
        )
        text = (
            f"{counted(len(due.failed), 'window')} failed: {failures}. Each is retried within two "
            "hours, or once the policy is edited"
        )
        return Truth.FALSE, Reason.ROLLUP_FAILED, f"{text}; {until}"
    if progress.unusable is not None:
        return Truth.FALSE, *progress.unusable
    if len(due.missing) > _NEWEST:
        text = (
            f"{counted(len(due.missing), 'window')} wait for their Job, one at a time, from "
            f"{_span(due.missing[0])} on"
        )
        return Truth.FALSE, Reason.ROLLUPS_BEHIND, text
    empty_hours = sum(window.end_ms - window.start_ms for window in due.empty) / 3_600_000
    empty = (
        f"; Prometheus has no samples for {empty_hours:.1f} of the latest hours, so they are in no "
        "table"
        if due.empty
        else ""
    )
    lost = (
        f"; {due.lost_ms / 3_600_000:.1f} hours before that are missing and too old to be filled "
        f"by themselves"
        if due.lost_ms
        else ""
    )
    return Truth.TRUE, Reason.ROLLUPS_PUBLISHED, f"{until}{empty}{lost}"


def _span(window: Window) -> str:
    return f"{rfc3339_ms(window.start_ms)} to {rfc3339_ms(window.end_ms)}"


_NOT_REACHED = frozenset(
    {
        Reason.ZOOKEEPER_UNREACHABLE,
        Reason.BROKERS_UNREACHABLE,
        Reason.TOPOLOGY_INCOMPLETE,
        Reason.CONTROLLER_ABSENT,
        Reason.WRONG_CLUSTER,
        Reason.NOT_AUTHORIZED,
        Reason.SECRET_NOT_ALLOWED,
        Reason.SECRET_UNREADABLE,
    }
)
# notes that mean a person has to do something before the rest is done
_BLOCKING_NOTES = (Reason.REMOVAL_HELD, Reason.CONTENDED, Reason.WRITE_BUDGET_SPENT)
_REPORTED_STATES = (
    MemberState.FOREIGN_CONTENT,
    MemberState.CONTENDED,
    MemberState.STEPPING,
    MemberState.TOPIC_NOT_FOUND,
    MemberState.HELD,
)


def policy_verdicts(
    result: PassResult,
    *,
    measured: bool,
    because: Mapping[str, str],
    unreadable: Collection[str] = (),
) -> tuple[Verdict, ...]:
    """The verdicts that every pass has, Ready first.

    `measured`: the policy names metrics; `because`: what each throttled level is throttled for;
    `unreadable`: the keys of tiers that cannot be read.
    """
    return (
        _ready(result, unreadable),
        _cluster_reachable(result),
        metrics_fresh(result, measured=measured),
        _quotas_in_sync(result),
        throttling(result, because, measured=measured),
    )


def _unreadable_words(tiers: Collection[str]) -> str:
    if not tiers:
        return ""
    more = f" and {len(tiers) - SHOWN} more" if len(tiers) > SHOWN else ""
    names = ", ".join(sorted(tiers)[:SHOWN])
    return f"; {counted(len(tiers), 'tier')} cannot be read: {names}{more}"


def _ready(result: PassResult, unreadable: Collection[str]) -> Verdict:
    """The first of the checks below that has something to say, else that quotas are in sync."""
    verdicts = (check(result, unreadable) for check in _READY_CHECKS)
    found = next((verdict for verdict in verdicts if verdict is not None), None)
    return _ready_in_sync(result, unreadable) if found is None else found


def _ready_held(result: PassResult, _unreadable: Collection[str]) -> Verdict | None:
    holds = result.decision.holds
    return ready(Truth.FALSE, holds[0].reason, _holds_text(holds)) if holds else None


def _ready_failed(result: PassResult, _unreadable: Collection[str]) -> Verdict | None:
    error = result.error
    return None if error is None else ready(Truth.FALSE, error.reason, error.message)


def _ready_blocked(result: PassResult, _unreadable: Collection[str]) -> Verdict | None:
    decision = result.decision
    for reason in _BLOCKING_NOTES:
        notes = [note.message for note in decision.notes if note.reason is reason]
        if notes and reason is Reason.CONTENDED:
            text = _contended_text(notes, decision, result.seen.observation.policy.key)
            return ready(Truth.FALSE, reason, text)
        if notes:
            return ready(Truth.FALSE, reason, listed(notes))
    return None


def _ready_observing(result: PassResult, unreadable: Collection[str]) -> Verdict | None:
    if result.seen.observation.policy.mode is not Mode.OBSERVE:
        return None
    decision = result.decision
    return ready(
        Truth.TRUE,
        Reason.OBSERVING,
        (
            f"mode is Observe: {counted(len(decision.would_write), 'quota')} would be written "
            f"now; nothing is written to Kafka{_unknown_load_words(decision)}"
            f"{_unreadable_words(unreadable)}"
        ),
    )


_READY_CHECKS = (_ready_held, _ready_failed, _ready_blocked, _ready_observing)


def _ready_in_sync(result: PassResult, unreadable: Collection[str]) -> Verdict:
    decision = result.decision
    below = sum(one.below_contract for one in decision.levels)
    leaving = len(decision.leaving.keys() - {member.entity for member in decision.members})
    at_contract = (
        f"{max(0, decision.in_sync - below - leaving)} of "
        f"{counted(decision.managed - leaving, 'quota')} at the contracted rate on today's leaders"
    )
    text = f"{at_contract}{f', {below} throttled' if below else ''}{_skew_words(decision)}"
    text += _unknown_load_words(decision) + _leaving_words(decision)
    text += _unreadable_words(unreadable)
    reason = (
        Reason.IN_SYNC
        if decision.in_sync >= decision.managed
        else _members_not_settled(decision)[0]
    )
    return ready(
        Truth.TRUE,
        reason,
        "; but ".join([text, *(warning.message for warning in result.seen.warnings)]),
    )


def _leaving_words(decision: Decision) -> str:
    """The quotas that no contract names any more, and when they are restored."""
    notes = [note.message for note in decision.notes if note.reason is Reason.RESTORE_WAITS]
    return f"; {listed(notes)}" if notes else ""


def _unknown_load_words(decision: Decision) -> str:
    """The brokers with a limit whose load is not known; a first reading is not waited for."""
    watched = decision.watched or ()
    unknown = [str(one.broker) for one in watched if one.pressure is Pressure.UNKNOWN]
    if not unknown:
        return ""
    if len(unknown) == len(watched):
        return "; the load of no broker is known"
    return f"; the load of broker {', '.join(unknown[:SHOWN])}{_more(unknown)} is not known"


def _more(texts: Sequence[str]) -> str:
    return f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""


def _contended_text(notes: Sequence[str], decision: Decision, policy_key: str) -> str:
    """What ends it comes before the list, which may be cut."""
    of_strimzi = sum(1 for one in decision.contended.values() if one.cause)
    who = "Kafka does not record who. To end it at once:"
    if of_strimzi:
        which = "these" if of_strimzi == len(notes) else f"{of_strimzi} of them"
        who = (
            f"Strimzi's operators remove {which}, which no KafkaUser and no Kafka declares; what "
            "to set is in the messages of the members. When that is done:"
        )
    return (
        f"Another writer keeps changing {counted(len(notes), 'quota')}, left alone for some "
        f"minutes; all others follow their contracts. {who} {resync_command(policy_key)}. "
        f"{listed(notes)}"
    )


def _skew_words(decision: Decision) -> str:
    return (
        ""
        if decision.largest_leader_skew is None
        else f", largest leader skew {decision.largest_leader_skew:.2f}"
    )


def _holds_text(holds: tuple[Hold, ...]) -> str:
    return listed([hold.message for hold in holds])


def _cluster_reachable(result: PassResult) -> Verdict:
    causes = [hold for hold in result.decision.holds if hold.reason in _NOT_REACHED]
    if causes:
        return Verdict(
            "ClusterReachable", Truth.FALSE, causes[0].reason, shortened(_holds_text(tuple(causes)))
        )
    if result.error is not None and result.error.reason in _NOT_REACHED:
        return Verdict(
            "ClusterReachable", Truth.FALSE, result.error.reason, shortened(result.error.message)
        )
    if result.seen.facts is None:
        return Verdict(
            "ClusterReachable",
            Truth.UNKNOWN,
            Reason.STARTING,
            "The cluster has not been contacted yet",
        )
    facts = result.seen.facts
    text = f"{facts.answered_by} of cluster {facts.cluster_id} answer"
    for warning in result.seen.warnings:
        if warning.reason is Reason.MIGRATION_PREPARED:
            return Verdict(
                "ClusterReachable",
                Truth.TRUE,
                warning.reason,
                shortened(f"{text}; but {warning.message}"),
            )
    return Verdict("ClusterReachable", Truth.TRUE, Reason.REACHABLE, text)


def _quotas_in_sync(result: PassResult) -> Verdict:
    decision = result.decision
    if result.seen.observation.quotas is None:
        reason = decision.holds[0].reason if decision.holds else Reason.STARTING
        return Verdict(
            "QuotasInSync",
            Truth.UNKNOWN,
            reason,
            "The quotas in Kafka are unknown right now; they stay as they are",
        )
    for warning in result.seen.warnings:
        if warning.reason is Reason.QUOTAS_IGNORED:
            return Verdict(
                "QuotasInSync", Truth.FALSE, warning.reason, shortened(sentence(warning.message))
            )
    if (
        decision.in_sync >= decision.managed
        and not decision.deferred_writes
        and not decision.writes
    ):
        return Verdict(
            "QuotasInSync",
            Truth.TRUE,
            Reason.IN_SYNC,
            f"{decision.in_sync} of {counted(decision.managed, 'quota')} in force as decided"
            f"{_unnotified_words(decision.unnotified)}",
        )
    reason, causes = _why_not(result)
    text = f": {listed(causes)}" if causes else ""
    return Verdict(
        "QuotasInSync",
        Truth.FALSE,
        reason,
        shortened(
            f"{decision.in_sync} of {counted(decision.managed, 'quota')} in force as decided{text}"
        ),
    )


def _unnotified_words(count: int) -> str:
    if not count:
        return ""
    return (
        f"; brokers are still to be notified of {counted(count, 'quota')} that another tool wrote, "
        "or an earlier version recorded"
    )


def _why_not(result: PassResult) -> tuple[Reason, list[str]]:
    decision = result.decision
    refused = [outcome for done in result.applied for outcome in done.refused]
    if decision.holds:
        return decision.holds[0].reason, [hold.message for hold in decision.holds]
    if result.error is not None:
        return result.error.reason, [result.error.message]
    if refused and decision.writes:
        return refused[0].reason or Reason.CONFLICT, [
            f"{outcome.entity}: {outcome.message}" for outcome in refused
        ]
    if result.seen.observation.policy.mode is Mode.OBSERVE:
        return Reason.OBSERVING, [f"{counted(len(decision.would_write), 'quota')} would be written"]
    return _members_not_settled(decision)


def _members_not_settled(decision: Decision) -> tuple[Reason, list[str]]:
    for state in _REPORTED_STATES:
        members = [member for member in decision.members if member.state is state]
        if members:
            return members[0].reason, [f"{member.entity}: {member.message}" for member in members]
    notes = [note for note in decision.notes if note.reason is not Reason.HIGH_SKEW]
    if notes:
        return notes[0].reason, [note.message for note in notes]
    if decision.next_pass_in_seconds is not None:
        return Reason.STEPPING, ["quotas that no member mentions go down in safe steps"]
    return Reason.CONFLICT, []
