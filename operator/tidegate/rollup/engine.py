"""Roll up spans of Prometheus' history into usage tables, with one Spark session for all of them.

A person's machine and a policy's Job take the same road; what differs is where Spark runs
(`SparkPlace`) and what is known of the policy.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tidegate.errors import InvalidResource
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, JsonObject, Kubernetes
from tidegate.kube.rollup_jobs import BLOCK_MANAGER_PORT, DRIVER_PORT, labels, login_environment
from tidegate.prometheus.settings import MetricsSettings
from tidegate.resources.rollup import Rollup, mebibytes
from tidegate.rollup.fold.broker import BOUNDS, FactorBounds
from tidegate.rollup.ingest import IngestOrder, Source, catalogue, read_source
from tidegate.rollup.job import (
    Executors,
    Mount,
    Pod,
    heap_mib,
    master,
    pod_template,
    spark_settings,
)
from tidegate.rollup.samples import Progress, ReadRequest, Transport, unwatched
from tidegate.rollup.schemas import HOUR_MS
from tidegate.rollup.spark.run import RollupRun, run_rollup
from tidegate.rollup.spark.session import LOCAL, Spark, shuffle_settings, spark_started
from tidegate.rollup.spark.stages import workers_errors
from tidegate.rollup.tables.format import NOBODY, Manifest, Owner, new_run_id
from tidegate.rollup.tables.iceberg import CatalogSettings
from tidegate.rollup.tables.upkeep import Retention
from tidegate.rollup.terms.sources import AuditLine, PolicyTerms
from tidegate.rollup.transport.exchange import HistorySettings
from tidegate.rollup.transport.readers import choose_reader
from tidegate_logic.model import Budget, Policy, Tier
from tidegate_logic.words import rfc3339_ms

_PROBED_MS = 600_000
# to one server, of all machines together; what Prometheus itself allows of remote reads is 10
_PARALLEL_REQUESTS = 8
_PARALLEL_OF_ONE = 4
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Span:
    """[start_ms, end_ms), from a whole hour to a whole window of 5 minutes."""

    start_ms: int
    end_ms: int

    def __str__(self) -> str:
        """`2026-11-22T07:00:00Z to 2026-11-22T10:00:00Z (3 h)`."""
        return (
            f"{rfc3339_ms(self.start_ms)} to {rfc3339_ms(self.end_ms)} "
            f"({(self.end_ms - self.start_ms) // HOUR_MS} h)"
        )


@dataclass(frozen=True, slots=True)
class RollupRequest:
    """What is read, and into which tables.

    Without `policy` nothing is known of tiers, contracts and limits; without `retention` nothing is
    let go. `trail` counts where Prometheus has none of the operator's metrics. `parallel_requests`
    are those of one machine, `tasks_at_once` how many read on all of them together, None = as many
    as there are cores. Tables of another `owner` are refused.
    """

    metrics: MetricsSettings
    store_url: str
    policy: PolicyTerms | None = None
    retention: Retention | None = None
    trail: Sequence[AuditLine] = field(default=(), repr=False)
    owner: Owner = NOBODY
    catalog: CatalogSettings | None = None
    bounds: FactorBounds = BOUNDS
    parallel_requests: int = _PARALLEL_OF_ONE
    tasks_at_once: int | None = None


@dataclass(frozen=True, slots=True)
class SparkPlace:
    """Where Spark runs: in this process or on executors; `memory` is the driver's heap."""

    master: str = LOCAL
    memory: str = "1g"
    further: Mapping[str, str] = field(default_factory=dict)


