"""The manifests of a DelayQueue's forwarders: a Deployment and its PodDisruptionBudget.

The Pods run `tidegate forward` with the queue's own login, as files of the Secrets that the queue
names. They have no rights in Kubernetes, and no token for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.kube.api import JsonObject
from tidegate.kube.rollup_jobs import owner
from tidegate.settings import ForwarderOffer, PodToken

CONTAINER = "forwarder"
QUEUE_LABEL = "tidegate.io/queue"
METRICS_PORT = 8080
LOGIN_FOLDER = "/login"
TOKEN_FILE = "token"  # noqa: S105  (the name of a file)
_SCRATCH = "/tmp"  # noqa: S108  (the only place of a read-only file system that can be written to)
_DEFAULT_RESOURCES: Mapping[str, Any] = {
    "requests": {"cpu": "100m", "memory": "128Mi"},
    "limits": {"memory": "512Mi"},
}


@dataclass(frozen=True, slots=True)
class MountedKey:
    """One key of a Secret as the file `path` below LOGIN_FOLDER."""

    secret: str
    key: str
    path: str


@dataclass(frozen=True, slots=True)
class ForwarderPods:
    """What the Pods of one queue run and have. `arguments` follow `tidegate forward`.

    `token` is the file TOKEN_FILE below LOGIN_FOLDER, of the ServiceAccount `default`.
    """

    offer: ForwarderOffer
    replicas: int
    arguments: Sequence[str]
    files: Sequence[MountedKey] = ()
    resources: Mapping[str, Any] = field(default_factory=dict)
    token: PodToken | None = None


def forwarders_name(queue_name: str) -> str:
    """The name of a queue's Deployment and PodDisruptionBudget."""
    return f"{queue_name}-forwarders"


def labels(queue_name: str) -> dict[str, str]:
    """The labels of the Deployment, of its Pods, and of their PodDisruptionBudget."""
    return {
        "app.kubernetes.io/name": "tidegate",
        "app.kubernetes.io/component": "forwarder",
        "app.kubernetes.io/managed-by": "tidegate",
        QUEUE_LABEL: queue_name,
    }


def deployment_body(queue: Mapping[str, Any], pods: ForwarderPods) -> JsonObject:
    """The Deployment. `queue` is a whole object from the API server; it owns the Deployment."""
    name = str(queue["metadata"]["name"])
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(queue),
        "spec": {
            "replicas": pods.replicas,
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": _selector(name)},
            # one at a time: what it forwarded goes to the others before the next one leaves
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "template": {"metadata": {"labels": labels(name)}, "spec": _pod(name, pods)},
        },
    }


def disruption_budget_body(queue: Mapping[str, Any]) -> JsonObject:
    """The PodDisruptionBudget: a drain of nodes takes one forwarder at a time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(queue),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": _selector(str(queue["metadata"]["name"]))},
        },
    }


def _metadata(queue: Mapping[str, Any]) -> JsonObject:
    metadata = queue["metadata"]
    name = str(metadata["name"])
    return {
        "name": forwarders_name(name),
        "namespace": str(metadata["namespace"]),
        "labels": labels(name),
        "ownerReferences": [owner(queue)],
    }


def _selector(queue_name: str) -> dict[str, str]:
    return {"app.kubernetes.io/component": "forwarder", QUEUE_LABEL: queue_name}


def _pod(queue_name: str, pods: ForwarderPods) -> JsonObject:
    volumes: list[JsonObject] = [{"name": "scratch", "emptyDir": {}}]
    mounts: list[JsonObject] = [{"name": "scratch", "mountPath": _SCRATCH}]
    if pods.files or pods.token is not None:
        volumes.append({"name": "login", "projected": _projected(pods.files, pods.token)})
        mounts.append({"name": "login", "mountPath": LOGIN_FOLDER, "readOnly": True})
    return {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 60,
        **(
            {"imagePullSecrets": [{"name": name} for name in pods.offer.pull_secrets]}
            if pods.offer.pull_secrets
            else {}
        ),
        "securityContext": dict(pods.offer.security.pod),
        "containers": [
            {
                "name": CONTAINER,
                "image": pods.offer.image,
                "args": ["forward", *pods.arguments],
                "env": [
                    {
                        "name": "POD_NAME",
                        "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
                    }
                ],
                "ports": [{"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"}],
                "readinessProbe": {
                    "httpGet": {"path": "/metrics", "port": "metrics"},
                    "periodSeconds": 5,
                    "timeoutSeconds": 5,
                },
                "resources": dict(pods.resources or _DEFAULT_RESOURCES),
                "securityContext": dict(pods.offer.security.container),
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": mounts,
            }
        ],
        "topologySpreadConstraints": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "maxSkew": 1,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": _selector(queue_name)},
            }
        ],
        "volumes": volumes,
    }


def _projected(files: Sequence[MountedKey], token: PodToken | None) -> JsonObject:
    """One volume of keys of several Secrets, so that a Pod sees nothing else of them, and a token.

    Kubernetes renews the token before it expires.
    """
    sources: dict[str, list[JsonObject]] = {}
    for one in files:
        sources.setdefault(one.secret, []).append({"key": one.key, "path": one.path})
    projected: list[JsonObject] = [
        {"secret": {"name": name, "items": items}} for name, items in sorted(sources.items())
    ]
    if token is not None:
        given = {
            "path": TOKEN_FILE,
            "audience": token.audience,
            "expirationSeconds": token.expiration_seconds,
        }
        projected.append({"serviceAccountToken": given})
    return {"defaultMode": 0o440, "sources": projected}
