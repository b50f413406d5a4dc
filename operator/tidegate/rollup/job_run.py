"""A rollup Job: read the policy, compute its window and what is late, record what was published.

Killed anywhere, it leaves whole windows and nothing that is in the way of the next attempt. Two
Jobs of one store are harmless.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from tidegate.errors import NotFound
from tidegate.kube.rollup_jobs import read_result, record_result
from tidegate.rollup.engine import Engine, RollupPolicy, Span, policy_engine
from tidegate.rollup.ingest import Source
from tidegate.rollup.job import LATE_MS, SETTLE_MS, pod_of, run_span
from tidegate.rollup.member_usage import member_usage
from tidegate.rollup.schemas import DAY_MS, HOUR_MS
from tidegate.rollup.tables.format import Manifest
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.verify import changed_hours, in_runs
from tidegate_logic.model import Usage
from tidegate_logic.reasons import Reason
from tidegate_logic.rollup_schedule import Window
from tidegate_logic.words import rfc3339_ms

USAGE_DAYS = 7
# Reading a week of tables is worth it once an hour, however short windows are.
_FIGURES_STAND_MS = HOUR_MS
_FIGURES_COUNT_MS = 2 * DAY_MS


def run_job(
    policy: RollupPolicy,
    window: Window,
    *,
    folder: Path,
    clock_ms: Callable[[], int],
    tell: Callable[[str], None],
) -> None:
    """Do all of it; `folder` is the process's own. Raises tidegate.errors."""
    span = Span(*run_span(window.start_ms, window.end_ms, now_ms=clock_ms()))
    tell(
        f"computing {rfc3339_ms(span.start_ms)} to {rfc3339_ms(span.end_ms)} for policy "
        f"{policy.policy.key}"
    )
    with policy_engine(policy, pod_of(os.environ), folder, clock_ms=clock_ms, tell=tell) as engine:
        windows, empty = _publish(engine, span, window, now_ms=clock_ms())
        if windows:
            store = UsageStore.at(policy.spec.storage.address)
            windows += late_windows(engine, store, span, now_ms=clock_ms(), tell=tell)
        problem = engine.catalog_problem
    record(policy, windows, empty=empty, catalog_problem=problem, now_ms=clock_ms())
    for one in empty:
        tell(
            f"Prometheus has no samples of any broker from {rfc3339_ms(one.start_ms)} to "
            f"{rfc3339_ms(one.end_ms)}, and will not get any"
        )
    if windows:
        tell(f"published; the newest rows end at {rfc3339_ms(max(one.end_ms for one in windows))}")


def _publish(
    engine: Engine, span: Span, own: Window, *, now_ms: int
) -> tuple[list[Window], list[Window]]:
    """The windows published now, and those empty for good; one of them is the Job's own.

    Raises tidegate.errors.
    """
    try:
        windows, lack = published_windows(engine.publish(span), span), _nothing_found(own)
    except NotFound as error:
        if error.reason is not Reason.METRICS_MISSING:
            raise
        windows, lack = [], error
    if any(one.start_ms < own.end_ms and own.start_ms < one.end_ms for one in windows):
        return [own, *windows], []
    if not _is_empty_for_good(engine, own, now_ms=now_ms):
        raise lack
    return windows, [own]


class Reader(Protocol):
    """What of an engine computes late hours."""

    def source(self, start_ms: int, end_ms: int) -> Source: ...

    def publish(self, span: Span) -> list[Manifest]: ...


def late_windows(
    engine: Reader, store: UsageStore, span: Span, *, now_ms: int, tell: Callable[[str], None]
) -> list[Window]:
    """Compute again what samples came late for, of the last day before the span.

    Hours before that are left to `tidegate rollup backfill`, which names them.
    """
    begin_ms = now_ms - now_ms % HOUR_MS - DAY_MS
    if begin_ms >= span.start_ms or not store.windows("usage_5m", begin_ms, span.start_ms):
        return []
    samples = engine.source(begin_ms, span.start_ms).samples
    changed = [one for one in changed_hours(store, samples, begin_ms, span.start_ms) if one.is_more]
    found = []
    for late in (Span(*each) for each in in_runs([one.start_ms for one in changed])):
        tell(f"samples came late: {late} is recomputed")
        found += published_windows(engine.publish(late), late)
    return found


def _is_empty_for_good(engine: Engine, window: Window, *, now_ms: int) -> bool:
    """Whether no sample comes any more: over for two hours, and Prometheus has newer ones."""
    over_ms = now_ms - SETTLE_MS
    return window.end_ms <= now_ms - LATE_MS and engine.has_brokers(over_ms - HOUR_MS, over_ms)


def published_windows(published: Sequence[Manifest], span: Span) -> list[Window]:
    """The time of which rows of five minutes were published."""
    fine = [one.window for one in published if one.table == "usage_5m" and not one.combines]
    return [Window(max(one.start_ms, span.start_ms), min(one.end_ms, span.end_ms)) for one in fine]


def record(
    policy: RollupPolicy,
    windows: Sequence[Window],
    *,
    empty: Sequence[Window] = (),
    catalog_problem: str | None = None,
    now_ms: int,
) -> None:
    """Report the published and the `empty` windows to the operator, and usage if not done lately.

    Raises what Kubernetes does.
    """
    record_result(
        policy.kubernetes,
        policy.as_owner,
        published=windows,
        empty=empty,
        usage=_usage(policy, max(window.end_ms for window in windows)) if windows else None,
        catalog_problem=catalog_problem,
        now_ms=now_ms,
        valid_until_ms=now_ms + _FIGURES_COUNT_MS,
    )


def _usage(policy: RollupPolicy, end_ms: int) -> Usage | None:
    """None if figures stand that are as good as new, or newer."""
    result, _ = read_result(policy.kubernetes, policy.as_owner)
    if (
        result is not None
        and result.usage is not None
        and end_ms < result.usage.until_seconds * 1000 + _FIGURES_STAND_MS
    ):
        return None
    return member_usage(
        UsageStore.at(policy.spec.storage.address),
        policy.tiers,
        end_ms - USAGE_DAYS * DAY_MS,
        end_ms,
    )


def _nothing_found(window: Window) -> NotFound:
    found = (
        f"Prometheus has no samples of any broker from {rfc3339_ms(window.start_ms)} to "
        f"{rfc3339_ms(window.end_ms)}"
    )
    return NotFound(
        Reason.METRICS_MISSING,
        (
            f"{found}, so that time is not published. Was Prometheus down, or is the policy's "
            "preset wrong?"
        ),
    )
