"""Posts Events about transitions, never at the cost of the control pass.

Each is posted once for a while, and short enough for the server. An Event that cannot be posted is
logged, and for a while none is tried, so that an unreachable API server costs a pass one time limit
and not one per object.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

import structlog

from tidegate.errors import RetryLater, TidegateError
from tidegate.kube.api import Event, EventType, Kubernetes, ObjectRef
from tidegate.tracing import current_pass

_log = structlog.get_logger(__name__)

MAX_NOTE_BYTES = 1024
SAME_EVENT_SECONDS = 600.0
PAUSE_AFTER_FAILURE_SECONDS = 30.0
REMEMBERED_EVENTS = 10_000

_Key = tuple[str, str, str]


class EventRecorder:
    """Posts Events for one process; safe for several threads."""

    def __init__(
        self, kubernetes: Kubernetes, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._kubernetes = kubernetes
        self._monotonic = monotonic
        self._posted_at: OrderedDict[_Key, float] = OrderedDict()
        self._paused_until = float("-inf")
        self._lock = threading.Lock()

    def record(
        self, regarding: ObjectRef, event_type: EventType, *, reason: str, message: str
    ) -> bool:
        """Post the Event and return whether it was posted; a failure of Kubernetes raises nothing.

        The same reason and message for the same object are not posted again within 600 s. A message
        of more than 1024 bytes is cut. It has the id of the pass that this thread works for.
        """
        key = (regarding.uid, reason, message)
        with self._lock:
            if self._is_repeated(key):
                return False
            if self._monotonic() < self._paused_until:
                return False
        event = Event(regarding, event_type, str(reason), _cut(message), current_pass())
        return self._post(event, key)

    def _is_repeated(self, key: _Key) -> bool:
        posted_at = self._posted_at.get(key)
        return posted_at is not None and self._monotonic() - posted_at < SAME_EVENT_SECONDS

    def _post(self, event: Event, key: _Key) -> bool:
        try:
            self._kubernetes.create_event(event)
        except TidegateError as error:
            self._note_failure(event, error)
            return False
        with self._lock:
            self._posted_at[key] = self._monotonic()
            self._posted_at.move_to_end(key)
            while len(self._posted_at) > REMEMBERED_EVENTS:
                self._posted_at.popitem(last=False)
        return True

    def _note_failure(self, event: Event, error: TidegateError) -> None:
        with self._lock:
            if isinstance(error, RetryLater):
                self._paused_until = self._monotonic() + PAUSE_AFTER_FAILURE_SECONDS
        _log.warning(
            "Event could not be posted",
            object=str(event.regarding),
            reason=event.reason,
            note=event.note,
            error=error.message,
        )


def _cut(message: str) -> str:
    encoded = message.encode()
    if len(encoded) <= MAX_NOTE_BYTES:
        return message
    return encoded[: MAX_NOTE_BYTES - len("…".encode())].decode(errors="ignore") + "…"
