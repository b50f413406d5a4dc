"""The times that are published at once, their names and where their files lie. A window is a whole hour or a whole day, UTC."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from tidegate.errors import InvalidResource
from tidegate.rollup.schemas import DAY_MS, HOUR_MS, TableKind

_DAY = "%Y-%m-%d"
_HOUR = "%Y-%m-%dT%H"


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """[start, end) in milliseconds since the epoch; an hour or a day, and nothing else."""

    start_ms: int
    end_ms: int

    def __post_init__(self) -> None:
        span_ms = self.end_ms - self.start_ms
        if span_ms not in (HOUR_MS, DAY_MS) or self.start_ms % span_ms:
            raise InvalidResource(f"{self.start_ms}..{self.end_ms} ms is no whole hour or day: usage is published by those only.")

    @property
    def name(self) -> str:
        """`2026-11-22T07` or `2026-11-22`."""
        return _time(self.start_ms).strftime(_HOUR if self.end_ms - self.start_ms == HOUR_MS else _DAY)

    @property
    def day(self) -> "Window":
        """The day that it is in, or is."""
        start_ms = self.start_ms - self.start_ms % DAY_MS
        return Window(start_ms, start_ms + DAY_MS)

    def overlaps(self, start_ms: int | None, end_ms: int | None) -> bool:
        """Whether any of it lies in [start, end); None = no bound."""
        return (end_ms is None or self.start_ms < end_ms) and (start_ms is None or start_ms < self.end_ms)

    def folder(self, kind: TableKind) -> str:
        """`usage_5m/dt=2026-11-22/hour=07`; only tables that have several rows an hour have folders for hours."""
        day = f"{kind.name}/dt={_time(self.start_ms).strftime(_DAY)}"
        is_hour = self.end_ms - self.start_ms == HOUR_MS
        return f"{day}/hour={_time(self.start_ms):%H}" if is_hour and kind.window_ms < HOUR_MS else day


def window_named(name: str) -> Window:
    """The window of such a name. Raises ValueError for another text."""
    is_hour = "T" in name
    start_ms = int(datetime.strptime(name, _HOUR if is_hour else _DAY).replace(tzinfo=UTC).timestamp()) * 1000
    return Window(start_ms, start_ms + (HOUR_MS if is_hour else DAY_MS))


def window_at(kind: TableKind, at_ms: int) -> Window:
    """The window that a row of this time is published in."""
    start_ms = at_ms - at_ms % kind.published_ms
    return Window(start_ms, start_ms + kind.published_ms)


def windows_between(kind: TableKind, start_ms: int, end_ms: int) -> Iterator[Window]:
    """Every window that has any of its time in [start, end), in order."""
    at_ms = start_ms - start_ms % kind.published_ms
    while at_ms < end_ms:
        yield Window(at_ms, at_ms + kind.published_ms)
        at_ms += kind.published_ms


def time_words(at_ms: int) -> str:
    """`2026-11-22T07:05:00Z`."""
    return _time(at_ms).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC)
