"""A rollup in this process: the ladder is tried, Spark is started on this machine, and the hours asked for are carried out in order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidegate.prometheus.settings import MetricsSettings
from tidegate.rollup.ingest import IngestOrder, catalogue
from tidegate.rollup.samples import Progress, unwatched
from tidegate.rollup.spark.run import RollupRun, run_rollup
from tidegate.rollup.spark.session import spark_session
from tidegate.rollup.tables.format import new_run_id
from tidegate.rollup.tables.manifest import Manifest
from tidegate.rollup.terms.policy import PolicyTerms
from tidegate.rollup.trail import AuditLine
from tidegate.rollup.transport.exchange import HistorySettings
from tidegate.rollup.transport.ladder import Probe, choose

_PROBED_MS = 600_000


@dataclass(frozen=True, slots=True)
class Asked:
    """[start_ms, end_ms) of what `metrics` reads, from a whole hour to a whole window of 5 minutes, into the tables at `store_url`.

    `policy` says who is a member of what. `trail` counts where Prometheus has none of the operator's metrics.
    """

    metrics: MetricsSettings
    store_url: str
    start_ms: int
    end_ms: int
    policy: PolicyTerms | None = None
    trail: Sequence[AuditLine] = ()


def roll_up(asked: Asked, *, clock_ms: Callable[[], int], tell: Callable[[str], None], progress: Progress = unwatched) -> list[Manifest]:
    """What was published. Raises what reading and storing raise."""
    history = HistorySettings(asked.metrics.server, scrape_interval_ms=asked.metrics.scrape_interval_seconds * 1000)
    traffic = catalogue(asked.metrics)["fetch"].client_bytes
    ladder = choose(history, Probe(traffic, asked.end_ms - _PROBED_MS, asked.end_ms))
    tell(str(ladder))
    order = IngestOrder(new_run_id(clock_ms()), asked.store_url, ladder.rung.name, asked.metrics, history)
    try:
        with spark_session("tidegate-rollup") as spark:
            span = (asked.start_ms, asked.end_ms)
            run = RollupRun(order, *span, asked.policy, trail=asked.trail, clock_ms=clock_ms, tell=tell, progress=progress)
            return run_rollup(spark, run, ladder.rung)
    finally:
        ladder.rung.close()
