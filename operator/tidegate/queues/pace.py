"""What the operator tells a queue's forwarders about waiting, as it is in the control topic.

It is the value of one key, `pace`. A removed key means that nothing waits.
"""

import json

from tidegate_logic.queues.shift import Pace, Shift

PACE_KEY = b"pace"
_VERSION = 1


def pace_text(pace: Pace) -> bytes:
    """JSON, version 1."""
    fields = {
        "v": _VERSION,
        "over": sorted(pace.over),
        "latest_seconds": pace.shift.latest_seconds,
        "bytes_per_second": pace.shift.bytes_per_second,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def parse_pace(text: bytes | None) -> Pace | None:
    """What the text says; None for no text, a newer version, and anything else: nothing waits."""
    try:
        fields = json.loads(text or b"")
        if int(fields["v"]) != _VERSION:
            return None
        shift = Shift(int(fields["latest_seconds"]), int(fields["bytes_per_second"]))
        if shift.latest_seconds <= 0 or shift.bytes_per_second <= 0:
            return None
        return Pace(shift, frozenset(int(broker) for broker in fields["over"]))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
