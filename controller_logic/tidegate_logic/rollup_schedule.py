"""Which window of usage is to be computed next: the oldest gap first, one window at a time.

What has just failed is not tried again at once. Times are milliseconds since the epoch, windows
half-open and aligned to midnight UTC. What is published is known from what finished Jobs wrote
down, and from Jobs that succeeded and are still there; nothing is remembered in between, so a
restarted operator goes on where the last one was. A gap that is older than a week, or than 168
windows, is not filled by itself any more, nor one that is empty: time of which Prometheus has
nothing, so that nothing can fill it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

SETTLE_MS = 180_000  # scrapes and remote writes come late
LONGEST_BACKFILL_MS = 7 * 86_400_000
MOST_WINDOWS = 168
FIRST_PAUSE_SECONDS = 60.0
LONGEST_PAUSE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """A span of time, from `start_ms` to just before `end_ms`."""

    start_ms: int
    end_ms: int


class JobState(StrEnum):
    ACTIVE = "Active"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class WindowJob:
    """One Job as it was found. `generation` is that of the policy it was made for.

    `finished_at_seconds` None = it has not ended. `message` says why it failed, in Kubernetes'
    words.
    """

    name: str
    window: Window
    state: JobState
    generation: int = 0
    finished_at_seconds: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A window every `every_ms`, from `since_ms` on. `generation` is the policy's now."""

    every_ms: int
    since_ms: int
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be done, and how far things are.

    `start` is the window to make a Job for now; `obsolete` are failed Jobs made for an older spec,
    to be deleted first. `missing` are all windows that are over and not published, oldest first,
    `failed` those of them whose Job failed, `active` what is computed now. `published_until_ms` is
    where the first gap begins, None before the policy's first window is over; `empty` are windows
    before that or later of which there is nothing to publish; `lost_ms` is how much before all
    windows is missing for good.
    """

    start: Window | None = None
    obsolete: tuple[WindowJob, ...] = ()
    missing: tuple[Window, ...] = ()
    failed: tuple[WindowJob, ...] = ()
    active: Window | None = None
    published_until_ms: int | None = None
    lost_ms: int = 0
    empty: tuple[Window, ...] = ()


def due(
    wanted: Wanted,
    published: Sequence[Window],
    jobs: Iterable[WindowJob],
    *,
    now_ms: int,
    empty: Sequence[Window] = (),
) -> Due:
    """What to do at `now_ms`. `published` and `empty` may overlap and lie in any order."""
    known = list(jobs)
    windows = _windows(wanted, now_ms)
    done = merged(
        [*published, *empty, *(job.window for job in known if job.state is JobState.SUCCEEDED)]
    )
    missing = tuple(window for window in windows if not _covered(window, done))
    in_tables, nothing = merged(published), merged(empty)
    left_empty = tuple(
        window
        for window in windows
        if _covered(window, nothing) and not _covered(window, in_tables)
    )
    of_old_spec = tuple(
        job for job in known if job.state is JobState.FAILED and job.generation != wanted.generation
    )
    failed = tuple(sorted(_failed(known, missing, wanted), key=lambda job: job.window))
    active = next((job.window for job in known if job.state is JobState.ACTIVE), None)
    blocked = {job.window for job in (*failed, *of_old_spec)}
    start = next((window for window in missing if window not in blocked), None)
    if active is not None or _pausing(known, wanted, now_seconds=now_ms / 1000):
        start = None
    if not windows:
        return Due(obsolete=of_old_spec, active=active)
    until_ms = missing[0].start_ms if missing else windows[-1].end_ms
    return Due(
        start,
        of_old_spec,
        missing,
        failed,
        active,
        until_ms,
        _gaps_before(windows[0].start_ms, done),
        left_empty,
    )


def merged(windows: Iterable[Window]) -> tuple[Window, ...]:
    """The same time in as few windows as possible, oldest first."""
    out: list[Window] = []
    for window in sorted(windows):
        if out and window.start_ms <= out[-1].end_ms:
            out[-1] = Window(out[-1].start_ms, max(out[-1].end_ms, window.end_ms))
        else:
            out.append(window)
    return tuple(out)


def _windows(wanted: Wanted, now_ms: int) -> list[Window]:
    """Every window that is over and may still be computed, oldest first."""
    every = wanted.every_ms
    end_ms = _aligned(now_ms - SETTLE_MS, every)
    oldest_ms = max(end_ms - MOST_WINDOWS * every, end_ms - LONGEST_BACKFILL_MS, wanted.since_ms)
    first_ms = min(_aligned(oldest_ms + every - 1, every), end_ms)
    return [Window(start_ms, start_ms + every) for start_ms in range(first_ms, end_ms, every)]


def _aligned(time_ms: int, every_ms: int) -> int:
    return time_ms // every_ms * every_ms


def _covered(window: Window, done: Iterable[Window]) -> bool:
    return any(one.start_ms <= window.start_ms and window.end_ms <= one.end_ms for one in done)


def _failed(
    jobs: Iterable[WindowJob], missing: Sequence[Window], wanted: Wanted
) -> list[WindowJob]:
    absent = set(missing)
    return [
        job
        for job in jobs
        if job.state is JobState.FAILED
        and job.generation == wanted.generation
        and job.window in absent
    ]


def _pausing(jobs: Sequence[WindowJob], wanted: Wanted, *, now_seconds: float) -> bool:
    """Whether to wait after failures in a row: a minute, doubled by each more, an hour at most."""
    ends: dict[JobState, list[float]] = {state: [] for state in JobState}
    for job in jobs:
        if job.finished_at_seconds is not None and job.generation == wanted.generation:
            ends[job.state].append(job.finished_at_seconds)
    succeeded = max(ends[JobState.SUCCEEDED], default=0.0)
    failures = [at_seconds for at_seconds in ends[JobState.FAILED] if at_seconds > succeeded]
    pause_seconds = min(
        LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(len(failures) - 1, 16)
    )
    return bool(failures) and now_seconds < max(failures) + pause_seconds


def _gaps_before(first_ms: int, done: Sequence[Window]) -> int:
    """Milliseconds missing between what was published and the oldest window to be computed."""
    earlier = [window for window in done if window.start_ms < first_ms]
    if not earlier:
        return 0
    ends = [window.end_ms for window in earlier]
    starts = [window.start_ms for window in earlier[1:]] + [first_ms]
    return sum(max(0, start_ms - end_ms) for end_ms, start_ms in zip(ends, starts, strict=True))
