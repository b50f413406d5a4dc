"""What a backfill does: asks the store what it lacks, says so, and has it published day by day; what cannot be had is named at the end."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from controller_logic.reasons import Reason
from tidegate.commands.context import Surroundings
from tidegate.commands.inputs import PolicyOptions
from tidegate.commands.output import ExitCode, Page
from tidegate.commands.rollup_declared import RollupPolicy, rollup_policy
from tidegate.commands.rollup_engine import Engine, Span
from tidegate.commands.rollup_here import Asked, roll_up
from tidegate.commands.rollup_job_run import clock_ms_of, published_windows, record
from tidegate.errors import InvalidResource, NotFound
from tidegate.prometheus.settings import MetricsSettings
from tidegate.rollup.job import pod_of
from tidegate.rollup.schemas import HOUR_MS
from tidegate.rollup.spark.stages import workers_errors
from tidegate.rollup.tables.format import time_words
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.verify import in_runs, missing_hours

Publish = Callable[[Span], None]


@dataclass(frozen=True, slots=True)
class Filling:
    """Whole hours [start_ms, end_ms); with `dry_run` nothing is computed."""

    start_ms: int
    end_ms: int
    dry_run: bool


def of_policy(around: Surroundings, asked: PolicyOptions, filling: Filling, *, page: Page) -> None:
    """Fill the tables of a policy and write down what was published, as its Jobs do. Raises tidegate.errors."""
    clock_ms = clock_ms_of(around)
    with TemporaryDirectory(prefix="tidegate-backfill-") as folder:
        policy = rollup_policy(around, asked)
        _require_reachable(policy)
        spans = _missing(policy.spec.storage.url, filling, page)
        if not spans:
            return
        with Engine(policy, pod_of(os.environ), Path(folder), clock_ms=clock_ms, tell=page.say) as engine:

            def publish(span: Span) -> None:
                windows = published_windows(engine.publish(span), span)
                if windows:
                    record(policy, windows, now_ms=clock_ms())

            _fill(around, spans, publish, page)


def on_this_machine(around: Surroundings, metrics: MetricsSettings, store_url: str, filling: Filling, *, page: Page) -> None:
    """Fill tables without any cluster. Raises tidegate.errors."""

    def publish(span: Span) -> None:
        with workers_errors():
            roll_up(Asked(metrics, store_url, span.start_ms, span.end_ms), clock_ms=clock_ms_of(around), tell=page.say)

    _fill(around, _missing(store_url, filling, page), publish, page)


def _missing(store_url: str, filling: Filling, page: Page) -> list[Span]:
    """What is to be done now, said before it is done; nothing where that was all that was asked."""
    hours = missing_hours(UsageStore.at(store_url), filling.start_ms, filling.end_ms)
    spans = [Span(*each) for each in in_runs(hours)]
    asked = (filling.end_ms - filling.start_ms) // HOUR_MS
    if not hours:
        page.say(f"None of {asked} hours is missing.")
        return []
    page.say(f"{len(hours)} of {asked} hours are missing, in {len(spans)} runs, each within a day:")
    for span in spans:
        page.say(f"  {_words(span)}")
    return [] if filling.dry_run else spans


def _fill(around: Surroundings, spans: Sequence[Span], publish: Publish, page: Page) -> None:
    lost = []
    for number, span in enumerate(spans, 1):
        page.say(f"run {number} of {len(spans)}: {_words(span)}")
        try:
            publish(span)
        except NotFound as error:
            if error.reason is not Reason.METRICS_MISSING:
                raise
            page.warn(error.message)
            lost.append(span)
    if lost:
        page.say(f"Not published, for Prometheus tells nothing of it: {', '.join(map(_words, lost))}.", "red")
        around.exit_code = ExitCode.ERROR


def _require_reachable(policy: RollupPolicy) -> None:
    """A claim is mounted in Pods; a folder of the same name on somebody's laptop is not it."""
    path = policy.spec.storage.mount_path
    if path is None or Path(path).is_mount() or Path(path).is_dir():
        return
    claim = policy.spec.storage.claim_name
    raise InvalidResource(
        f"The tables are on claim {claim}, which is not mounted here at {path}. Run it as a Job: examples/rollup/backfill.yaml."
    )


def _words(span: Span) -> str:
    return f"{time_words(span.start_ms)} to {time_words(span.end_ms)} ({(span.end_ms - span.start_ms) // HOUR_MS} h)"
