"""Fill the hours that a store lacks, or compute a time again: list hours, then publish them.

Day by day, oldest first. Hours that were published from fewer samples than Prometheus has now are
named, and computed `again` where that is asked for. Where it has fewer now, the tables know more
than it does, and stay. Killed, the same backfill goes on where it was.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tidegate.errors import InvalidResource, NotFound, TidegateError
from tidegate.rollup.engine import Engine, RollupPolicy, RollupRequest, Span, policy_engine
from tidegate.rollup.ingest import Source
from tidegate.rollup.job import pod_of
from tidegate.rollup.job_run import published_windows, record
from tidegate.rollup.schemas import DAY_MS, HOUR_MS
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.verify import ChangedHour, changed_hours, in_runs, missing_hours
from tidegate_logic.reasons import Reason
from tidegate_logic.words import rfc3339_ms

_MOST_NAMED = 5


class KnowsSource(Protocol):
    """What of an engine tells whether samples came late."""

    def source(self, start_ms: int, end_ms: int) -> Source: ...


@dataclass(frozen=True, slots=True)
class Backfill:
    """Whole hours [start_ms, end_ms), only listed with `dry_run`; `tell`, `warn` take sentences.

    `again` = those that are published, too.
    """

    start_ms: int
    end_ms: int
    dry_run: bool
    clock_ms: Callable[[], int]
    tell: Callable[[str], None]
    warn: Callable[[str], None]
    again: bool = False

    def of_policy(self, policy: RollupPolicy, folder: Path) -> list[Span]:
        """Fill a policy's tables and record it as Jobs do; `folder` is the process's own.

        Returns the spans of which Prometheus has nothing. Raises tidegate.errors.
        """
        _require_reachable(policy)
        with policy_engine(
            policy, pod_of(os.environ), folder, clock_ms=self.clock_ms, tell=self.tell
        ) as engine:

            def publish(span: Span) -> None:
                windows = published_windows(engine.publish(span), span)
                if windows:
                    record(
                        policy,
                        windows,
                        catalog_problem=engine.catalog_problem,
                        now_ms=self.clock_ms(),
                    )

            return self.fill(policy.spec.storage.address, engine, publish)

    def on_this_machine(self, request: RollupRequest) -> list[Span]:
        """Fill tables without a cluster; the spans of which Prometheus has nothing.

        Raises tidegate.errors.
        """
        with Engine(request, clock_ms=self.clock_ms, tell=self.tell) as engine:
            return self.fill(request.store_url, engine, engine.publish)

    def fill(
        self, store_url: str, engine: KnowsSource, publish: Callable[[Span], object]
    ) -> list[Span]:
        """Publish what is wanted of a store; the spans of which Prometheus has nothing."""
        spans, lost = self._spans(store_url, engine), list[Span]()
        for number, span in enumerate(spans, 1):
            self.tell(f"run {number} of {len(spans)}: {span}")
            try:
                publish(span)
            except NotFound as error:
                if error.reason is not Reason.METRICS_MISSING:
                    raise
                self.warn(error.message)
                lost.append(span)
        return lost

    def _spans(self, store_url: str, engine: KnowsSource) -> Sequence[Span]:
        """List the hours for people; the spans to publish, none in a dry run."""
        store = UsageStore.at(store_url)
        changed = self._changed(store, engine)
        fewer = {one.start_ms for one in changed if not one.is_more}
        if fewer:
            self.warn(
                f"Of {hours_words(fewer)} Prometheus has fewer samples now than when they were "
                f"published; they stay as they are."
            )
        asked = range(self.start_ms, self.end_ms, HOUR_MS)
        hours = (
            [hour_ms for hour_ms in asked if hour_ms not in fewer]
            if self.again
            else missing_hours(store, self.start_ms, self.end_ms)
        )
        more = {one.start_ms for one in changed if one.is_more} - set(hours)
        if more:
            self.warn(
                f"Of {hours_words(more)} Prometheus has more samples now than when they were "
                f"published. `--again` computes them again."
            )
        spans = [Span(*each) for each in in_runs(hours)]
        if not hours:
            self.tell(
                f"None of {len(asked)} hours is "
                f"{'to be computed again' if self.again else 'missing'}."
            )
            return []
        what = "are computed again" if self.again else "are missing"
        self.tell(
            f"{len(hours)} of {len(asked)} hours {what}, in {len(spans)} runs, each within a day:"
        )
        for span in spans:
            self.tell(f"  {span}")
        return [] if self.dry_run else spans

    def _changed(self, store: UsageStore, engine: KnowsSource) -> list[ChangedHour]:
        """The published hours whose samples are others now, a day at a time."""
        if not store.windows("usage_5m", self.start_ms, self.end_ms):
            return []
        found = []
        for begin_ms in range(self.start_ms, self.end_ms, DAY_MS):
            end_ms = min(begin_ms + DAY_MS, self.end_ms)
            try:
                samples = engine.source(begin_ms, end_ms).samples
            except TidegateError as error:
                if not self.dry_run:
                    raise
                self.warn(f"Whether samples came late is not known: {error.message}")
                return []
            found += changed_hours(store, samples, begin_ms, end_ms)
        return found


def hours_words(hours: Iterable[int]) -> str:
    """`2026-11-22T07, 2026-11-22T08 and 3 more hours`."""
    names = [rfc3339_ms(hour_ms)[:13] for hour_ms in sorted(hours)]
    shown, more = names[:_MOST_NAMED], len(names) - _MOST_NAMED
    return ", ".join(shown) + (f" and {more} more hours" if more > 0 else "")


def _require_reachable(policy: RollupPolicy) -> None:
    """A claim is mounted in Pods; a folder of the same name on someone's laptop is not it."""
    path = policy.spec.storage.mount_path
    if path is None or Path(path).is_mount() or Path(path).is_dir():
        return
    claim = policy.spec.storage.claim_name
    raise InvalidResource(
        f"The tables are on claim {claim}, which is not mounted here at {path}. Run it as a Job: "
        f"examples/rollup/backfill.yaml."
    )
