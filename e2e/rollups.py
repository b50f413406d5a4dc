"""Rollup Jobs of a scenario: a volume for the tables, Jobs as the operator makes them, their Pods,
and what ends up in the store.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from e2e.cluster import Cluster
from e2e.declared import Document
from e2e.scene import Scenario
from lab.iceberg import RestCatalog
from lab.object_stores import ObjectStore
from lab.process import wait_until
from tidegate.control.rollups import TABLES_LABEL, pod_of
from tidegate.kube.rollup_jobs import job_body
from tidegate.resources.kinds import parse_policy
from tidegate.rollup.schemas import TABLES
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.verify import verify
from tidegate.settings import RollupOffer

ACCOUNT = "tidegate-rollup"
_JOB_SECONDS = 400.0
_PODS_SECONDS = 180.0


class Rollups:
    """What a scenario sees of rollups in its namespace. `image` is what the operator was configured
    with.
    """

    def __init__(self, scene: Scenario, cluster: Cluster, image: str) -> None:
        self._scene = scene
        self._cluster = cluster
        self._image = image
        self._volumes: list[str] = []

    def volume(self, name: str) -> UsageStore:
        """Make a claim of this name; the store as it is seen from here."""
        here, on_node = self._cluster.shared_folder(f"{self._scene.namespace}-{name}")
        volume = f"{self._scene.namespace}-{name}"
        self._volumes.append(volume)
        size, shared = (
            {"storage": "1Gi"},
            {"accessModes": ["ReadWriteMany"], "storageClassName": ""},
        )
        claimed = {"namespace": self._scene.namespace, "name": name}
        spec = {
            **shared,
            "capacity": size,
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": on_node},
            "claimRef": claimed,
        }
        claim = {**shared, "resources": {"requests": size}, "volumeName": volume}
        self._scene.declare(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": volume},
                "spec": spec,
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "labels": {TABLES_LABEL: "true"}},
                "spec": claim,
            },
        )
        return UsageStore.at(f"file://{here}")

    def delete_volumes(self) -> None:
        """They belong to no namespace."""
        if self._volumes:
            self._cluster.kubectl("delete", "persistentvolume", *self._volumes, "--wait=false")

    def start(self, policy: str, start: datetime, end: datetime) -> str:
        """Make the Job that the operator would make for this window; its name."""
        raw = dict(self._scene.read(f"bbp/{policy}"))
        spec = parse_policy(raw, strict=False).spec.rollup
        assert spec is not None
        pod = pod_of(
            spec, RollupOffer(image=self._image, service_account=ACCOUNT), policy_name=policy
        )
        body = job_body(
            raw, pod, start_ms=round(start.timestamp() * 1000), end_ms=round(end.timestamp() * 1000)
        )
        self._scene.kubectl("create", "-f", "-", input=json.dumps(body))
        return str(body["metadata"]["name"])

    def wait_for(self, job: str) -> None:
        """Return once the Job succeeded; AssertionError with its log when it failed."""
        ended = partial(self._ended, job)
        how = wait_until(ended, f"Job {job} to end", timeout_seconds=_JOB_SECONDS, poll_seconds=0.5)
        assert how == "Complete", f"{job}: {how}\n{self.log(job)}"

    def jobs(self, policy: str) -> Mapping[str, str]:
        """The policy's Jobs and how they ended, "" while they run."""
        return {
            job["metadata"]["name"]: _end_of(job)
            for job in self._listed("jobs", f"tidegate.io/policy={policy}")
        }

    def drivers(self, job: str) -> Sequence[str]:
        """The Job's own Pods, oldest first, those that ended too."""
        return [
            pod["metadata"]["name"]
            for pod in self._listed("pods", f"batch.kubernetes.io/job-name={job}")
        ]

    def executors(self, *, running: bool = False) -> Sequence[str]:
        """The Pods that Spark started and that are there, or those of them that run."""
        pods = self._listed("pods", "spark-role=executor")
        return [
            pod["metadata"]["name"]
            for pod in pods
            if not running or pod["status"].get("phase") == "Running"
        ]

    def wait_for_executors(self, count: int) -> Sequence[str]:
        """Return once that many run at the same time."""
        running = partial(self.executors, running=True)
        wait_until(
            lambda: len(running()) >= count,
            f"{count} executors",
            timeout_seconds=_PODS_SECONDS,
            poll_seconds=0.2,
        )
        return running()

    def wait_until_no_executor_is_left(self) -> None:
        """Kubernetes takes them away with the Pod that started them."""
        wait_until(
            lambda: not self.executors(),
            "no executor to be left",
            timeout_seconds=60.0,
            poll_seconds=0.5,
        )

    def kill(self, pod: str) -> None:
        """SIGKILL, as a node that vanishes would do it."""
        self._scene.kubectl("delete", "pod", pod, "--grace-period=0", "--force")

    def log(self, job: str) -> str:
        """What the Job's newest Pod says."""
        return self._scene.kubectl("logs", f"job/{job}", "--tail=40")

    def last_words(self, job: str) -> str:
        """What Kubernetes keeps of the end of the Job's Pod."""
        pods = self._listed("pods", f"batch.kubernetes.io/job-name={job}")
        return str(
            pods[-1]["status"]["containerStatuses"][0]["state"]["terminated"].get("message", "")
        )

    def _ended(self, job: str) -> str:
        return _end_of(json.loads(self._scene.kubectl("get", "job", job, "-o", "json")))

    def _listed(self, kind: str, selector: str) -> list[Any]:
        found = self._scene.kubectl(
            "get", kind, "-l", selector, "--sort-by=.metadata.creationTimestamp", "-o", "json"
        )
        return list(json.loads(found)["items"])