class Engine:
    """Publish spans while entered; Spark starts with the first, once Prometheus has answered."""

    def __init__(
        self,
        request: RollupRequest,
        place: SparkPlace | None = None,
        *,
        clock_ms: Callable[[], int],
        tell: Callable[[str], None],
        progress: Progress = unwatched,
    ) -> None:
        self._request = request
        self._place = place or SparkPlace()
        self._clock_ms = clock_ms
        self._tell = tell
        self._progress = progress
        self._stack = ExitStack()
        self._spark: Spark | None = None
        self.catalog_problem: str | None = None  # why it is behind what was published last

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._spark = None
        self._stack.close()

    def publish(self, span: Span) -> list[Manifest]:
        """Compute the span's hours and what is made of them; the new manifests.

        Raises tidegate.errors; what was published until then stays.
        """
        request = self._request
        reader = self._reader(span.end_ms)
        try:
            run = RollupRun(
                IngestOrder(
                    new_run_id(self._clock_ms()),
                    request.store_url,
                    reader.name,
                    request.metrics,
                    self._history,
                    owner=request.owner,
                    bounds=request.bounds,
                ),
                span.start_ms,
                span.end_ms,
                request.policy,
                request.retention,
                request.trail,
                request.catalog,
                tasks_at_once=request.tasks_at_once,
                clock_ms=self._clock_ms,
                tell=self._tell,
                progress=self._progress,
                catalog_problem=self._catalog_is_behind,
            )
            self.catalog_problem = None
            with workers_errors():
                return run_rollup(self._started(), run, reader)
        finally:
            reader.close()

    def _catalog_is_behind(self, why: str) -> None:
        self.catalog_problem = why
        self._tell(f"catalog: {why}")

    def has_brokers(self, start_ms: int, end_ms: int) -> bool:
        """Whether Prometheus has any broker in [start_ms, end_ms), on edges or not.

        Raises tidegate.errors.
        """
        return bool(self.source(start_ms, end_ms).brokers)

    def source(self, start_ms: int, end_ms: int) -> Source:
        """What Prometheus has of brokers in [start_ms, end_ms) now. Raises tidegate.errors."""
        reader = self._reader(end_ms)
        try:
            return read_source(reader, self._request.metrics, start_ms, end_ms)
        finally:
            reader.close()

    @property
    def _history(self) -> HistorySettings:
        metrics = self._request.metrics
        return HistorySettings(
            metrics.server,
            replica_labels=metrics.replica_labels,
            scrape_interval_ms=metrics.scrape_interval_seconds * 1000,
            parallel_requests=self._request.parallel_requests,
        )

    def _reader(self, end_ms: int) -> Transport:
        """The fastest way to read that the server offers."""
        traffic = catalogue(self._request.metrics)["fetch"].client_bytes
        chosen = choose_reader(self._history, ReadRequest(traffic, end_ms - _PROBED_MS, end_ms))
        self._tell(str(chosen))
        return chosen.reader

    def _started(self) -> Spark:
        if self._spark is None:
            place = self._place
            spark = spark_started(
                "tidegate-rollup", master=place.master, memory=place.memory, further=place.further
            )
            self._spark = self._stack.enter_context(spark)
        return self._spark


@dataclass(frozen=True, slots=True)
class RollupPolicy:
    """A policy with rollups, as it was declared."""

    kubernetes: Kubernetes
    policy: Policy
    tiers: tuple[Tier, ...]
    tier_statuses: Mapping[str, Mapping[str, Any]]
    tiers_changed_ms: Mapping[str, int]
    spec: Rollup
    metrics: MetricsSettings
    owner: Owner
    budgets: Sequence[Budget] | None = ()  # the oldest first; None = not known in full

    @property
    def name(self) -> str:
        return self.policy.key.partition("/")[2]

    @property
    def as_owner(self) -> JsonObject:
        """The policy as far as what is written down for it needs to know."""
        metadata = {
            "name": self.name,
            "namespace": self.policy.key.partition("/")[0],
            "uid": self.policy.uid,
        }
        return {
            "apiVersion": BROKER_BANDWIDTH_POLICIES.api_version,
            "kind": BROKER_BANDWIDTH_POLICIES.kind,
            "metadata": metadata,
        }


