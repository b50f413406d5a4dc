"""How a rollup Job looks to Kubernetes: one Pod that is tried a few times, may not live long, and cleans itself up. Pure.

Why it looks so: restartPolicy Never, because a container that is started again in the same Pod would leave the executors of the one before;
our own exit codes (64 wrong configuration, 65 wrong schema of data, 77 forbidden) fail the Job at once, because trying again mends none of
them; an eviction is not the Job's fault and is not counted; a new Pod begins only when the old one is really gone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from tidegate.kube.api import JsonObject

CONTAINER = "rollup"
USER_ID = 65532
EXIT_BAD_CONFIGURATION, EXIT_BAD_DATA, EXIT_FORBIDDEN = 64, 65, 77
DRIVER_PORT, BLOCK_MANAGER_PORT = 7078, 7079
LONGEST_NAME = 57  # a Pod's name is the Job's and six characters more, and has to fit a label
POLICY_LABEL = "tidegate.io/policy"
START, END, GENERATION = "tidegate.io/window-start", "tidegate.io/window-end", "tidegate.io/policy-generation"
_TRIES_AGAIN = 2
_KEPT_SECONDS = 3600
_SCRATCH = "/tmp"  # noqa: S108  (the only place of a read-only file system that can be written to)


@dataclass(frozen=True, slots=True)
class JobPod:
    """What a policy and the operator's set-up say of the Job's Pod. `mount` is a claim and where it goes; None = no volume."""

    image: str
    service_account: str
    cores: int
    requested_millicores: int
    memory: str
    deadline_seconds: int
    mount: tuple[str, str] | None = None
    pull_secrets: tuple[str, ...] = ()
    has_executors: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


def selector(policy_name: str) -> str:
    """The labels by which the Jobs of one policy are found."""
    return f"app.kubernetes.io/component=rollup,{POLICY_LABEL}={policy_name}"


def labels(policy_name: str) -> dict[str, str]:
    """The labels of a Job, of its Pod, and of the ConfigMap that they write."""
    return {
        "app.kubernetes.io/name": "tidegate",
        "app.kubernetes.io/component": "rollup",
        "app.kubernetes.io/managed-by": "tidegate",
        POLICY_LABEL: policy_name,
    }


def job_name(policy_name: str, start_ms: int, end_ms: int) -> str:
    """`<policy>-rollup-<start>-<minutes>m`, a DNS label; what had to be changed for that is told apart by a digest."""
    suffix = f"-rollup-{datetime.fromtimestamp(start_ms / 1000, UTC):%Y%m%d%H%M}-{(end_ms - start_ms) // 60_000}m"
    stem = policy_name.replace(".", "-")
    if stem == policy_name and len(stem) + len(suffix) <= LONGEST_NAME:
        return stem + suffix
    digest = sha256(policy_name.encode()).hexdigest()[:8]
    return f"{stem[: LONGEST_NAME - len(suffix) - len(digest) - 1].rstrip('-')}-{digest}{suffix}"


def job_body(policy: Mapping[str, Any], pod: JobPod, *, start_ms: int, end_ms: int) -> JsonObject:
    """The Job that computes one window for `policy`, a whole object that came from the API server, which also owns it."""
    metadata = policy["metadata"]
    name, namespace = str(metadata["name"]), str(metadata["namespace"])
    window = {START: rfc3339(start_ms), END: rfc3339(end_ms)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(name, start_ms, end_ms),
            "namespace": namespace,
            "labels": labels(name),
            "annotations": {**window, GENERATION: str(metadata.get("generation", 0))},
            "ownerReferences": [owner(policy)],
        },
        "spec": {
            "backoffLimit": _TRIES_AGAIN,
            "activeDeadlineSeconds": pod.deadline_seconds,
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": _failure_rules()},
            "template": {"metadata": {"labels": labels(name), "annotations": window}, "spec": _pod(f"{namespace}/{name}", pod, window)},
        },
    }


def owner(policy: Mapping[str, Any]) -> JsonObject:
    """The reference by which Kubernetes takes an object away with its policy."""
    metadata = policy["metadata"]
    return {"apiVersion": policy["apiVersion"], "kind": policy["kind"], "name": metadata["name"], "uid": metadata["uid"]}


def is_owned(obj: Mapping[str, Any], policy_uid: str) -> bool:
    """Whether an object is this policy's, and not of an earlier one of its name or of somebody else."""
    return any(one.get("uid") == policy_uid for one in obj["metadata"].get("ownerReferences") or ())


def rfc3339(time_ms: int) -> str:
    """A time in UTC, as people and the command line read it; windows begin on whole minutes."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _failure_rules() -> list[JsonObject]:
    codes = [EXIT_BAD_CONFIGURATION, EXIT_BAD_DATA, EXIT_FORBIDDEN]
    return [
        {"action": "FailJob", "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": codes}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]


def _pod(policy_key: str, pod: JobPod, window: Mapping[str, str]) -> JsonObject:
    claims = [] if pod.mount is None else [{"name": "tables", "persistentVolumeClaim": {"claimName": pod.mount[0]}}]
    return {
        "restartPolicy": "Never",
        "serviceAccountName": pod.service_account,
        "automountServiceAccountToken": True,
        **({"imagePullSecrets": [{"name": name} for name in pod.pull_secrets]} if pod.pull_secrets else {}),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(policy_key, pod, window)],
        "volumes": [{"name": "scratch", "emptyDir": {}}, *claims],
    }


def _container(policy_key: str, pod: JobPod, window: Mapping[str, str]) -> JsonObject:
    mounts = [{"name": "scratch", "mountPath": _SCRATCH}]
    if pod.mount is not None:
        mounts.append({"name": "tables", "mountPath": pod.mount[1]})
    ports = (("driver", DRIVER_PORT), ("blocks", BLOCK_MANAGER_PORT)) if pod.has_executors else ()
    return {
        "name": CONTAINER,
        "image": pod.image,
        "args": ["rollup", "job", f"--policy={policy_key}", f"--window-start={window[START]}", f"--window-end={window[END]}"],
        "env": [*_told_of_itself(), *({"name": name, "value": value} for name, value in sorted(pod.environment.items()))],
        **({"ports": [{"name": name, "containerPort": port} for name, port in ports]} if ports else {}),
        "resources": {
            "requests": {"cpu": f"{pod.requested_millicores}m", "memory": pod.memory},
            "limits": {"cpu": str(pod.cores), "memory": pod.memory},
        },
        "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def _told_of_itself() -> list[JsonObject]:
    """What Spark needs to know of the Pod that it runs in, and the heap is made from."""
    fields = {
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "POD_IP": "status.podIP",
        "NODE": "spec.nodeName",
        "SERVICE_ACCOUNT": "spec.serviceAccountName",
    }
    told: list[JsonObject] = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]
    limit = {"containerName": CONTAINER, "resource": "limits.memory", "divisor": "1Mi"}
    return [*told, {"name": "MEMORY_LIMIT_MIB", "valueFrom": {"resourceFieldRef": limit}}]
