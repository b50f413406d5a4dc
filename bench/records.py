"""Figures on disk, one file a part, so that parts can be measured one at a time and the page still shows them all.

The files are committed: whoever measures one part elsewhere adds to what others measured, and every figure keeps its machine.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from bench.results import Figure
from lab.machine import describe_machine


@dataclass(frozen=True, slots=True)
class Record:
    """The figures of one part: when they were taken and on what machine, its load average (1 min) just before, and how much of the
    processors' time the machine's host gave to others meanwhile (None = not noted)."""

    part: str
    day: str
    load: float
    figures: list[Figure] = field(default_factory=list)
    stolen_percent: float | None = None
    machine: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def begin(cls, part: str) -> Self:
        """A record without figures yet, of this moment and machine."""
        return cls(part, datetime.now(UTC).date().isoformat(), round(os.getloadavg()[0], 1), machine=describe_machine())


class Records:
    """The newest record of each part, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, record: Record) -> None:
        """Replace the part's record."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._path(record.part).write_text(json.dumps(asdict(record), indent=2) + "\n", encoding="utf-8")

    def read(self, part: str) -> Record | None:
        """The part's record; None when it was never measured."""
        path = self._path(part)
        if not path.exists():
            return None
        known = json.loads(path.read_text(encoding="utf-8"))
        return Record(**{**known, "figures": [Figure(**figure) for figure in known["figures"]]})

    def _path(self, part: str) -> Path:
        return self._folder / f"{part}.json"
