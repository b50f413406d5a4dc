"""Which topics of a DelayQueue are created, corrected, drained and deleted.

A level topic is the queue's if it was forwarded for the queue, or has the settings that only a
queue's topics have. One that is empty is adopted. Any other is taken by someone else and left
alone, whatever the spec says.

A topic that is not wanted any more is drained: it is forwarded like the others until nothing waits
in it, and deleted when nothing was written to it for a while after that. What is unknown changes
nothing: a topic whose settings, offsets or position could not be read stays as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

TIMESTAMP_TYPE, RETENTION_MS = "message.timestamp.type", "retention.ms"
# what tells a queue's topics from others; nobody else keeps records by time of arrival, with a
# bound of time alone
_MARKS = {
    TIMESTAMP_TYPE: "LogAppendTime",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
}
QUIET_SECONDS = 60.0
_MARGIN_SECONDS = 60.0  # between the age of the oldest waiting record and a shorter retention


@dataclass(frozen=True, slots=True, order=True)
class Level:
    """A topic of one delay; `number` tells topics of one delay apart."""

    seconds: int
    number: int


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A level topic that exists.

    `settings` are those of the topic itself, None = unknown. `begin` and `end` are its first and
    next offset, None = unknown. `position` is the next offset to forward, None = there is none;
    `position_known` False = it could not be read, or was written by a newer version.
    `late_seconds` is how long the oldest waiting record has been due, 0 = it is not, None =
    unknown.
    """

    partitions: int = 1
    settings: Mapping[str, str] | None = None
    begin: int | None = None
    end: int | None = None
    position: int | None = None
    position_known: bool = False
    late_seconds: float | None = None

    @property
    def waiting(self) -> int | None:
        """Records that were not forwarded yet; None = unknown."""
        if self.begin is None or self.end is None or not self.position_known:
            return None
        if self.position is None:
            return self.end - self.begin
        if self.position > self.end:
            return None  # the position is of an earlier topic of this name
        return self.end - max(self.position, self.begin)

    @property
    def lost(self) -> int:
        """Records that Kafka deleted before they were forwarded, as far as is known.

        Where nobody has forwarded any yet, as many as a forwarder will count when it begins.
        """
        if self.begin is None or not self.position_known:
            return 0
        return max(0, self.begin - (self.position or 0))


@dataclass(frozen=True, slots=True)
class WantedLevels:
    """What the spec asks for: topics by delay in seconds."""

    delays: Mapping[int, int]
    grace_seconds: int
    deleting: bool = False
    keeps_topics: bool = False

    def has(self, level: Level) -> bool:
        """Whether the topic is wanted."""
        return not self.deleting and level.number < self.delays.get(level.seconds, 0)

    def settings(self, level: Level) -> dict[str, str]:
        """The settings of the topic."""
        return {**_MARKS, RETENTION_MS: str((level.seconds + self.grace_seconds) * 1000)}


@dataclass(frozen=True, slots=True)
class Quiet:
    """Since when (seconds, any clock) nothing waits in a topic with this next offset."""

    end: int
    since_seconds: float


@dataclass(frozen=True, slots=True)
class LevelDecision:
    """What is done now. `quiet` is to be remembered; without it, deletions only come later.

    `corrections` are settings to set. `kept` are topics of the queue that are unwanted and not
    deleted yet. `taken` are topics of someone else, each with why. `unknown` could not be read.
    `is_done`: the queue is being deleted, and nothing is left to wait for.
    """

    create: tuple[Level, ...] = ()
    corrections: Mapping[Level, Mapping[str, str]] = field(default_factory=dict)
    draining: tuple[Level, ...] = ()
    delete: tuple[Level, ...] = ()
    taken: Mapping[Level, str] = field(default_factory=dict)
    unknown: tuple[Level, ...] = ()
    quiet: Mapping[Level, Quiet] = field(default_factory=dict)
    is_done: bool = False


