"""Where a record goes: to its target, or to the dead topic with a reason."""

import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum

from tidegate.forwarder.settings import ForwarderSettings
from tidegate_logic.queues.due import next_wait_seconds

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_REFUSED_SECONDS = 30.0
_MOST_KNOWN = 10_000


class DeadReason(StrEnum):
    """Why a record goes to the dead topic; the first word of `tidegate-reason`."""

    NO_TARGET = "NoTarget"
    INVALID_TARGET = "InvalidTarget"
    INTERNAL_TARGET = "InternalTarget"
    OWN_TOPIC = "OwnTopic"
    NOT_ALLOWED = "TargetNotAllowed"
    NOT_FOUND = "TargetNotFound"
    REFUSED = "TargetRefused"
    UNREADABLE_HEADERS = "UnreadableHeaders"
    INVALID_DUE = "InvalidDue"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The topic that a record goes to; with a reason, that is the dead topic.

    `explanation` is the text of the header.
    """

    topic: str
    reason: DeadReason | None = None
    explanation: str = ""


class Targets:
    """Judges targets. What was found out holds until the next listing of topics."""

    def __init__(
        self, settings: ForwarderSettings, now_seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._now_seconds = now_seconds
        self._names = settings.names
        self.dead_topic = settings.names.dead_topic
        self._default = settings.default_target
        self.unreadable = self.dead(
            DeadReason.UNREADABLE_HEADERS,
            "the name of a header is not UTF-8; the headers are left out",
        )
        patterns = "|".join(re.escape(one).replace(r"\*", ".*") for one in settings.allowed)
        self._allowed = re.compile(f"(?:{patterns})")
        self._existing: Collection[str] = ()
        self.hops = dict(sorted(settings.hop_topics.items()))
        self._verdicts: dict[bytes | None, Verdict] = {}
        self._refused: dict[str, tuple[float, str]] = {}

    def is_own(self, topic: str) -> bool:
        """Whether the topic is part of the queue, and so never wrong for a record."""
        return self._names.is_own(topic)

    def is_possible(self, topic: str) -> bool:
        """Whether a record may name this topic as its target, or have it as the default."""
        if topic.startswith("__") or self._names.is_own(topic):
            return False
        return topic == self._default or self._allowed.fullmatch(topic) is not None

    def list(self, topics: Collection[str]) -> None:
        """The topics that exist now."""
        self._existing = topics
        self._verdicts.clear()
        now_seconds = self._now_seconds()
        for topic in [name for name, (until, _) in self._refused.items() if until <= now_seconds]:
            del self._refused[topic]

    def hop(self, due: bytes | None, number: int, now_ms: float) -> Verdict | None:
        """Where a message waits on that has a due time of its own; None = it is due, or has none.

        `number` chooses one of the topics of a delay.
        """
        if due is None or not self.hops:
            return None
        try:
            due_ms = int(due)
        except ValueError:
            return self.dead(DeadReason.INVALID_DUE, "tidegate-due is not a number of milliseconds")
        seconds = next_wait_seconds([*self.hops], due_ms - now_ms)
        if seconds is None:
            return None
        return Verdict(self._names.level_topic(seconds, number % self.hops[seconds]).name)

    def refuse(self, topic: str, why: str) -> None:
        """For half a minute, send nothing to a topic whose brokers refuse every record."""
        self._refused[topic] = (self._now_seconds() + _REFUSED_SECONDS, why)
        self._verdicts.clear()

    def judge(self, target: bytes | None) -> Verdict:
        """The verdict for the header's value; None = no such header."""
        found = self._verdicts.get(target)
        if found is None:
            if len(self._verdicts) >= _MOST_KNOWN:  # producers may name any number
                self._verdicts.clear()
            found = self._verdicts[target] = self._judge(target)
        return found

    def dead(self, reason: DeadReason, explanation: str) -> Verdict:
        """To the dead topic."""
        return Verdict(self.dead_topic, reason, f"{reason}: {explanation}")

    def _judge(self, header: bytes | None) -> Verdict:
        try:
            target = self._default if header is None else header.decode("ascii")
        except UnicodeDecodeError:
            target = ""
        if target is None:
            return self.dead(
                DeadReason.NO_TARGET,
                "the record has no header tidegate-target, and the queue no default target",
            )
        if not _TOPIC_NAME.fullmatch(target) or target in (".", ".."):
            return self.dead(
                DeadReason.INVALID_TARGET, "the value of tidegate-target is not a topic's name"
            )
        if target.startswith("__"):
            return self.dead(DeadReason.INTERNAL_TARGET, f"{target} is an internal topic")
        if self._names.is_own(target):
            return self.dead(DeadReason.OWN_TOPIC, f"{target} is part of this queue")
        if header is not None and target != self._default and not self._allowed.fullmatch(target):
            return self.dead(
                DeadReason.NOT_ALLOWED, f"{target} matches no pattern of the allowed targets"
            )
        if target not in self._existing:
            return self.dead(
                DeadReason.NOT_FOUND,
                f"topic {target} does not exist, or the forwarders' user may not see it",
            )
        if target in self._refused:
            return self.dead(DeadReason.REFUSED, f"topic {target}: {self._refused[target][1]}")
        return Verdict(target)