def policy_engine(
    policy: RollupPolicy,
    pod: Pod | None,
    folder: Path,
    *,
    clock_ms: Callable[[], int],
    tell: Callable[[str], None],
) -> Engine:
    """The engine for a policy's tables; `pod` None = outside of a cluster, without executors.

    `folder` is the process's own. Raises InvalidResource for executors without an image.
    """
    executors = _executors(policy, pod)
    parallel, at_once = requests_of(1 if executors is None else executors.instances)
    retention = policy.spec.retention_days
    request = RollupRequest(
        policy.metrics,
        policy.spec.storage.address,
        PolicyTerms.of(
            policy.policy,
            policy.tiers,
            policy.tier_statuses,
            policy.tiers_changed_ms,
            policy.budgets,
        ),
        Retention(retention.five_minutes, retention.hours),
        owner=policy.owner,
        catalog=_catalog(policy.spec),
        bounds=FactorBounds(*policy.spec.factor_bounds),
        parallel_requests=parallel,
        tasks_at_once=at_once,
    )
    place = spark_place(policy.spec, pod, executors, folder)
    if executors is not None:
        tell(
            f"{executors.instances} executors are Pods named "
            f"{place.further['spark.kubernetes.executor.podNamePrefix']}-exec-..."
        )
    return Engine(request, place, clock_ms=clock_ms, tell=tell)


def requests_of(machines: int) -> tuple[int, int | None]:
    """How many requests each machine may have under way, and how many tasks may read at once.

    Executors know nothing of each other's requests, so each has its part of them. Where there are
    more executors than requests, each task has one, and only so many tasks read.
    """
    if machines > _PARALLEL_REQUESTS:
        return 1, _PARALLEL_REQUESTS
    return min(_PARALLEL_OF_ONE, _PARALLEL_REQUESTS // machines), None


def _catalog(spec: Rollup) -> CatalogSettings | None:
    given = spec.storage.catalog
    if given is None:
        return None
    return CatalogSettings(given.type, given.uri, given.namespace, given.warehouse)


def spark_place(
    spec: Rollup, pod: Pod | None, executors: Executors | None, folder: Path
) -> SparkPlace:
    """Where a policy's Spark runs and with which settings; makes room for an event log."""
    memory_mib = mebibytes(spec.driver.memory) if pod is None else pod.memory_mib
    memory = f"{heap_mib(memory_mib)}m"
    cores = spec.driver.cores if executors is None else executors.instances * executors.cores
    further = {**shuffle_settings(cores), **(spec.spark_conf or {}), **_event_log(spec)}
    if executors is None or pod is None:
        return SparkPlace(f"local[{spec.driver.cores},{_ATTEMPTS}]", memory, further)
    template = folder / "executor.json"
    template.write_text(pod_template(executors))
    ports = (DRIVER_PORT, BLOCK_MANAGER_PORT)
    settings = spark_settings(pod, executors, template=template, ports=ports)
    return SparkPlace(master(os.environ), memory, {**further, **settings})


EVENTS_FOLDER = "_spark-events"


def _event_log(spec: Rollup) -> Mapping[str, str]:
    """Settings of Spark's event log on the claim, where older logs make room for a new one."""
    path = spec.storage.mount_path
    if spec.event_log is None or path is None:
        return {}
    folder = Path(path) / EVENTS_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    logs = sorted(folder.iterdir(), key=lambda log: log.stat().st_mtime, reverse=True)
    for old in logs[spec.event_log.keep - 1 :]:
        if old.is_dir():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.unlink(missing_ok=True)
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "true",
    }


def _executors(policy: RollupPolicy, pod: Pod | None) -> Executors | None:
    """None if everything happens in this process."""
    wanted = policy.spec.executors
    if pod is None or not wanted.instances:
        return None
    if not pod.image:
        raise InvalidResource(
            "Executors are Pods of an image, and TIDEGATE_IMAGE does not name one. Set it as in "
            "the operator's own Jobs."
        )
    pod.refuse_other_claim(policy.spec.storage.claim_name)
    pods = policy.spec.pod
    secret = policy.spec.storage.login_secret(policy.name)
    return Executors(
        wanted.instances,
        wanted.cores,
        wanted.requested_millicores,
        mebibytes(wanted.memory),
        {**(pods.labels or {}), **labels(policy.name)},
        tuple(_mounts(policy)),
        (
            *(() if secret is None else login_environment(secret)),
            *({"name": one.name, "value": one.value} for one in pods.env or ()),
        ),
        pods.placement,
        pods.annotations or {},
        pods.ephemeral_storage,
        pod.security,
    )


def _mounts(policy: RollupPolicy) -> Iterator[Mount]:
    storage = policy.spec.storage
    if storage.claim_name is not None and storage.mount_path is not None:
        yield Mount(storage.mount_path, claim=storage.claim_name)
