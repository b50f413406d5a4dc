"""What a forwarder writes beside a level topic's committed offset.

It is how the operator learns what only a forwarder knows, and how the next owner learns whose open
transaction may be in its way.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate.errors import ForeignContent
from tidegate_logic.reasons import Reason

VERSION = 1
LONGEST_BYTES = 4096
"""Brokers refuse longer metadata by default (`offset.metadata.max.bytes`)."""
_LONGEST_ERROR = 250  # characters, each of at most 12 bytes in JSON's spelling


@dataclass(frozen=True, slots=True)
class PositionNote:
    """The text beside a committed offset, version 1.

    `owner` is the member that forwards the topic; empty after it has released it. `lost` counts
    records that retention deleted before they were read, `dead` those sent to the dead topic, both
    since the topic was first forwarded. `late_ms` is how late the last records were sent after
    their due time: median, 99th percentile and maximum. `clock_ms` is how far the forwarder's clock
    is ahead of the brokers'. `error` is why the topic stands still, else empty.
    """

    owner: str = ""
    lost: int = 0
    dead: int = 0
    late_ms: tuple[int, int, int] = (0, 0, 0)
    clock_ms: int = 0
    error: str = ""

    def text(self) -> str:
        """JSON of at most `LONGEST_BYTES`; a longer error is cut."""
        fields = {
            "v": VERSION,
            "owner": self.owner,
            "lost": self.lost,
            "late_ms": self.late_ms,
            "clock_ms": self.clock_ms,
            "error": self.error[:_LONGEST_ERROR],
            "dead": self.dead,
        }
        return json.dumps(fields, separators=(",", ":"))

    def with_error(self, error: str) -> "PositionNote":
        """The same note with another error; empty = none."""
        return replace(self, error=error)


def parse_note(text: str | None) -> PositionNote:
    """The note in this text. No text is the note of a topic that was never forwarded.

    Unknown fields are ignored. Raises ForeignContent for a newer version, and for anything else
    than such a note: another program then commits in the forwarders' group.
    """
    if not text:
        return PositionNote()
    try:
        return _note(json.loads(text))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ForeignContent(
            f"The metadata of the committed offset is not Tidegate's: {text[:80]!r}. Find the "
            "program that commits in this group; the topic is left alone until then."
        ) from error


def _note(fields: Mapping[str, Any]) -> PositionNote:
    version = int(fields["v"])
    if version > VERSION:
        raise ForeignContent(
            f"The position was written by a newer Tidegate (version {version}, known is "
            f"{VERSION}). The topic is left to it; update this forwarder.",
            Reason.NEWER_VERSION,
        )
    p50, p99, worst = (int(part) for part in fields.get("late_ms", (0, 0, 0)))
    return PositionNote(
        owner=str(fields.get("owner", "")),
        lost=int(fields.get("lost", 0)),
        dead=int(fields.get("dead", 0)),
        late_ms=(p50, p99, worst),
        clock_ms=int(fields.get("clock_ms", 0)),
        error=str(fields.get("error", "")),
    )
