"""Jobs and ConfigMaps of the in-memory API server, for tests. Nothing runs here: a test says how a Job ended (`finish_job`)."""

from __future__ import annotations

import copy
import itertools
import threading
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from controller_logic.reasons import Reason
from tidegate.errors import Conflict, NotFound
from tidegate.kube.api import JsonObject


class MemoryJobs:
    """The part of `InMemoryKubernetes` that keeps Jobs and ConfigMaps."""

    _versions: Iterator[int]

    def __init__(self) -> None:
        self._versions = itertools.count(1)
        self._jobs: dict[tuple[str, str], JsonObject] = {}
        self._config_maps: dict[tuple[str, str], JsonObject] = {}

    def _answering(self) -> threading.RLock:
        raise NotImplementedError

    def finish_job(self, namespace: str, name: str, *, condition: str, at: str = "2026-01-01T01:00:00Z", message: str = "") -> None:
        """Let the Job end, `condition` Complete or Failed, as its controller would."""
        ended = {"type": condition, "status": "True", "lastTransitionTime": at, "reason": "Test", "message": message}
        self._jobs[namespace, name]["status"] = {"conditions": [ended]} | ({"completionTime": at} if condition == "Complete" else {})

    def list_jobs(self, namespace: str, *, selector: str) -> list[JsonObject]:
        wanted = dict(part.split("=", 1) for part in selector.split(","))
        with self._answering():
            here = [job for (place, _), job in self._jobs.items() if place == namespace]
            return [copy.deepcopy(job) for job in here if wanted.items() <= (job["metadata"].get("labels") or {}).items()]

    def create_job(self, namespace: str, body: Mapping[str, Any]) -> JsonObject:
        with self._answering():
            key = (namespace, str(body["metadata"]["name"]))
            if key in self._jobs:
                raise Conflict(f"Job {namespace}/{key[1]} exists already.")
            self._jobs[key] = self._named(body)
            return copy.deepcopy(self._jobs[key])

    def delete_job(self, namespace: str, name: str, *, uid: str) -> None:
        with self._answering():
            found = self._jobs.get((namespace, name))
            if found is not None and found["metadata"]["uid"] == uid:
                del self._jobs[namespace, name]

    def read_config_map(self, namespace: str, name: str) -> JsonObject | None:
        with self._answering():
            return copy.deepcopy(self._config_maps.get((namespace, name)))

    def write_config_map(self, namespace: str, body: Mapping[str, Any]) -> JsonObject:
        with self._answering():
            key = (namespace, str(body["metadata"]["name"]))
            present, over = self._config_maps.get(key), body["metadata"].get("resourceVersion")
            if present is None and over is not None:
                raise NotFound(Reason.ROLLUPS_UNSEEN, f"ConfigMap {namespace}/{key[1]} does not exist.")
            if present is not None and present["metadata"]["resourceVersion"] != over:
                raise Conflict(f"ConfigMap {namespace}/{key[1]} has changed meanwhile.")
            self._config_maps[key] = self._named(body)
            return copy.deepcopy(self._config_maps[key])

    def _named(self, body: Mapping[str, Any]) -> JsonObject:
        made = copy.deepcopy(dict(body))
        made["metadata"] |= {"uid": str(uuid.uuid4()), "resourceVersion": str(next(self._versions))}
        return made
