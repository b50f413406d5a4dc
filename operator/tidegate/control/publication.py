"""Delivers reports to Kubernetes: statuses through the status writer, Events through the recorder.

It decides nothing about what is said. A world that is away costs a log line; the next pass sends what is still missing.
"""

from collections.abc import Sequence
from typing import Any, cast

import structlog

from tidegate.control.events import Telling
from tidegate.control.translate import object_key
from tidegate.control.verdict import Verdict
from tidegate.errors import TidegateError
from tidegate.kube.api import EventType, JsonObject, ObjectRef, ResourceKind
from tidegate.kube.cache import ResourceCache
from tidegate.kube.event_recorder import EventRecorder
from tidegate.kube.status_writer import StatusWriter
from tidegate.resources.schema_model import SchemaModel
from tidegate.telemetry import Telemetry

log = structlog.get_logger(__name__)


class KubernetesPublisher:
    """A Publisher for one process."""

    def __init__(self, writer: StatusWriter, recorder: EventRecorder, *, cache: ResourceCache, telemetry: Telemetry) -> None:
        self._writer = writer
        self._recorder = recorder
        self._cache = cache
        self._telemetry = telemetry

    def status(self, kind: ResourceKind, raw: JsonObject, status: SchemaModel, verdicts: Sequence[Verdict]) -> None:
        """See Publisher. Only the fields that the report set are written; the others stay as they are."""
        generation = int(raw["metadata"].get("generation", 0))
        desired = {**_named_fields(status), "observedGeneration": generation, "conditions": [_condition(v, generation) for v in verdicts]}
        try:
            done = self._writer.write(kind, raw, desired)
        except TidegateError as error:
            log.warning("Status could not be written", object=object_key(raw), kind=kind.kind, error=error.message)
            return
        if done.written and done.object is not None:
            self._telemetry.status_writes.labels(kind.kind).inc()
            self._cache.put(kind, done.object)

    def tell(self, kind: ResourceKind, raw: JsonObject, telling: Telling) -> None:
        """See Publisher."""
        event_type = cast(EventType, telling.type)
        if self._recorder.record(ObjectRef.of(kind, raw), event_type, reason=telling.reason.value, message=telling.message):
            self._telemetry.events.labels(telling.type, telling.reason.value).inc()
        log.info("Event", object=object_key(raw), kind=kind.kind, reason=telling.reason.value, message=telling.message)


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
