"""Executors as Pods: Spark's settings for a driver in the Job's Pod, and the Pods' template. Pure.

Executors belong to the driver's Pod, so Kubernetes takes them away with it, however it ended. They
get no token. Spark could also make ConfigMaps, Services and claims; each of that is switched off,
and Pods are the only thing that the Job needs rights for.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from tidegate.errors import InvalidResource
from tidegate.kube.rollup_jobs import scratch, space_on_node
from tidegate.rollup.schemas import DAY_MS, FIVE_MINUTES_MS, HOUR_MS
from tidegate.settings import SecurityContexts

# A Job's run computes the hours of its window, and again those that late samples may have changed.


LATE_MS = 2 * HOUR_MS
# Hours that ended longer ago are left alone: no sample comes so late, and a server that begins to
# drop them would give less than before.
NOT_AGAIN_AFTER_MS = DAY_MS
SETTLE_MS = 180_000


def run_span(start_ms: int, end_ms: int, *, now_ms: int) -> tuple[int, int]:
    """From a whole hour to a whole window of 5 minutes, around [start_ms, end_ms).

    Whatever of the last hour is over is in it, so that a window that is computed late never takes
    from an hour what later ones put there. Raises InvalidResource for a window that is not over or
    not of whole five minutes.
    """
    if start_ms % FIVE_MINUTES_MS or end_ms % FIVE_MINUTES_MS or start_ms >= end_ms:
        raise InvalidResource(
            f"[{start_ms}, {end_ms}) ms is not a window of whole five minutes; nothing is computed."
        )
    if end_ms > now_ms:
        raise InvalidResource(
            f"The window ends in {(end_ms - now_ms) / 1000:.0f} s; only what is over can be "
            f"computed. Ask again then."
        )
    first_ms = start_ms - start_ms % HOUR_MS
    if now_ms - first_ms <= NOT_AGAIN_AFTER_MS:
        first_ms -= LATE_MS
    over_ms = now_ms - SETTLE_MS
    return first_ms, max(
        end_ms, min(end_ms + -end_ms % HOUR_MS, over_ms - over_ms % FIVE_MINUTES_MS)
    )


# `kube.rollup_jobs` writes the Pod's name, address and memory into its environment.


# The other half is for Java itself, and for Python's workers, in which samples are folded.
_HEAP_SHARE = 0.5
_LEAST_HEAP_MIB = 512  # Spark refuses to start with less than 450


@dataclass(frozen=True, slots=True)
class Pod:
    """The Job's Pod; executors reach it at `address` and run `image`, pulled with the Secrets.

    `claim` is the one that executors may mount; None = the Job is a person's, who chose it.
    """

    name: str
    namespace: str
    address: str
    memory_mib: int
    image: str
    service_account: str
    pull_secrets: tuple[str, ...] = ()
    claim: str | None = None
    security: SecurityContexts = field(default_factory=SecurityContexts)

    def refuse_other_claim(self, claim: str | None) -> None:
        """Raise InvalidResource if the policy names another one since the Job was made."""
        if self.claim not in (None, claim or ""):
            raise InvalidResource(
                f"spec.rollup.storage.claimName is {claim or 'unset'} now; this Job was made for "
                f"{self.claim or 'no claim'}, and executors mount no other one. The next Job uses "
                "the current policy."
            )


def pod_of(environment: Mapping[str, str]) -> Pod | None:
    """None outside of a Job's Pod; raises InvalidResource for a missing or unreadable variable."""
    if "POD_NAME" not in environment:
        return None
    missing = sorted(_NEEDED_VARIABLES - environment.keys())
    if missing:
        raise _incomplete(
            f"{', '.join(missing)} is missing"
            if len(missing) == 1
            else f"{', '.join(missing)} are missing"
        )
    try:
        return Pod(
            name=environment["POD_NAME"],
            namespace=environment["POD_NAMESPACE"],
            address=environment["POD_IP"],
            memory_mib=_mebibytes(environment["MEMORY_LIMIT_MIB"]),
            image=environment.get("TIDEGATE_IMAGE", ""),
            service_account=environment.get("SERVICE_ACCOUNT", "default"),
            pull_secrets=tuple(
                name for name in environment.get("TIDEGATE_PULL_SECRETS", "").split(",") if name
            ),
            claim=environment.get("TIDEGATE_CLAIM"),
            security=SecurityContexts.of_environment(environment),
        )
    except ValueError as error:
        raise _incomplete(str(error)) from None


def _mebibytes(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"MEMORY_LIMIT_MIB is {text!r}, which is not a whole number") from None


_NEEDED_VARIABLES = frozenset({"POD_NAME", "POD_NAMESPACE", "POD_IP", "MEMORY_LIMIT_MIB"})


def _incomplete(what: str) -> InvalidResource:
    return InvalidResource(
        f"The Pod's environment is not complete for a rollup: {what}. Jobs that the operator makes "
        "have these variables; see examples/rollup/backfill.yaml for your own."
    )


