"""Which files hold the rows of which windows now. Every reader goes through it, and so does the clean-up.

A window's own manifest is the authority. Where the manifest of its day names that very publication, the day's files are read for it; where
it names another, the window was published again since, and its own files are. So neither kind of manifest is ever changed for the other's
sake.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tidegate.rollup.tables.manifest import Manifest, PublishedFile
from tidegate.rollup.tables.windows import Window


@dataclass(frozen=True, slots=True)
class Part:
    """Files that one manifest names, and the windows whose rows in them are valid.

    `superseded` are windows that have rows in the files which must not be read any more.
    """

    manifest: Manifest
    windows: tuple[Window, ...]
    superseded: tuple[Window, ...] = ()

    @property
    def files(self) -> tuple[PublishedFile, ...]:
        return self.manifest.files


def resolve(manifests: Iterable[Manifest]) -> list[Part]:
    """Every window of one table exactly once, in order of time; retired ones are left out. Days must come with all their windows."""
    own: dict[int, list[Manifest]] = {}
    days: dict[int, Manifest] = {}
    for one in manifests:
        if one.combines:
            days[one.window.start_ms] = one
        elif not one.retired:
            own.setdefault(one.window.day.start_ms, []).append(one)
    return [part for day_ms in sorted(own) for part in _resolve_day(own[day_ms], days.get(day_ms))]


def _resolve_day(own: Sequence[Manifest], day: Manifest | None) -> list[Part]:
    """The windows of one day, those that are valid in the day's files as one part."""
    valid = tuple(sorted(one.window for one in own if is_combined(one, day)))
    parts = [Part(one, (one.window,)) for one in own if one.window not in valid]
    if day is not None and valid:
        parts.append(Part(day, valid, tuple(sorted(set(_windows_in(day)) - set(valid)))))
    return sorted(parts, key=lambda part: part.windows[0])


def is_combined(window: Manifest, day: Manifest | None) -> bool:
    """Whether the day's files are valid for this window."""
    return day is not None and not day.retired and day.made_from.get(window.name) == window.stamp


def _windows_in(day: Manifest) -> Iterator[Window]:
    """The windows that have rows in the day's files."""
    kind = day.kind
    for start_ms in range(day.window.start_ms, day.window.end_ms, kind.published_ms):
        window = Window(start_ms, start_ms + kind.published_ms)
        if f"{kind.name}/{window.name}" in day.made_from:
            yield window
