"""The audit trail: append-only JSON lines of what was decided, on which readings, what was written, and what it did.

Called after each pass, which it neither fails nor holds up: what it cannot write is counted and said in the log. `audit_story.py` says what
is worth a line, `audit_record.py` what a line holds, `audit_sink.py` where it goes; `tidegate audit` reads it.
"""

import json
import threading

import structlog

from controller_logic.decision import Decision
from controller_logic.model import Readings
from tidegate.control.apply import Applied
from tidegate.control.audit.sink import AuditDesk, Nowhere, sink_at
from tidegate.control.audit_record import Place
from tidegate.control.audit_story import AuditStory, Happened
from tidegate.telemetry import Telemetry

log = structlog.get_logger(__name__)


# an infinity that slipped through is an error, not a line that nobody can read
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class AuditTrail:
    """The trail of one process, of all its policies. Each policy has one caller at a time."""

    def __init__(self, desk: AuditDesk) -> None:
        self._desk = desk
        self._lock = threading.Lock()
        self._stories: dict[str, AuditStory] = {}

    def note(
        self,
        policy_key: str,
        cluster_id: str | None,
        *,
        decision: Decision,
        applied: Applied,
        readings: Readings | None,
        now_seconds: float,
    ) -> None:
        """Note what one decision led to. A pass that wrote and looked again notes each of its decisions, in order."""
        with self._lock:
            story = self._stories.setdefault(policy_key, AuditStory())
        place, happened = Place(policy_key, cluster_id, now_seconds), Happened(decision, applied, readings)
        self._desk.put(lambda: _texts(story, place, happened))

    def forget(self, policy_key: str) -> None:
        """The policy is another replica's, or gone: what was told of it is not told again here."""
        with self._lock:
            self._stories.pop(policy_key, None)

    def close(self) -> None:
        """Deliver what waits."""
        self._desk.close()


def open_audit_trail(place: str, telemetry: Telemetry) -> AuditTrail:
    """The trail of a process: `place` is a file's path, or `-` for standard output."""

    def count(result: str, lines: int) -> None:
        telemetry.audit_lines.labels(result).inc(lines)

    return AuditTrail(AuditDesk(sink_at(place), place, count=count))


def unread_trail() -> AuditTrail:
    """A trail that nobody keeps, for a process that has no audit file and no standard output: a test."""
    return AuditTrail(AuditDesk(Nowhere(), "nowhere", count=lambda *_: None, beside=False))


def _texts(story: AuditStory, place: Place, happened: Happened) -> list[str]:
    """The lines as JSON; none, and an error in the log, where there is a bug in them."""
    try:
        return [_ENCODER.encode(line) for line in story.lines(place, happened)]
    except Exception:
        log.exception("Audit lines abandoned", policy=place.policy_key)
        return []