def heap_mib(memory_mib: int) -> int:
    """How much of a Pod's memory Java may fill with objects."""
    return max(_LEAST_HEAP_MIB, int(memory_mib * _HEAP_SHARE))


_CONTAINER = "executor"
_SCRATCH = "/tmp"  # noqa: S108  (the only place of a read-only file system that can be written to)
_LONGEST_PREFIX = 36  # Spark adds up to 16 characters, and the digest takes nine


@dataclass(frozen=True, slots=True)
class Mount:
    """A claim and where it is mounted. Both sides have it at the same path."""

    path: str
    claim: str


@dataclass(frozen=True, slots=True)
class Executors:
    """How many executors a policy asks for, and their size; `labels` are those of the Job's Pod.

    `environment` is what they have beside Spark's, as a manifest writes it, `placement` are fields
    of a Pod's spec, `security` is the Job's own.
    """

    instances: int
    cores: int
    requested_millicores: int
    memory_mib: int
    labels: Mapping[str, str]
    mounts: Sequence[Mount] = ()
    environment: Sequence[Mapping[str, Any]] = ()
    placement: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    ephemeral_storage: str | None = None
    security: SecurityContexts = field(default_factory=SecurityContexts)


def spark_settings(
    pod: Pod, executors: Executors, *, template: Path, ports: tuple[int, int]
) -> Mapping[str, str]:
    """Spark's settings beside the usual; `ports` of driver and blocks, `template` of Pods."""
    heap = heap_mib(executors.memory_mib)
    return {
        "spark.submit.deployMode": "client",
        "spark.driver.host": pod.address,
        # Spark hands this one to executors, so it must be no wildcard
        "spark.driver.bindAddress": pod.address,
        "spark.driver.port": str(ports[0]),
        "spark.driver.blockManager.port": str(ports[1]),
        "spark.blockManager.port": str(ports[1]),
        "spark.authenticate": "true",  # anybody in the cluster could reach these ports
        "spark.network.crypto.enabled": "true",
        "spark.executor.instances": str(executors.instances),
        "spark.executor.cores": str(executors.cores),
        "spark.executor.memory": f"{heap}m",
        "spark.executor.memoryOverhead": f"{executors.memory_mib - heap}m",
        "spark.kubernetes.namespace": pod.namespace,
        "spark.kubernetes.driver.pod.name": pod.name,
        "spark.kubernetes.container.image": pod.image,
        "spark.kubernetes.container.image.pullSecrets": ",".join(pod.pull_secrets),
        "spark.kubernetes.authenticate.executor.serviceAccountName": pod.service_account,
        "spark.kubernetes.executor.podTemplateFile": str(template),
        "spark.kubernetes.executor.podTemplateContainerName": _CONTAINER,
        "spark.kubernetes.executor.podNamePrefix": _prefix(pod.name),
        "spark.kubernetes.executor.request.cores": f"{executors.requested_millicores}m",
        "spark.kubernetes.executor.limit.cores": str(executors.cores),
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.allocation.driver.readinessTimeout": "30s",
        **{
            f"spark.kubernetes.executor.label.{name}": value
            for name, value in executors.labels.items()
        },
    }


def master(environment: Mapping[str, str]) -> str:
    """Return the API server by address, no name to resolve; KeyError outside of a cluster."""
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
    return f"k8s://https://{f'[{host}]' if ':' in host else host}:{port}"


def pod_template(executors: Executors) -> str:
    """The template as JSON, which is YAML: a Pod that is as restricted as the Job's own."""
    volumes = [_volume(number, mount) for number, mount in enumerate(executors.mounts)]
    mounts = [
        {"name": f"mount-{number}", "mountPath": mount.path, "readOnly": False}
        for number, mount in enumerate(executors.mounts)
    ]
    container = {
        "name": _CONTAINER,
        "env": list(executors.environment),
        "securityContext": dict(executors.security.container),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "scratch", "mountPath": _SCRATCH}, *mounts],
    }
    if executors.ephemeral_storage is not None:
        space = space_on_node(executors.ephemeral_storage)
        container["resources"] = {"requests": space, "limits": space}
    spec = {
        **executors.placement,
        "automountServiceAccountToken": False,
        "securityContext": dict(executors.security.pod),
        "containers": [container],
        "volumes": [
            {"name": "scratch", "emptyDir": scratch(executors.ephemeral_storage)},
            *volumes,
        ],
    }
    metadata = {"annotations": dict(executors.annotations)}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def _volume(number: int, mount: Mount) -> dict[str, Any]:
    return {"name": f"mount-{number}", "persistentVolumeClaim": {"claimName": mount.claim}}


def _prefix(pod_name: str) -> str:
    """The prefix of this Pod's executors: a DNS label from a letter on, of no other attempt."""
    stem = pod_name[:_LONGEST_PREFIX].rstrip("-")
    stem = stem if stem[0].isalpha() else f"x{stem[1:]}"
    return f"{stem}-{sha256(pod_name.encode()).hexdigest()[:8]}"
