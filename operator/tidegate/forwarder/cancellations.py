"""Which messages were cancelled: the ids in the queue's topic `cancelled`.

A message with an id is sent only once everything is known that was written there until a second
before it was due. So a cancellation that is a second early counts, whatever the load. While that
topic cannot be read, messages with an id wait, and all others go on.

An id is kept as a hash of 64 bits for as long as the topic has it. A message whose id has the hash
of another one that is cancelled would not be sent either; with a million ids, the chance of that is
one in 18 trillion for each message.
"""

import threading
import time
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tidegate.forwarder.settings import ForwarderSettings, any_client_settings, report

log = structlog.get_logger(__name__)

NOTICE_MS = 1000
"""How long before its due time a message can be cancelled for certain."""
MOST_IDS = 4_000_000
_IDS_IN_AN_ARRAY = 50_000
_ASK_SECONDS = 0.25
_WAIT_SECONDS = 0.05
_READ_AT_ONCE = 1000
_TIMEOUT_SECONDS = 5.0
_END_SECONDS = 10.0


class Cancellations(threading.Thread):
    """Reads the topic until `end`. `now_ms` is the brokers' time, None while it is not known.

    The newest ids are in a set, older ones in sorted arrays, a tenth of its size, of as many ids
    each. An array is forgotten when retention has deleted its last record, and the oldest one when
    there are more than `MOST_IDS`.
    """

    def __init__(self, settings: ForwarderSettings, now_ms: Callable[[], float | None]) -> None:
        super().__init__(name="cancellations", daemon=True)
        self._topic = settings.names.cancelled_topic
        self._now_ms = now_ms
        self._known_to_ms = float("-inf")
        self._new: set[int] = set()
        self._sorted: deque[tuple[int, array[int]]] = deque()  # each with its last offset
        self._position = 0
        self.failure: BaseException | None = None
        """The error that ended the thread: nothing new is known any more. None = there is none."""
        self._ending = threading.Event()
        self._admin = AdminClient(any_client_settings(settings))
        self._consumer = Consumer(
            {
                **any_client_settings(settings),
                "enable.partition.eof": True,
                "group.id": settings.names.group,  # nothing is committed
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
                "fetch.queue.backoff.ms": 10,
                "queued.max.messages.kbytes": 4096,
            }
        )
        self._consumer.assign([TopicPartition(self._topic, 0, 0)])

    def is_known(self, due_ms: float) -> bool:
        """Whether everything is known that counts for a message that is due then."""
        return self._known_to_ms >= due_ms - NOTICE_MS

    def has(self, key: bytes) -> bool:
        """Whether the message with this id was cancelled."""
        wanted = _hash(key)
        return wanted in self._new or any(_is_in(ids, wanted) for _, ids in tuple(self._sorted))

    def end(self) -> None:
        """Read no more."""
        self._ending.set()
        if self.is_alive():
            self.join(_END_SECONDS)

    def run(self) -> None:
        """Read and find out how far is read, until `end` or an error that is not expected."""
        asked_at = float("-inf")
        try:
            while not self._ending.is_set():
                for message in self._consumer.consume(_READ_AT_ONCE, _WAIT_SECONDS):
                    self._take(message)
                if time.monotonic() - asked_at >= _ASK_SECONDS:
                    asked_at = time.monotonic()
                    self._ask()
        except Exception as error:
            self.failure = error
        finally:
            self._consumer.close()

    def _take(self, message: Any) -> None:
        if (error := message.error()) is not None:
            if error.code() == KafkaError._PARTITION_EOF:  # also behind the end of a transaction
                self._position = message.offset()
            else:
                report(error)
            return
        offset, key, value = message.offset(), message.key(), message.value()
        self._position = offset + 1
        if key is None:
            return
        wanted = _hash(key)
        if value is None:
            self._forget(wanted)
            return
        self._new.add(wanted)
        if len(self._new) >= _IDS_IN_AN_ARRAY:
            self._sorted.append((offset, array("Q", sorted(self._new))))
            self._new = set()
            if len(self._sorted) * _IDS_IN_AN_ARRAY > MOST_IDS:
                self._sorted.popleft()
                log.error("too many cancelled ids: the oldest are forgotten", most=MOST_IDS)

    def _forget(self, wanted: int) -> None:
        """The message is wanted after all. Another thread may be reading: arrays are replaced."""
        self._new.discard(wanted)
        for number, (offset, ids) in enumerate(self._sorted):
            if _is_in(ids, wanted):
                left = array("Q", (one for one in ids if one != wanted))
                self._sorted[number] = offset, left

    def _ask(self) -> None:
        """Ask for the topic's ends: what was written until now lies before its end.

        That is the end of everything, not of what is committed: while another transaction is open,
        nobody can read what was written after its begin.
        """
        now_ms = self._now_ms()
        try:
            begin, end = self._offset(OffsetSpec.earliest()), self._offset(OffsetSpec.latest())
        except KafkaException as error:
            report(error.args[0])
            return
        except TimeoutError:  # librdkafka's own limit did not end it; it is asked again
            return
        while self._sorted and self._sorted[0][0] < begin:
            self._sorted.popleft()
        # beyond the end is a topic that was made again and is not read from its start yet
        if now_ms is not None and self._position == end:
            self._known_to_ms = now_ms

    def _offset(self, spec: OffsetSpec) -> int:
        place = TopicPartition(self._topic, 0)
        asked = self._admin.list_offsets({place: spec}, request_timeout=_TIMEOUT_SECONDS)
        return int(asked[place].result(2 * _TIMEOUT_SECONDS).offset)


def _hash(key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big")


def _is_in(ids: "array[int]", wanted: int) -> bool:
    at = bisect_left(ids, wanted)
    return at < len(ids) and ids[at] == wanted
