"""Which version of the tables this program reads and writes, and the steps that lead older ones to it.

The number stands in every manifest and covers columns, their meaning, the layout of files and the manifest itself. It goes up only where an
older program would misread the new; a step turns the rows of one version into those of the next. There is no way back.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from controller_logic.reasons import Reason
from tidegate.errors import NeedsMending

Step = Callable[[str, pa.Table], pa.Table]  # the table's name and its rows of version n to its rows of version n + 1


class OtherVersion(NeedsMending):
    """The tables are of a version that is not read as it is."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.USAGE_VERSION, message)


@dataclass(frozen=True, slots=True)
class Ladder:
    """The version that is written, and by number of the older version the step from it to the next."""

    current: int
    steps: Mapping[int, Step] = field(default_factory=dict)

    def require_current(self, version: int, *, where: str) -> None:
        """Raises OtherVersion, which says what to do, unless the version is the one that is written."""
        if version > self.current:
            raise OtherVersion(
                f"{where} is of version {version}, written by a newer Tidegate; this one reads version {self.current} and leaves it alone."
                " Use the newer one."
            )
        if version < self.current:
            self.require_way(version, where=where)
            raise OtherVersion(
                f"{where} is of version {version}; this Tidegate reads version {self.current}."
                " The next rollup run brings the tables up to it."
            )

    def climb(self, table: str, rows: pa.Table, *, version: int) -> pa.Table:
        """Rows of an older version, to which there is a way, as rows of the current one."""
        for number in range(version, self.current):
            rows = self.steps[number](table, rows)
        return rows

    def require_way(self, version: int, *, where: str) -> None:
        """Raises OtherVersion where nothing leads from that version to the current one."""
        missing = [number for number in range(version, self.current) if number not in self.steps]
        if missing or version > self.current:
            raise OtherVersion(
                f"{where} is of version {version}, and nothing leads from there to version {self.current}. Use the Tidegate that wrote it,"
                " or roll the time up anew into an empty storage."
            )


LADDER = Ladder(current=1)
