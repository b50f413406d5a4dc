"""Fill the hours that a store lacks: list them, then publish them day by day, oldest first.

Killed, the same backfill goes on where it was.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.controller_logic.reasons import Reason
from tidegate.errors import InvalidResource, NotFound
from tidegate.rollup.engine import Engine, RollupPolicy, RollupRequest, Span, policy_engine
from tidegate.rollup.job import pod_of
from tidegate.rollup.job_run import published_windows, record
from tidegate.rollup.schemas import HOUR_MS
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.verify import in_runs, missing_hours


@dataclass(frozen=True, slots=True)
class Backfill:
    """Whole hours [start_ms, end_ms), only listed with `dry_run`; `tell`, `warn` take sentences."""

    start_ms: int
    end_ms: int
    dry_run: bool
    clock_ms: Callable[[], int]
    tell: Callable[[str], None]
    warn: Callable[[str], None]

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

            return self._fill(policy.spec.storage.address, publish)

    def on_this_machine(self, request: RollupRequest) -> list[Span]:
        """Fill tables without a cluster; the spans of which Prometheus has nothing.

        Raises tidegate.errors.
        """
        with Engine(request, clock_ms=self.clock_ms, tell=self.tell) as engine:
            return self._fill(request.store_url, engine.publish)

    def _fill(self, store_url: str, publish: Callable[[Span], object]) -> list[Span]:
        spans, lost = self._missing(store_url), list[Span]()
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

    def _missing(self, store_url: str) -> Sequence[Span]:
        """List the missing hours for people; the spans to publish, none in a dry run."""
        hours = missing_hours(UsageStore.at(store_url), self.start_ms, self.end_ms)
        spans = [Span(*each) for each in in_runs(hours)]
        asked = (self.end_ms - self.start_ms) // HOUR_MS
        if not hours:
            self.tell(f"None of {asked} hours is missing.")
            return []
        self.tell(
            f"{len(hours)} of {asked} hours are missing, in {len(spans)} runs, each within a day:"
        )
        for span in spans:
            self.tell(f"  {span}")
        return [] if self.dry_run else spans


def _require_reachable(policy: RollupPolicy) -> None:
    """A claim is mounted in Pods; a folder of the same name on somebody's laptop is not it."""
    path = policy.spec.storage.mount_path
    if path is None or Path(path).is_mount() or Path(path).is_dir():
        return
    claim = policy.spec.storage.claim_name
    raise InvalidResource(
        f"The tables are on claim {claim}, which is not mounted here at {path}. Run it as a Job: "
        f"examples/rollup/backfill.yaml."
    )
