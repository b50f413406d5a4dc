"""Spark and a way to read Prometheus, opened for one policy and closed again: in this process alone, or with executors beside its Pod."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tidegate.commands.rollup_declared import RollupPolicy
from tidegate.errors import InvalidResource
from tidegate.kube.rollup_jobs import BLOCK_MANAGER_PORT, DRIVER_PORT, labels
from tidegate.resources.rollup import mebibytes
from tidegate.rollup.ingest import IngestOrder, brokers_between, catalogue
from tidegate.rollup.job import Executors, Mount, Pod, heap_mib, master, pod_template, spark_settings
from tidegate.rollup.samples import Transport
from tidegate.rollup.spark.run import RollupRun, run_rollup
from tidegate.rollup.spark.session import spark_session
from tidegate.rollup.spark.stages import workers_errors
from tidegate.rollup.tables.format import new_run_id
from tidegate.rollup.tables.manifest import Manifest
from tidegate.rollup.tables.upkeep import Retention
from tidegate.rollup.terms.policy import PolicyTerms
from tidegate.rollup.transport.exchange import HistorySettings
from tidegate.rollup.transport.ladder import Probe, choose

_PROBED_MS = 600_000
_PARALLEL_REQUESTS = 8  # to one server, of all machines together; what Prometheus itself allows of remote reads is 10
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Span:
    """[start_ms, end_ms), from a whole hour to a whole window of 5 minutes."""

    start_ms: int
    end_ms: int


class Engine:
    """Publishes spans for one policy while it is entered. `pod` None = outside of a cluster, where there are no executors.

    `folder` is the process's own.
    """

    def __init__(
        self, policy: RollupPolicy, pod: Pod | None, folder: Path, *, clock_ms: Callable[[], int], tell: Callable[[str], None]
    ) -> None:
        self._policy = policy
        self._pod = pod
        self._folder = folder
        self._clock_ms = clock_ms
        self._tell = tell
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        cores = self._policy.spec.driver.cores
        memory_mib = mebibytes(self._policy.spec.driver.memory) if self._pod is None else self._pod.memory_mib
        executors = self._executors()
        where, further = f"local[{cores},{_ATTEMPTS}]", dict[str, str]()
        if executors is not None and self._pod is not None:
            template = self._folder / "executor.json"
            template.write_text(pod_template(executors))
            where, ports = master(os.environ), (DRIVER_PORT, BLOCK_MANAGER_PORT)
            further = dict(spark_settings(self._pod, executors, template=template, ports=ports))
            self._tell(f"{executors.instances} executors are Pods named {further['spark.kubernetes.executor.podNamePrefix']}-exec-...")
        session = spark_session("tidegate-rollup", master=where, memory=f"{heap_mib(memory_mib)}m", further=further)
        self._spark = self._stack.enter_context(session)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def knows_brokers(self, start_ms: int, end_ms: int) -> bool:
        """Whether Prometheus has anything of any broker in [start_ms, end_ms), which need not be on edges. Raises tidegate.errors."""
        rung = self._rung(end_ms)
        try:
            return bool(brokers_between(rung, self._policy.metrics, start_ms, end_ms))
        finally:
            rung.close()

    def publish(self, span: Span) -> list[Manifest]:
        """Compute the span's hours and what is made of them. Raises tidegate.errors; what was published until then stays."""
        rung = self._rung(span.end_ms)
        try:
            order = IngestOrder(new_run_id(self._clock_ms()), self._policy.spec.storage.url, rung.name, self._policy.metrics, self._history)
            retention = self._policy.spec.retention_days
            run = RollupRun(
                order,
                span.start_ms,
                span.end_ms,
                self._terms(),
                Retention(retention.five_minutes, retention.hours),
                clock_ms=self._clock_ms,
                tell=self._tell,
            )
            with workers_errors():
                return run_rollup(self._spark, run, rung)
        finally:
            rung.close()

    @property
    def _history(self) -> HistorySettings:
        """How hard to press the server: executors know nothing of each other's requests, so each may have its part of them."""
        metrics = self._policy.metrics
        executors = self._executors()
        parallel = _PARALLEL_REQUESTS // (1 if executors is None else executors.instances)
        return HistorySettings(
            metrics.server, scrape_interval_ms=metrics.scrape_interval_seconds * 1000, parallel_requests=max(1, min(4, parallel))
        )

    def _rung(self, end_ms: int) -> Transport:
        traffic = catalogue(self._policy.metrics)["fetch"].client_bytes
        ladder = choose(self._history, Probe(traffic, end_ms - _PROBED_MS, end_ms))
        self._tell(str(ladder))
        return ladder.rung

    def _terms(self) -> PolicyTerms:
        source = self._policy.source
        return PolicyTerms.of(source.declared.policy, self._policy.tiers, source.tier_statuses)

    def _executors(self) -> Executors | None:
        """None where everything happens in this process."""
        wanted, pod = self._policy.spec.executors, self._pod
        if pod is None or not wanted.instances:
            return None
        if not pod.image:
            raise InvalidResource(
                "Executors are Pods of an image, and TIDEGATE_IMAGE does not name one. Set it as in the operator's own Jobs."
            )
        return Executors(
            wanted.instances,
            wanted.cores,
            wanted.requested_millicores,
            mebibytes(wanted.memory),
            labels(self._policy.name),
            tuple(self._mounts()),
        )

    def _mounts(self) -> Iterator[Mount]:
        storage = self._policy.spec.storage
        if storage.claim_name is not None and storage.mount_path is not None:
            yield Mount(storage.mount_path, claim=storage.claim_name)
