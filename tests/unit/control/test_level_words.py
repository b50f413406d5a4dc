"""What the status says of a throttled level whose beginning this operator has not seen."""

from __future__ import annotations

from tidegate.control.report.status import _level
from tidegate_logic.decision import LevelReport, LevelState
from tidegate_logic.model import Level

AT = "2026-11-23T23:00:00Z"
UNKNOWN = "now unknown, no broker has a reading"
KNOWN = "now broker 2 egress 81.1 of 50 MB/s"


def test_what_was_unknown_right_after_a_restart_is_not_kept_as_the_beginning() -> None:
    one = LevelReport(Level.L3, LevelState.THROTTLED, members=1, below_contract=1, now=UNKNOWN)
    first = _level(one, {"state": "Throttled", "since": AT}, AT)
    assert first.because == UNKNOWN
    later = LevelReport(Level.L3, LevelState.THROTTLED, members=1, below_contract=1, now=KNOWN)
    assert _level(later, first.model_dump(), AT).because == KNOWN
    began = "since 22:59:00 UTC broker 2 egress 99 of 50 MB/s"
    kept = _level(later, {"state": "Throttled", "because": f"{began}; {UNKNOWN}"}, AT).because
    assert kept == f"{began}; {KNOWN}"
