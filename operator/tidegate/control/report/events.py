"""What changed between the status before a pass and the one that is written now.

That makes the Events of a pass, and decides which words of the status stay as they are.

The status itself is the memory, so a restarted operator repeats no Event, and a pass that changes
nothing has none. The Events are sent by `reporter.py`.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegate.control.replication import ReplicationResult
from tidegate.control.report.conditions import (
    SHOWN,
    Truth,
    Verdict,
    listed,
    sentence,
    shortened,
)
from tidegate.control.report.replication import FILLING_WORDS, begin_words
from tidegate.control.report.status import PolicyVerdict
from tidegate.observe.declared import Declared
from tidegate_logic.contracts.desired import MemberReport, MemberState
from tidegate_logic.decision import Decision, LevelReport, LevelState
from tidegate_logic.model import Entity, QuotaWrite
from tidegate_logic.reasons import Reason
from tidegate_logic.replication.moves import MoveKind
from tidegate_logic.throttle.calendar import LIMITED_BY_CALENDAR
from tidegate_logic.throttle.nic_status import Pressure, Watched, WatchedBroker
from tidegate_logic.words import counted, rate_of_words

NORMAL, WARNING = "Normal", "Warning"
_TROUBLED = frozenset(
    {
        MemberState.FOREIGN_CONTENT,
        MemberState.CONTENDED,
        MemberState.OVERLAPPING,
        MemberState.NOT_ALLOWED,
        MemberState.OWNED_BY_STRIMZI,
        MemberState.TOPIC_NOT_FOUND,
        MemberState.HELD,
    }
)
# asked for, so no warning
_EXPECTED = frozenset(
    {
        Reason.STEPPING,
        Reason.PAUSED,
        Reason.OVERRIDE_SCHEDULED,
        Reason.OVERRIDE_EXPIRED,
        Reason.DRAINING,
        Reason.STARTING,
    }
)
# in the Event of Ready already, or no news on a first pass
_QUIET = frozenset(
    {
        Reason.ROLLUPS_BEHIND,
        Reason.STARTING,
        Reason.CLIENT_RATES_AWAITED,
        Reason.METRICS_NOT_WATCHED,
        Reason.WITHIN_CONTRACT,
        Reason.REACHABLE,
        Reason.OBSERVING,
    }
)


@dataclass(frozen=True, slots=True)
class EventDraft:
    """One Event to send about an object."""

    type: str
    reason: Reason
    message: str


def condition_events(
    previous: Mapping[str, Any], verdicts: Sequence[Verdict]
) -> tuple[EventDraft, ...]:
    """One Event for each condition whose status or reason changed.

    Of several with one reason, one that is not True comes first.
    """
    earlier = {
        entry["type"]: (entry["status"], entry["reason"])
        for entry in previous.get("conditions") or ()
    }
    chosen: dict[Reason, Verdict] = {}
    for verdict in verdicts:
        if earlier.get(verdict.type) == (
            verdict.status.value,
            verdict.reason.value,
        ) or not _is_news(verdict):
            continue
        if verdict.reason not in chosen or chosen[verdict.reason].status is Truth.TRUE:
            chosen[verdict.reason] = verdict
    return tuple(
        EventDraft(_type_of(verdict), verdict.reason, shortened(verdict.message))
        for verdict in chosen.values()
    )


def _is_news(verdict: Verdict) -> bool:
    if verdict.type == "Ready":
        return verdict.status is not Truth.UNKNOWN
    if verdict.reason in _ALWAYS_NEWS:
        return True
    return verdict.status is _TROUBLE.get(verdict.type) and verdict.reason not in _QUIET


_ALWAYS_NEWS = frozenset(
    {
        Reason.ROLLUPS_PUBLISHED,
        Reason.MIGRATION_PREPARED,
        Reason.METERING_WITHHELD,
        Reason.QUOTA_EXHAUSTED,
        Reason.QUOTA_CANNOT_HELP,
        Reason.RELEASED_UNMEASURED,
    }
)

# a condition with this value has an Event besides that of Ready, which reports the return to normal
_TROUBLE = {
    "ClusterReachable": Truth.FALSE,
    "MetricsFresh": Truth.FALSE,
    "QuotasInSync": Truth.FALSE,
    "Conflict": Truth.TRUE,
    "RollupsCurrent": Truth.FALSE,
    "ReplicationCurrent": Truth.FALSE,
    "RecordsLost": Truth.TRUE,
    "ClockWrong": Truth.TRUE,
    "DeadLetters": Truth.TRUE,
}


_GOOD_WHEN_TRUE = frozenset({"Ready", "RollupsCurrent", "ReplicationCurrent"})


def _type_of(verdict: Verdict) -> str:
    good = verdict.status is Truth.TRUE and verdict.type in _GOOD_WHEN_TRUE
    return NORMAL if good or verdict.reason in _EXPECTED else WARNING


_NONE_ALONE: Mapping[str, str | None] = {}


def member_events(
    previous: Mapping[str, Any],
    members: Sequence[MemberReport],
    contended_until: Mapping[str, str | None] = _NONE_ALONE,
) -> tuple[EventDraft, ...]:
    """One Event for each trouble that members newly have, naming the first few of them.

    Being left alone once more, until `contended_until` (by member), is news too.
    """
    earlier = {
        entry["name"]: (entry.get("state"), entry.get("contendedUntil"))
        for entry in previous.get("members") or ()
    }
    fresh: dict[Reason, list[str]] = defaultdict(list)
    for member in members:
        if (
            member.state in _TROUBLED
            and member.reason not in _QUIET
            and earlier.get(member.member_name)
            != (member.state.value, contended_until.get(member.member_name))
        ):
            fresh[member.reason].append(f"{member.member_name}: {member.message}")
    return tuple(
        EventDraft(NORMAL if reason in _EXPECTED else WARNING, reason, shortened(listed(messages)))
        for reason, messages in fresh.items()
    )


def broker_events(previous: Mapping[str, Any], watched: Watched | None) -> tuple[EventDraft, ...]:
    """One Event for the brokers that went over their limits, with numbers; one for those back."""
    earlier = {entry["id"]: entry.get("pressure") for entry in previous.get("brokers") or ()}
    over = [
        one
        for one in watched or ()
        if one.pressure is Pressure.OVER and earlier.get(one.broker) != Pressure.OVER.value
    ]
    back = [
        one
        for one in watched or ()
        if one.pressure is Pressure.WITHIN and earlier.get(one.broker) == Pressure.OVER.value
    ]
    events = []
    if over:
        events.append(
            EventDraft(
                WARNING,
                Reason.BROKER_OVER_LIMIT,
                shortened(listed([over_words(one) for one in over])),
            )
        )
    if back:
        text = listed([f"broker {one.broker} is within its limit again" for one in back])
        events.append(EventDraft(NORMAL, Reason.BROKER_WITHIN_LIMIT, shortened(sentence(text))))
    return tuple(events)


def leaving_events(previous: Mapping[str, Any], decision: Decision) -> Iterator[EventDraft]:
    """One Event for the quotas that no contract names since this pass, and their end."""
    known = {entry["entity"] for entry in previous.get("leaving") or ()}
    fresh = [
        note.message
        for note in decision.notes
        if note.reason is Reason.RESTORE_WAITS and shortened(str(note.entity)) not in known
    ]
    if fresh:
        yield EventDraft(NORMAL, Reason.RESTORE_WAITS, shortened(sentence(listed(fresh))))


def replication_events(
    previous: Mapping[str, Any], result: ReplicationResult
) -> Iterator[EventDraft]:
    """At the beginning and the end of what moves, and for what was removed of a dead tool."""
    if result.decision is None:
        return
    before = previous.get("replication") or {}
    for kind, field in ((MoveKind.REASSIGNMENT, "moving"), (MoveKind.RECOVERY, "recovering")):
        figures, known = result.figures.get(kind), before.get(field)
        if figures is not None and not known:
            yield EventDraft(
                NORMAL, Reason.REPLICATION_THROTTLED, shortened(begin_words(kind, figures))
            )
        elif figures is None and known:
            text = (
                f"{counted(int(known['partitions']), 'partition')} no longer {FILLING_WORDS[kind]}"
            )
            yield EventDraft(NORMAL, Reason.REPLICATION_RELEASED, text)
    removed = result.decision.removed_leftovers
    if removed and result.applied:
        text = f"Removed what was left behind: {listed([str(one) for one in removed])}"
        yield EventDraft(WARNING, Reason.LEFTOVER_REMOVED, shortened(text))


def budget_events(previous: Mapping[str, Any], declared: Declared) -> list[EventDraft]:
    """The Event that the policy of this status has no budget any more."""
    if declared.budgets is None or declared.budgets or declared.broken_budgets:
        return []
    if not previous.get("budgets") or declared.policy.deleting:
        return []
    how = " with their CRD" if declared.unread_budgets else ""
    text = f"Its BandwidthBudgets were deleted{how}, so contracts apply again"
    return [EventDraft(NORMAL, Reason.BUDGETS_GONE, text)]


def level_events(
    previous: Mapping[str, Any], levels: Iterable[LevelReport]
) -> tuple[EventDraft, ...]:
    """One Event for levels newly throttled, one for those recovering, one for those back."""
    entries = previous.get("levels") or ()
    earlier = {entry["level"]: entry.get("state") for entry in entries}
    by_calendar = {
        entry["level"]
        for entry in entries
        if str(entry.get("because") or "").startswith(LIMITED_BY_CALENDAR)
    }
    changes: dict[Reason, list[str]] = defaultdict(list)
    for one in levels:
        before = earlier.get(one.level.value)
        if one.by_calendar:
            if before != one.state.value:
                changes[Reason.CALENDAR].append(f"{one.level.value} is {one.because}")
        elif one.state is LevelState.THROTTLED and (
            before != one.state.value or (one.because and one.level.value in by_calendar)
        ):
            # in the same episode again: what began it is not what is the matter now
            again = before in _BELOW_CONTRACT and one.level.value not in by_calendar
            words = f"{one.because} at first; {one.now}" if again and one.because else one.because
            changes[Reason.THROTTLED].append(
                f"{one.level.value} is throttled{' again' if again else ''}"
                f"{f': {words}' if words else ''}"
            )
        elif one.state is LevelState.RELAXING and before != one.state.value:
            changes[Reason.RELAXING].append(f"{one.level.value} is recovering")
        elif not one.below_contract and before in _BELOW_CONTRACT:
            changes[Reason.RELEASED].append(f"{one.level.value} is back at its contracted rates")
    kinds = (
        (Reason.THROTTLED, WARNING),
        (Reason.CALENDAR, NORMAL),
        (Reason.RELAXING, NORMAL),
        (Reason.RELEASED, NORMAL),
    )
    return tuple(
        EventDraft(kind, reason, shortened(listed(changes[reason])))
        for reason, kind in kinds
        if changes[reason]
    )


_BELOW_CONTRACT = frozenset({LevelState.THROTTLED.value, LevelState.RELAXING.value})


def over_words(one: WatchedBroker) -> str:
    """`Broker 2: egress 58.1 of 50 MB/s`, each direction that is, or just was, over its limit."""
    ways = [
        f"{way.value} {rate_of_words(nic.bytes_per_second, nic.limit)}"
        for way, nic in one.nics.items()
        if nic.bytes_per_second is not None and nic.limit is not None and nic.hot_samples
    ]
    return f"Broker {one.broker}: {', '.join(ways)}"


def write_events(writes: Iterable[QuotaWrite]) -> tuple[EventDraft, ...]:
    """One Event for each reason of quotas that were written, with numbers of the first few."""
    by_reason: dict[Reason, list[QuotaWrite]] = defaultdict(list)
    for write in writes:
        if any(text != write.seen.values.get(key) for key, text in write.values.items()):
            by_reason[write.reason].append(write)
    return tuple(_written(reason, group) for reason, group in by_reason.items())


def _written(reason: Reason, writes: Sequence[QuotaWrite]) -> EventDraft:
    # only what is shown is put into words: there may be thousands
    text = listed([write.message for write in writes[:SHOWN]], of=len(writes))
    return EventDraft(NORMAL, reason, shortened(f"{counted(len(writes), 'quota')} written: {text}"))


def writes_by_tier(
    writes: Iterable[QuotaWrite], members: Iterable[MemberReport]
) -> Mapping[str | None, list[QuotaWrite]]:
    """The writes by the tier whose member they are for; None = defaults and restored quotas."""
    tier_of: dict[Entity, str] = {
        member.entity: member.tier_key for member in members if member.counts
    }
    sorted_out: dict[str | None, list[QuotaWrite]] = defaultdict(list)
    for write in writes:
        sorted_out[tier_of.get(write.entity)].append(write)
    return sorted_out


# Words with measured numbers: a status that is written with every sample is a load on the API
# server and on everybody who watches it. So such numbers are renewed with a change of anything
# else, or once a minute.

# rates and sizes with their unit, which may become another one (the exact values of quotas, which
# stand in brackets, are not measured), bytes and seconds; and the brokers for whose clients the
# time of a reading was too short
_MEASURED = re.compile(
    r"(?<![(0-9.])<?[0-9]+(?:\.[0-9]+)?(?: [kMGTP]?B(?:/s)?\b|(?= of [0-9.]+ [kMGTP]?B/s))"
    r"|[0-9]+\.[0-9]+|[0-9]+(?= (?:bytes|s)\b)"
    r"|(?<=What clients send on )[a-z0-9, ]+(?= was not)"
)
_WITH_LOAD = frozenset({"MetricsFresh", "Throttling"})
_SAME_FOR_SECONDS = 60.0


class SteadyWords:
    """When each policy's measured numbers were renewed last."""

    def __init__(self) -> None:
        self._renewed_seconds: dict[str, float] = {}

    def of(
        self,
        policy_key: str,
        verdict: PolicyVerdict,
        previous: Mapping[str, Any],
        *,
        now_seconds: float,
    ) -> PolicyVerdict:
        """The verdict with the words of the `previous` status where only measured numbers differ.

        After a minute, or with any other difference in these words, all of them are new.
        """
        known, wanted = _words_before(previous), _words_of(verdict)
        if wanted == known:
            return verdict
        waited_seconds = now_seconds - self._renewed_seconds.get(policy_key, -_SAME_FOR_SECONDS)
        if not 0.0 <= waited_seconds < _SAME_FOR_SECONDS or _without_measured(
            wanted
        ) != _without_measured(known):
            self._renewed_seconds[policy_key] = now_seconds
            return verdict
        status = verdict.status
        if status.levels:
            same = (
                one.model_copy(update={"because": known[one.level][-1] or None})
                for one in status.levels
            )
            status = status.model_copy(update={"levels": tuple(same)})
        return PolicyVerdict(
            status,
            tuple(
                replace(one, message=known[one.type][-1]) if one.type in known else one
                for one in verdict.verdicts
            ),
        )

    def forget(self, policy_key: str) -> None:
        """The policy is gone."""
        self._renewed_seconds.pop(policy_key, None)


_Words = Mapping[str, tuple[str, ...]]  # the measured ones last


def _words_before(status: Mapping[str, Any]) -> _Words:
    conditions = {
        one["type"]: (one["status"], one["reason"], one["message"])
        for one in status.get("conditions") or ()
        if one["type"] in _WITH_LOAD
    }
    levels = status.get("levels") or ()
    return conditions | {
        one["level"]: (str(one.get("state")), str(one.get("because") or "")) for one in levels
    }


def _words_of(verdict: PolicyVerdict) -> _Words:
    conditions: dict[str, tuple[str, ...]] = {
        one.type: (one.status.value, one.reason.value, one.message)
        for one in verdict.verdicts
        if one.type in _WITH_LOAD
    }
    return conditions | {
        one.level: (one.state, one.because or "") for one in verdict.status.levels or ()
    }


def _without_measured(words: _Words) -> _Words:
    return {key: tuple(_MEASURED.sub("0", text) for text in texts) for key, texts in words.items()}