def on_claim(name: str) -> Document:
    """The storage of a policy whose tables are on this claim."""
    return {"url": "file:///var/lib/tidegate/usage", "claimName": name}


def in_bucket(bucket: ObjectStore, *, login: str, catalog: RestCatalog) -> Document:
    """The storage of tables in S3 that a catalog knows; `login` is the Secret's name."""
    return {
        "url": bucket.address("orders"),
        "endpoint": bucket.endpoint,
        "region": bucket.environment["AWS_DEFAULT_REGION"],
        "credentialsSecretRef": {"name": login},
        "catalog": {"type": "rest", "uri": catalog.uri, "namespace": "orders"},
    }


def rolling_up(storage: Document, *, interval_seconds: int, executors: int = 2) -> Document:
    """What a policy needs beside metrics; Pods as small as a machine with two processors has room
    for.
    """
    small = {"cores": 1, "requestMillicores": 100, "memory": "1Gi"}
    return {
        "rollup": {
            "intervalSeconds": interval_seconds,
            "storage": storage,
            "driver": small,
            "executors": {"instances": executors, **small},
        }
    }


def tables_in(store: UsageStore) -> Mapping[str, Any]:
    """Every row of every table, in order, without the one policy that each store belongs to.

    AssertionError where the store is not whole.
    """
    verdict = verify(store)
    assert verdict.is_sound, verdict.document()
    tables = {
        name: store.rows(name).sort_by([(key, "ascending") for key in kind.key])
        for name, kind in TABLES.items()
    }
    policies = [set(table["policy"].to_pylist()) for table in tables.values()]
    assert len(set().union(*policies)) == 1, policies
    return {name: table.drop_columns(["policy"]) for name, table in tables.items()}


def shown(store: UsageStore) -> Path:
    """The folder of the store here."""
    return Path(store.storage.shown.removeprefix("file://"))


def _end_of(job: Mapping[str, Any]) -> str:
    conditions = job.get("status", {}).get("conditions") or ()
    return next(
        (
            str(one["type"])
            for one in conditions
            if one["status"] == "True" and one["type"] in ("Complete", "Failed")
        ),
        "",
    )
