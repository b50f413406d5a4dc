"""What a load client tells of each second: the rows of its JSON-lines file, and the meter that writes them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO


@dataclass
class LoadRow:
    """One client in one second of the wall clock; the first and the last second of a run are not whole.

    `moved_bytes` were acknowledged (produce) or received (consume). `throttle_milliseconds` is the longest delay a broker told it.
    `failed` counts messages that were given up, `errors` errors of the connection.
    """

    unix_seconds: int
    client: str
    moved_bytes: int = 0
    messages: int = 0
    throttle_milliseconds: int = 0
    failed: int = 0
    errors: int = 0
    bytes_by_partition: dict[int, int] = field(default_factory=dict)


class Meter:
    """Gathers what happens within a second and writes a row when the second is over, also for a second without any bytes."""

    def __init__(self, client: str, out: TextIO, *, unix_seconds: float) -> None:
        self._out = out
        self._row = LoadRow(int(unix_seconds), client)
        self.total_bytes = 0

    def moved(self, partition: int, moved_bytes: int) -> None:
        """One message was acknowledged or received."""
        self._row.moved_bytes += moved_bytes
        self._row.messages += 1
        self._row.bytes_by_partition[partition] = self._row.bytes_by_partition.get(partition, 0) + moved_bytes
        self.total_bytes += moved_bytes

    def throttled(self, milliseconds: int) -> None:
        """A broker answered with this throttle time."""
        self._row.throttle_milliseconds = max(self._row.throttle_milliseconds, milliseconds)

    def failed(self) -> None:
        """One message was given up."""
        self._row.failed += 1

    def error(self) -> None:
        """The connection or a fetch had an error."""
        self._row.errors += 1

    def tick(self, unix_seconds: float) -> None:
        """Write the rows of all seconds before this moment."""
        while self._row.unix_seconds < int(unix_seconds):
            self._write()
            self._row = LoadRow(self._row.unix_seconds + 1, self._row.client)

    def close(self, unix_seconds: float) -> None:
        """Write what is left, including the second that has just begun."""
        self.tick(unix_seconds)
        self._write()

    def _write(self) -> None:
        self._out.write(json.dumps(asdict(self._row)) + "\n")
        self._out.flush()


def read_rows(path: Path) -> list[LoadRow]:
    """The rows written so far, oldest first; a last line still being written is left out; none when the file is not there yet."""
    try:
        lines = path.read_text().split("\n")[:-1]
    except FileNotFoundError:
        return []
    return [_row(json.loads(line)) for line in lines]


def _row(fields: dict[str, Any]) -> LoadRow:
    row = LoadRow(**fields)
    row.bytes_by_partition = {int(partition): moved for partition, moved in row.bytes_by_partition.items()}
    return row
