"""The audit trail: append-only JSON lines of what was decided, on which readings, what was written, and what it did.

Called beside each pass. It never fails one: what it cannot write is counted and said in the log. `audit_story.py` says what is worth a
line, `audit_record.py` what a line holds, `audit_sink.py` where it goes; `tidegate audit` reads it.
"""

import json
import threading

import structlog

from controller_logic.decision import Decision
from controller_logic.readings import Readings
from tidegate.control.apply import Applied
from tidegate.control.audit_record import Line, Place
from tidegate.control.audit_sink import AuditDesk, Nowhere, sink_at
from tidegate.control.audit_story import AuditStory, Happened
from tidegate.telemetry import Telemetry

log = structlog.get_logger(__name__)


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
        try:
            lines = story.lines(Place(policy_key, cluster_id, now_seconds), Happened(decision, applied, readings))
            if lines:
                self._desk.put([_text(line) for line in lines])
        except Exception:
            log.exception("Audit lines abandoned", policy=policy_key)

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


def _text(line: Line) -> str:
    """One line of JSON; an infinity that slipped through would be an error here, not a line that nobody can read."""
    return json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
