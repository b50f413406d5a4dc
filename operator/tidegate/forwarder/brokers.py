"""What a forwarder asks brokers about: which topics there are, and what time it is.

Brokers tell their time only with records. So every few seconds a record without a value is written
to the control topic, under one key for all forwarders, which compaction removes; the answer has its
append time. librdkafka measures how long it took. That bounds the distance of the clocks from both
sides, and the best of some probes is used. They are acknowledged by the leader alone, because
waiting for replicas would only widen the bound.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaException, Producer

from tidegate.errors import Unreachable
from tidegate.forwarder.settings import ForwarderSettings, any_client_settings
from tidegate_logic.queues.due import ClockOffset
from tidegate_logic.reasons import Reason

_CLOCK_KEY = b"clock"
_LIST_TIMEOUT_SECONDS = 10.0
_PROBE_TIMEOUT_MS = 5000


def monotonic_ms() -> float:
    """This process' clock. It does not jump, so nobody who sets the machine's time disturbs it."""
    return time.monotonic() * 1000


def wall_ms() -> float:
    """The machine's time, which is only compared with the brokers'."""
    return time.time() * 1000


@dataclass(slots=True)
class _Probe:
    sent_ms: float
    queued_ms: float = float("inf")


class Brokers:
    """Lists topics and measures the brokers' clock. One thread uses it; any may read the time."""

    def __init__(
        self,
        settings: ForwarderSettings,
        *,
        own_ms: Callable[[], float] = monotonic_ms,
        machine_ms: Callable[[], float] = wall_ms,
    ) -> None:
        self._control_topic = settings.names.control_topic
        self._own_ms = own_ms
        self._machine_ms = machine_ms
        self._offset = ClockOffset()
        self._problem = "it was not asked yet"
        self.clock_ms = 0
        """How far the machine's clock is ahead of the brokers', at the last probe."""
        self._producer = Producer(
            {
                **any_client_settings(settings),
                "acks": 1,
                "linger.ms": 0,
                "message.timeout.ms": _PROBE_TIMEOUT_MS,
            }
        )

    def now_ms(self) -> float | None:
        """The brokers' time, or a little earlier; None while it was never measured."""
        own = self._own_ms()
        most = self._offset.most_ms(own)
        return None if most is None else own - most

    @property
    def clock_problem(self) -> str:
        """Why the last probe failed; empty if it did not."""
        return self._problem

    def topics(self) -> dict[str, frozenset[int]]:
        """All topics that this user may see, and the brokers that lead each. Raises Unreachable."""
        try:
            listed: Mapping[str, Any] = self._producer.list_topics(
                timeout=_LIST_TIMEOUT_SECONDS
            ).topics
        except KafkaException as error:
            raise Unreachable(
                Reason.BROKERS_UNREACHABLE,
                f"The brokers did not list their topics ({error.args[0].str()}); what is known of "
                "them is used until they do.",
            ) from error
        return {
            name: frozenset(one.leader for one in topic.partitions.values())
            for name, topic in listed.items()
            if topic.error is None
        }

    def probe(self) -> None:
        """Send a probe. Its answer counts once `wait` has received it."""
        probe = _Probe(self._own_ms())
        try:
            self._producer.produce(
                self._control_topic,
                key=_CLOCK_KEY,
                value=None,
                on_delivery=lambda error, message: self._answered(error, message, probe),
            )
        except (BufferError, KafkaException) as error:
            self._problem = str(error)
        # librdkafka's time begins inside of `produce`: before now, so the bound holds
        probe.queued_ms = self._own_ms()

    def wait(self, seconds: float) -> None:
        """Receive answers for so long."""
        self._producer.poll(seconds)

    def close(self) -> None:
        """Forget probes that were not answered."""
        self._producer.purge()
        self._producer.flush(1)

    def _answered(self, error: Any, message: Any, probe: _Probe) -> None:
        if error is not None:
            self._problem = f"topic {self._control_topic}: {error.str()}"
            return
        kind, append_ms = message.timestamp()
        latency_seconds = message.latency()
        if kind != TIMESTAMP_LOG_APPEND_TIME or latency_seconds is None:
            self._problem = (
                f"topic {self._control_topic} does not have message.timestamp.type=LogAppendTime"
            )
            return
        self._offset.add(probe.sent_ms, probe.queued_ms + latency_seconds * 1000, append_ms)
        self._problem = ""
        now_ms = self.now_ms()
        if now_ms is not None:
            self.clock_ms = round(self._machine_ms() - now_ms)
