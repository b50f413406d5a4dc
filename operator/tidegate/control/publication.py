"""Delivers reports to Kubernetes: statuses through the status writer, Events through the recorder.

It decides nothing about what is said. A world that is away costs a log line and one time limit, not one for every object; the next pass
sends what is still missing.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, cast

import structlog

from tidegate.control.report.reporter import Report
from tidegate.control.translate import object_key
from tidegate.control.verdict import Verdict
from tidegate.errors import OutcomeUnknown, TidegateError, Unreachable
from tidegate.kube.api import EventType, ObjectRef
from tidegate.kube.cache import ResourceCache
from tidegate.kube.events import EventRecorder
from tidegate.kube.status import StatusWriter
from tidegate.resources.schema import SchemaModel
from tidegate.telemetry import Telemetry

log = structlog.get_logger(__name__)


class KubernetesPublisher:
    """A Publisher for one process. With an `executor` several objects are reported at once: each is a round trip or more."""

    def __init__(
        self,
        writer: StatusWriter,
        recorder: EventRecorder,
        *,
        cache: ResourceCache,
        telemetry: Telemetry,
        executor: Executor | None = None,
    ) -> None:
        self._writer = writer
        self._recorder = recorder
        self._cache = cache
        self._telemetry = telemetry
        self._map: Callable[..., Iterable[Any]] = map if executor is None else executor.map

    def publish(self, reports: Sequence[Report]) -> frozenset[str]:
        """See Publisher. All statuses come before the first Event: they are what people and Argo CD wait for."""
        away = threading.Event()
        stood = list(self._map(partial(self._put, away), [report for report in reports if report.status is not None]))
        list(self._map(self._tell, reports))
        return frozenset(uid for uid in stood if uid is not None)

    def _put(self, away: threading.Event, report: Report) -> str | None:
        """Write the status, unless Kubernetes was found to be `away`; the object's uid when there was nothing to write."""
        if away.is_set():
            return None
        generation = int(report.raw["metadata"].get("generation", 0))
        fields = {} if report.status is None else _named_fields(report.status)
        # Only the fields that the report set are written; the others stay as they are.
        desired = {**fields, "observedGeneration": generation, "conditions": [_condition(v, generation) for v in report.verdicts]}
        try:
            done = self._writer.write(report.kind, report.raw, desired)
        except TidegateError as error:
            log.warning("Status could not be written", object=object_key(report.raw), kind=report.kind.kind, error=error.message)
            if isinstance(error, Unreachable | OutcomeUnknown):
                away.set()
            return None
        if done.written and done.object is not None:
            self._telemetry.status_writes.labels(report.kind.kind).inc()
            self._cache.put(report.kind, done.object)
        return None if done.written else str(report.raw["metadata"]["uid"])

    def _tell(self, report: Report) -> None:
        for telling in report.tellings:
            event_type = cast(EventType, telling.type)
            about = ObjectRef.of(report.kind, report.raw)
            if self._recorder.record(about, event_type, reason=telling.reason.value, message=telling.message):
                self._telemetry.events.labels(telling.type, telling.reason.value).inc()
            log.info("Event", object=object_key(report.raw), kind=report.kind.kind, reason=telling.reason.value, message=telling.message)


def _named_fields(part: SchemaModel) -> dict[str, Any]:
    """What the report set, with None where a field is to be removed; lists are whole values."""
    document = part.as_document()
    named: dict[str, Any] = {}
    for name in part.model_fields_set:
        alias = type(part).model_fields[name].alias or name
        value = getattr(part, name)
        named[alias] = _named_fields(value) if isinstance(value, SchemaModel) else document.get(alias)
    return named


def _condition(verdict: Verdict, generation: int) -> dict[str, Any]:
    return {
        "type": verdict.type,
        "status": verdict.status.value,
        "observedGeneration": generation,
        "reason": verdict.reason.value,
        "message": verdict.message,
    }