def decide_levels(
    wanted: WantedLevels,
    found: Mapping[Level, FoundTopic] | None,
    quiet: Mapping[Level, Quiet],
    *,
    now_seconds: float,
    quiet_seconds: float = QUIET_SECONDS,
) -> LevelDecision:
    """What to do about the topics `found`; None = they could not be listed, so nothing is done.

    `now_seconds` is of the same clock as `quiet`, that of the last decision. A topic is deleted
    when nothing has waited in it, and nothing was written to it, for `quiet_seconds`.
    """
    if found is None:
        return LevelDecision(quiet=quiet)
    if wanted.deleting and wanted.keeps_topics:
        return LevelDecision(is_done=True)
    kinds = {level: _ownership(topic) for level, topic in found.items()}
    ours = {level: found[level] for level, why in kinds.items() if why == ""}
    taken = {level: why for level, why in kinds.items() if why and wanted.has(level)}
    adopted = {
        level: topic
        for level, topic in found.items()
        if level not in ours and wanted.has(level) and kinds[level] is not None
        if _is_empty(topic) and topic.partitions == 1
    }
    unwanted = {level: topic for level, topic in ours.items() if not wanted.has(level)}
    still_quiet = {
        level: was
        for level, topic in sorted(unwanted.items())
        if (was := _quiet(topic, quiet.get(level), now_seconds)) is not None
    }
    delete = tuple(
        level
        for level, was in still_quiet.items()
        if now_seconds - was.since_seconds >= quiet_seconds
    )
    unknown = tuple(sorted(level for level, why in kinds.items() if why is None))
    return LevelDecision(
        create=_missing(wanted, found),
        corrections={
            level: wrong
            for level, topic in sorted({**ours, **adopted}.items())
            if level not in delete and (wrong := _wrong_settings(wanted, level, topic))
        },
        draining=tuple(level for level in sorted(unwanted) if level not in delete),
        delete=delete,
        taken={level: why for level, why in sorted(taken.items()) if level not in adopted},
        unknown=unknown,
        quiet=still_quiet,
        is_done=wanted.deleting and not unwanted and not unknown,
    )


def _ownership(topic: FoundTopic) -> str | None:
    """Empty: the topic is the queue's. None: that is unknown. Else: why it is someone else's."""
    if topic.partitions != 1:
        return f"it has {topic.partitions} partitions, and a queue's topics have one"
    if topic.position_known and topic.position is not None:
        return ""
    if topic.settings is None or not topic.position_known:
        return None
    other = {name: topic.settings.get(name) for name in _MARKS}
    wrong = [name for name, value in _MARKS.items() if other[name] != value]
    if not wrong:
        return ""
    if topic.begin is None or topic.end is None:
        return None
    shown = ", ".join(f"{name}={other[name] or 'unset'}" for name in wrong)
    return f"it was never forwarded for this queue and has {shown}"


def _is_empty(topic: FoundTopic) -> bool:
    """Whether nothing was ever written to it, or nothing is left."""
    return topic.begin is not None and topic.begin == topic.end


def _missing(wanted: WantedLevels, found: Mapping[Level, FoundTopic]) -> tuple[Level, ...]:
    if wanted.deleting:
        return ()
    levels = (
        Level(seconds, number)
        for seconds, count in wanted.delays.items()
        for number in range(count)
    )
    return tuple(sorted(level for level in levels if level not in found))


def _quiet(topic: FoundTopic, before: Quiet | None, now_seconds: float) -> Quiet | None:
    if topic.waiting != 0 or topic.end is None:
        return None
    if before is not None and before.end == topic.end and before.since_seconds <= now_seconds:
        return before
    return Quiet(topic.end, now_seconds)


def _wrong_settings(wanted: WantedLevels, level: Level, topic: FoundTopic) -> Mapping[str, str]:
    if topic.settings is None:
        return {}
    wrong = {
        name: value
        for name, value in wanted.settings(level).items()
        if topic.settings.get(name) != value
    }
    if RETENTION_MS in wrong and not _may_keep_for(int(wrong[RETENTION_MS]), level, topic):
        del wrong[RETENTION_MS]
    return wrong


def _may_keep_for(retention_ms: int, level: Level, topic: FoundTopic) -> bool:
    """Whether this retention deletes nothing that waits: a shorter one waits until it is so."""
    now_ms = topic.settings.get(RETENTION_MS) if topic.settings is not None else None
    if now_ms is None or (now_ms.isdecimal() and int(now_ms) <= retention_ms):
        return True
    if topic.waiting == 0:
        return True
    if topic.waiting is None or topic.late_seconds is None:
        return False
    age_seconds = level.seconds + topic.late_seconds
    return (age_seconds + _MARGIN_SECONDS) * 1000 < retention_ms


def first_claim(claims: Mapping[str, int]) -> str | None:
    """The uid of the queue that has a prefix: that with the lowest offset. None = no one's."""
    return min(claims, key=lambda uid: claims[uid], default=None)
