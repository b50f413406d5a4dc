"""Which window is due: gaps oldest first, one at a time, patience after failures, and nothing
beyond the bound.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate_logic.rollup_schedule import (
    MOST_WINDOWS,
    SETTLE_MS,
    Due,
    JobState,
    Wanted,
    Window,
    WindowJob,
    due,
    merged,
)

HOUR_MS = 3_600_000
NOON_MS = 1_795_000_000_000 // (24 * HOUR_MS) * 24 * HOUR_MS + 12 * HOUR_MS
NOW_MS = NOON_MS + SETTLE_MS
WANTED = Wanted(HOUR_MS, NOON_MS - 4 * HOUR_MS, generation=2)


def hour(before_noon: int) -> Window:
    """The hour that ended so many hours before noon."""
    return Window(NOON_MS - (before_noon + 1) * HOUR_MS, NOON_MS - before_noon * HOUR_MS)


def job(
    before_noon: int,
    state: JobState,
    *,
    generation: int = 2,
    finished_minutes_ago: float | None = None,
) -> WindowJob:
    finished = None if finished_minutes_ago is None else NOW_MS / 1000 - finished_minutes_ago * 60
    return WindowJob(f"job-{before_noon}", hour(before_noon), state, generation, finished)


def at_noon(
    *jobs: WindowJob,
    published: tuple[Window, ...] = (),
    wanted: Wanted = WANTED,
    now_ms: int = NOW_MS,
) -> Due:
    return due(wanted, published, jobs, now_ms=now_ms)


def test_the_oldest_gap_comes_first() -> None:
    found = at_noon(published=(hour(3), hour(1)))
    assert (found.start, found.missing, found.published_until_ms) == (
        hour(2),
        (hour(2), hour(0)),
        hour(2).start_ms,
    )


def test_a_window_is_due_only_when_late_samples_had_time_to_come() -> None:
    before = at_noon(now_ms=NOW_MS - 1)
    assert (before.missing[-1], at_noon().missing[-1]) == (hour(1), hour(0))


def test_nothing_before_the_policy_is_computed() -> None:
    assert at_noon(wanted=Wanted(HOUR_MS, NOON_MS - 2 * HOUR_MS + 1)).missing == (hour(0),)


def test_before_the_first_window_is_over_nothing_is_said_to_be_published() -> None:
    made = Wanted(HOUR_MS, NOON_MS - HOUR_MS + 1)  # within the window that ends at noon
    assert at_noon(wanted=made) == Due()
    assert at_noon(wanted=made, now_ms=NOW_MS + HOUR_MS - 1) == Due()
    first_over = at_noon(wanted=made, now_ms=NOW_MS + HOUR_MS)
    assert (first_over.start, first_over.published_until_ms) == (
        Window(NOON_MS, NOON_MS + HOUR_MS),
        NOON_MS,
    )


def test_while_a_job_runs_no_other_is_made() -> None:
    found = at_noon(job(3, JobState.ACTIVE))
    assert (found.start, found.active) == (None, hour(3))


def test_everything_published_leaves_nothing_to_do() -> None:
    assert at_noon(published=(Window(hour(3).start_ms, NOON_MS),)) == Due(
        published_until_ms=NOON_MS
    )


def test_a_job_that_succeeded_counts_as_published_while_it_is_there() -> None:
    assert at_noon(job(3, JobState.SUCCEEDED)).start == hour(2)


def test_a_failed_window_does_not_keep_the_others_back() -> None:
    found = at_noon(job(3, JobState.FAILED, finished_minutes_ago=2))
    assert (found.start, [one.window for one in found.failed]) == (hour(2), [hour(3)])


@pytest.mark.parametrize(
    ("failures", "minutes", "patient"),
    [(1, 0.9, True), (1, 1.1, False), (3, 3.9, True), (3, 4.1, False)],
)
def test_failures_in_a_row_ask_for_ever_more_patience(
    failures: int, minutes: float, patient: bool
) -> None:
    found = at_noon(
        *(
            job(3 - number, JobState.FAILED, finished_minutes_ago=minutes)
            for number in range(failures)
        )
    )
    assert (found.start is None) == patient


def test_a_success_ends_the_patience() -> None:
    found = at_noon(
        job(3, JobState.FAILED, finished_minutes_ago=0.5),
        job(2, JobState.SUCCEEDED, finished_minutes_ago=0.1),
    )
    assert found.start == hour(1)


def test_an_edited_policy_makes_failures_obsolete_without_patience() -> None:
    found = at_noon(job(3, JobState.FAILED, generation=1, finished_minutes_ago=0.1))
    assert ([one.name for one in found.obsolete], found.failed, found.start) == (
        ["job-3"],
        (),
        hour(2),
    )


def test_a_window_that_is_published_in_part_is_computed_again() -> None:
    half = Window(hour(3).start_ms, hour(3).start_ms + HOUR_MS // 2)
    assert at_noon(published=(half,)).start == hour(3)


def test_gaps_that_are_too_old_are_reported_and_not_filled() -> None:
    old = Window(NOON_MS - 10 * 24 * HOUR_MS, NOON_MS - 9 * 24 * HOUR_MS)
    found = at_noon(published=(old,), wanted=Wanted(HOUR_MS, 0))
    assert (len(found.missing), found.lost_ms) == (MOST_WINDOWS, 2 * 24 * HOUR_MS)


def test_a_window_of_which_there_is_nothing_is_no_gap_and_is_reported() -> None:
    found = due(WANTED, (hour(3), hour(1)), (), now_ms=NOW_MS, empty=(hour(2),))
    assert (found.start, found.missing, found.published_until_ms, found.empty) == (
        hour(0),
        (hour(0),),
        hour(0).start_ms,
        (hour(2),),
    )


def test_what_was_empty_and_is_published_later_is_empty_no_more() -> None:
    found = due(WANTED, (hour(3), hour(2), hour(1), hour(0)), (), now_ms=NOW_MS, empty=(hour(2),))
    assert (found.missing, found.empty) == ((), ())


def test_overlapping_ranges_are_merged() -> None:
    assert merged([Window(5, 9), Window(0, 3), Window(3, 6), Window(20, 21)]) == (
        Window(0, 9),
        Window(20, 21),
    )


@settings(max_examples=20, deadline=None)
@given(
    st.sets(st.integers(0, 9)),
    st.sets(st.integers(0, 9)),
    st.sampled_from([HOUR_MS // 12, HOUR_MS, 24 * HOUR_MS]),
)
def test_doing_what_is_due_again_and_again_publishes_everything_once(
    have: set[int], broken: set[int], every: int
) -> None:
    """Jobs of `broken` windows fail the first time; their failed Jobs are gone an hour later, as
    their TTL says.
    """
    wanted = Wanted(every, NOON_MS - 10 * every)
    now_ms, made = NOW_MS, []
    published = [Window(NOON_MS - (one + 1) * every, NOON_MS - one * every) for one in have]
    bad = {Window(NOON_MS - (one + 1) * every, NOON_MS - one * every) for one in broken}
    failed: list[WindowJob] = []
    for _ in range(200):
        failed = [one for one in failed if (one.finished_at_seconds or 0) > now_ms / 1000 - 3600]
        found = due(wanted, published, failed, now_ms=now_ms)
        if not found.missing or found.missing[0].start_ms >= NOON_MS:
            break
        if found.start is None:
            now_ms += 1_200_000
        elif found.start in bad:
            bad.remove(found.start)
            failed.append(WindowJob("job", found.start, JobState.FAILED, 0, now_ms / 1000))
        else:
            made.append(found.start)
            published.append(found.start)
    assert not due(wanted, published, (), now_ms=NOW_MS).missing
    assert len(made) == len(set(made))
