"""The manifest of a rollup Job, and the ConfigMap in which Jobs record their results.

A Job has one Pod that is tried a few times, has a deadline and is deleted after its end.
restartPolicy is Never, because a container that is started again in the same Pod would leave the
executors of the one before. Our own exit codes (64 wrong configuration, 65 wrong schema of data, 77
forbidden) fail the Job at once, because trying again fixes none of them. An eviction is not the
Job's fault and is not counted. A new Pod begins only when the old one is gone.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from math import isfinite
from typing import Any

from tidegate.errors import Conflict
from tidegate.kube.api import JsonObject, Kubernetes
from tidegate.retry import retry
from tidegate.settings import SecurityContexts
from tidegate_logic.model import BYTE_RATE_OF, DirectionUsage, Entity, Usage
from tidegate_logic.rollup_schedule import Window, merged
from tidegate_logic.words import rfc3339_ms

# --- the result of Jobs: windows that are published, and usage ------------------------------------
#
# Jobs and operator both use this code, so that neither writes what the other cannot read. The text
# has to fit into a ConfigMap (1 MiB): figures of the entities that move least are left out when it
# would not. Times are milliseconds since the epoch.


SCHEMA_VERSION = 1
RESULT_KEY = "result.json"
MOST_BYTES = 900_000
_LONGEST_PROBLEM = 1000  # characters


@dataclass(frozen=True, slots=True)
class RollupResult:
    """The result of one policy's Jobs.

    Figures count until `valid_until_ms`; `usage` None = there are none yet. `empty` is time without
    samples in Prometheus, too old for samples to come. A part that is `published` later is not
    empty any more. `catalog_problem` is why the newest Job could not bring the catalog up to the
    tables.
    """

    policy_uid: str
    computed_at_ms: int
    valid_until_ms: int
    published: tuple[Window, ...] = ()
    usage: Usage | None = None
    empty: tuple[Window, ...] = ()
    catalog_problem: str | None = None


def result_name(policy_name: str) -> str:
    """Name of the ConfigMap, beside the policy."""
    return f"{policy_name}-rollup"


def encode(result: RollupResult, *, most_bytes: int = MOST_BYTES) -> str:
    """The result as text for `RESULT_KEY`, at most `most_bytes` long."""
    document: dict[str, Any] = {
        "schemaVersion": SCHEMA_VERSION,
        "policyUid": result.policy_uid,
        "computedAtMs": result.computed_at_ms,
        "validUntilMs": result.valid_until_ms,
        "publishedMs": _pairs(result.published),
        "emptyMs": _pairs(result.empty),
    }
    if result.catalog_problem is not None:
        document["catalogProblem"] = result.catalog_problem[:_LONGEST_PROBLEM]
    if result.usage is None:
        return _text(document)
    usage = {"days": result.usage.days, "untilMs": round(result.usage.until_seconds * 1000)}
    room = most_bytes - len(_text(document | {"usage": usage | {"entities": [], "omitted": 10**9}}))
    rows = _fitting(_rows(result.usage), room)
    omitted = len({entity for entity, _ in result.usage.figures}) - len(rows)
    return _text(document | {"usage": usage | {"entities": rows, "omitted": omitted}})


def decode(text: str) -> RollupResult:
    """The result in a text.

    Raises ValueError, with a sentence, for anything else and for another schema version.
    """
    try:
        document = json.loads(text)
    except ValueError:
        raise ValueError("it is not JSON") from None
    if not isinstance(document, Mapping) or document.get("schemaVersion") != SCHEMA_VERSION:
        found = document.get("schemaVersion") if isinstance(document, Mapping) else None
        raise ValueError(
            f"its schemaVersion is {found!r}, and this version of Tidegate reads {SCHEMA_VERSION}"
        )
    try:
        return RollupResult(
            policy_uid=str(document["policyUid"]),
            computed_at_ms=int(document["computedAtMs"]),
            valid_until_ms=int(document["validUntilMs"]),
            published=merged(_window(*pair) for pair in document["publishedMs"]),
            usage=_usage(document["usage"]) if "usage" in document else None,
            empty=merged(_window(*pair) for pair in document.get("emptyMs", ())),
            catalog_problem=document.get("catalogProblem"),
        )
    except KeyError as error:
        raise ValueError(f"its field {error} is missing") from None
    except (TypeError, AttributeError, OverflowError):
        raise ValueError("one of its fields has another shape than Tidegate writes") from None


def _pairs(windows: Iterable[Window]) -> list[list[int]]:
    return [[window.start_ms, window.end_ms] for window in merged(windows)]


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def _rows(usage: Usage) -> list[dict[str, Any]]:
    """One row an entity, the one that moves most first."""
    rows: dict[Entity, dict[str, Any]] = {}
    for (entity, key), figures in usage.figures.items():
        row = rows.setdefault(
            entity, {"user": entity.user or "", "clientId": entity.client_id or ""}
        )
        way = next(name for name, known in BYTE_RATE_OF.items() if known is key)
        row[way] = [
            round(figures.p99_total),
            round(figures.p99_busiest),
            figures.brokers,
            round(figures.coverage, 4),
            round(figures.throttled_share, 4),
        ]
    return sorted(
        rows.values(),
        key=lambda row: (
            -sum(row[way][0] for way in BYTE_RATE_OF if way in row),
            row["user"],
            row["clientId"],
        ),
    )


def _fitting(rows: Iterable[dict[str, Any]], room: int) -> list[dict[str, Any]]:
    kept = []
    for row in rows:
        room -= len(_text(row)) + 1
        if room < 0:
            break
        kept.append(row)
    return kept


def _usage(document: Mapping[str, Any]) -> Usage:
    figures = {
        (Entity(row["user"] or None, row["clientId"] or None), key): _figures(row[way])
        for row in document["entities"]
        for way, key in BYTE_RATE_OF.items()
        if way in row
    }
    return Usage(float(document["days"]), document["untilMs"] / 1000, figures)


def _figures(values: Any) -> DirectionUsage:
    total, busiest, brokers, coverage, throttled = values
    if not all(
        isfinite(number) and number >= 0
        for number in (total, busiest, brokers, coverage, throttled)
    ):
        raise ValueError(f"a figure is no amount: {values}")
    return DirectionUsage(
        float(total), float(busiest), int(brokers), float(coverage), float(throttled)
    )


def _window(start_ms: Any, end_ms: Any) -> Window:
    if not isinstance(start_ms, int) or not isinstance(end_ms, int) or end_ms <= start_ms:
        raise ValueError(f"{start_ms} to {end_ms} is not a window")
    return Window(start_ms, end_ms)


CONTAINER = "rollup"
EXIT_BAD_CONFIGURATION, EXIT_BAD_DATA, EXIT_FORBIDDEN = 64, 65, 77
DRIVER_PORT, BLOCK_MANAGER_PORT = 7078, 7079
LONGEST_NAME = 57  # a Pod's name is the Job's and six characters more, and has to fit a label
POLICY_LABEL = "tidegate.io/policy"
START, END, GENERATION = (
    "tidegate.io/window-start",
    "tidegate.io/window-end",
    "tidegate.io/policy-generation",
)
_TRIES_AGAIN = 2
_KEPT_SECONDS = 3600
_SCRATCH = "/tmp"  # noqa: S108  (the only place of a read-only file system that can be written to)


@dataclass(frozen=True, slots=True)
class JobPod:
    """The settings of the Job's Pod, from the policy and the operator.

    `mount` is a claim and its path; None = no volume. `login_secret` has the login of the storage
    and of its catalog; None = there is none. `placement` are fields of the Pod's spec, `labels` are
    of Job and Pod, beside ours. A Job that is made with `suspend` waits for a queueing system.
    """

    image: str
    service_account: str
    cores: int
    requested_millicores: int
    memory: str
    deadline_seconds: int
    mount: tuple[str, str] | None = None
    pull_secrets: tuple[str, ...] = ()
    security: SecurityContexts = field(default_factory=SecurityContexts)
    has_executors: bool = False
    login_secret: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    placement: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    ephemeral_storage: str | None = None
    suspend: bool = False


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
    """`<policy>-rollup-<start>-<minutes>m`, a DNS label.

    A digest keeps names apart that had to be changed for that.
    """
    start = datetime.fromtimestamp(start_ms / 1000, UTC)
    suffix = f"-rollup-{start:%Y%m%d%H%M}-{(end_ms - start_ms) // 60_000}m"
    stem = policy_name.replace(".", "-")
    if stem == policy_name and len(stem) + len(suffix) <= LONGEST_NAME:
        return stem + suffix
    digest = sha256(policy_name.encode()).hexdigest()[:8]
    return f"{stem[: LONGEST_NAME - len(suffix) - len(digest) - 1].rstrip('-')}-{digest}{suffix}"


def job_body(policy: Mapping[str, Any], pod: JobPod, *, start_ms: int, end_ms: int) -> JsonObject:
    """The Job that computes one window for `policy`.

    `policy` is a whole object from the API server; it owns the Job.
    """
    metadata = policy["metadata"]
    name, namespace = str(metadata["name"]), str(metadata["namespace"])
    window = {START: rfc3339_ms(start_ms), END: rfc3339_ms(end_ms)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(name, start_ms, end_ms),
            "namespace": namespace,
            "labels": {**pod.labels, **labels(name)},
            "annotations": {**window, GENERATION: str(metadata.get("generation", 0))},
            "ownerReferences": [owner(policy)],
        },
        "spec": {
            "backoffLimit": _TRIES_AGAIN,
            "activeDeadlineSeconds": pod.deadline_seconds,
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "podReplacementPolicy": "Failed",
            **({"suspend": True} if pod.suspend else {}),
            "podFailurePolicy": {"rules": _failure_rules()},
            "template": {
                "metadata": {
                    "labels": {**pod.labels, **labels(name)},
                    "annotations": {**pod.annotations, **window},
                },
                "spec": _pod(f"{namespace}/{name}", pod, window),
            },
        },
    }


def owner(policy: Mapping[str, Any]) -> JsonObject:
    """The reference by which Kubernetes takes an object away with its policy."""
    metadata = policy["metadata"]
    return {
        "apiVersion": policy["apiVersion"],
        "kind": policy["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def is_owned(obj: Mapping[str, Any], policy_uid: str) -> bool:
    """Whether an object is owned by this policy, not by an earlier one of its name or another."""
    return any(one.get("uid") == policy_uid for one in obj["metadata"].get("ownerReferences") or ())


def _failure_rules() -> list[JsonObject]:
    codes = [EXIT_BAD_CONFIGURATION, EXIT_BAD_DATA, EXIT_FORBIDDEN]
    return [
        {
            "action": "FailJob",
            "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": codes},
        },
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]


def _pod(policy_key: str, pod: JobPod, window: Mapping[str, str]) -> JsonObject:
    claims = (
        []
        if pod.mount is None
        else [{"name": "tables", "persistentVolumeClaim": {"claimName": pod.mount[0]}}]
    )
    return {
        **pod.placement,
        "restartPolicy": "Never",
        "serviceAccountName": pod.service_account,
        "automountServiceAccountToken": True,
        **(
            {"imagePullSecrets": [{"name": name} for name in pod.pull_secrets]}
            if pod.pull_secrets
            else {}
        ),
        "securityContext": dict(pod.security.pod),
        "containers": [_container(policy_key, pod, window)],
        "volumes": [{"name": "scratch", "emptyDir": scratch(pod.ephemeral_storage)}, *claims],
    }


def scratch(ephemeral_storage: str | None) -> JsonObject:
    """The emptyDir for what Spark spills."""
    return {} if ephemeral_storage is None else {"sizeLimit": ephemeral_storage}


def _container(policy_key: str, pod: JobPod, window: Mapping[str, str]) -> JsonObject:
    mounts = [{"name": "scratch", "mountPath": _SCRATCH}]
    if pod.mount is not None:
        mounts.append({"name": "tables", "mountPath": pod.mount[1]})
    ports = (("driver", DRIVER_PORT), ("blocks", BLOCK_MANAGER_PORT)) if pod.has_executors else ()
    return {
        "name": CONTAINER,
        "image": pod.image,
        "args": [
            "rollup",
            "job",
            f"--policy={policy_key}",
            f"--window-start={window[START]}",
            f"--window-end={window[END]}",
        ],
        "env": [
            *_own_fields(),
            *(() if pod.login_secret is None else login_environment(pod.login_secret)),
            *(() if pod.login_secret is None else login_environment(pod.login_secret, _CATALOG)),
            *({"name": name, "value": value} for name, value in sorted(pod.environment.items())),
        ],
        "ports": [{"name": name, "containerPort": port} for name, port in ports],
        "resources": {
            "requests": {
                "cpu": f"{pod.requested_millicores}m",
                "memory": pod.memory,
                **space_on_node(pod.ephemeral_storage),
            },
            "limits": {
                "cpu": str(pod.cores),
                "memory": pod.memory,
                **space_on_node(pod.ephemeral_storage),
            },
        },
        "securityContext": dict(pod.security.container),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def space_on_node(ephemeral_storage: str | None) -> JsonObject:
    """The same as a container's request and limit."""
    return {} if ephemeral_storage is None else {"ephemeral-storage": ephemeral_storage}


def _own_fields() -> list[JsonObject]:
    """Environment from the Pod's own fields, for Spark and for the size of the heap."""
    fields = {
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "POD_IP": "status.podIP",
        "NODE": "spec.nodeName",
        "SERVICE_ACCOUNT": "spec.serviceAccountName",
    }
    variables: list[JsonObject] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in fields.items()
    ]
    limit = {"containerName": CONTAINER, "resource": "limits.memory", "divisor": "1Mi"}
    return [*variables, {"name": "MEMORY_LIMIT_MIB", "valueFrom": {"resourceFieldRef": limit}}]


_BUCKET = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL")
_CATALOG = (
    "ICEBERG_TOKEN",
    "ICEBERG_CREDENTIAL",
    "ICEBERG_SCOPE",
    "ICEBERG_OAUTH2_SERVER_URI",
)


def login_environment(secret_name: str, names: Iterable[str] = _BUCKET) -> list[JsonObject]:
    """Endpoint and login of an S3 bucket, or the login at a catalog, from the keys of a Secret."""
    secret = {"name": secret_name, "optional": True}
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {**secret, "key": name}}} for name in names
    ]


# --- the ConfigMap of the result: Jobs add to it, the operator reads it ---------------------------
#
# Several Jobs may add to it (a person fills a gap while one of the operator's runs), so a writer
# reads, adds and writes with compare-and-set.


_ATTEMPTS = 5


def read_result(
    kubernetes: Kubernetes, policy: Mapping[str, Any]
) -> tuple[RollupResult | None, str | None]:
    """The result of the Jobs of `policy`, or why it is not used; neither where there is none yet.

    Raises what the read raises.
    """
    metadata = policy["metadata"]
    return _result_in(
        kubernetes.read_config_map(metadata["namespace"], result_name(metadata["name"])), policy
    )


def record_result(
    kubernetes: Kubernetes,
    policy: Mapping[str, Any],
    *,
    published: Iterable[Window],
    empty: Iterable[Window] = (),
    usage: Usage | None,
    catalog_problem: str | None = None,
    now_ms: int,
    valid_until_ms: int,
) -> RollupResult:
    """Add windows, and figures where they are newer than the present ones.

    An unreadable result is written over. `policy` is the whole object: the ConfigMap goes with it.
    Raises Conflict when others were faster again and again, else what `Kubernetes.write_config_map`
    raises.
    """
    added = RollupResult(
        policy["metadata"]["uid"],
        now_ms,
        valid_until_ms,
        tuple(published),
        usage,
        tuple(empty),
        catalog_problem,
    )
    namespace, name = policy["metadata"]["namespace"], result_name(policy["metadata"]["name"])

    def read_and_add() -> RollupResult:
        present = kubernetes.read_config_map(namespace, name)
        result = _with(_result_in(present, policy)[0], added)
        kubernetes.write_config_map(namespace, _body(policy, result, present))
        return result

    return retry(
        read_and_add,
        attempts=_ATTEMPTS,
        is_worth_repeating=lambda error: isinstance(error, Conflict),
    )


def _result_in(
    found: JsonObject | None, policy: Mapping[str, Any]
) -> tuple[RollupResult | None, str | None]:
    if found is None:
        return None, None
    try:
        result = decode((found.get("data") or {}).get(RESULT_KEY, ""))
    except ValueError as error:
        return None, str(error)
    if result.policy_uid != policy["metadata"]["uid"]:
        return None, "it was written for another policy of the same name"
    return result, None


def _with(before: RollupResult | None, added: RollupResult) -> RollupResult:
    if before is None:
        return added
    figures = before
    if added.usage is not None and (
        before.usage is None or added.usage.until_seconds >= before.usage.until_seconds
    ):
        figures = added
    return replace(
        figures,
        published=merged([*before.published, *added.published]),
        empty=merged([*before.empty, *added.empty]),
        catalog_problem=added.catalog_problem,
    )


def _body(
    policy: Mapping[str, Any], result: RollupResult, present: JsonObject | None
) -> JsonObject:
    name = policy["metadata"]["name"]
    metadata: JsonObject = {
        "name": result_name(name),
        "labels": labels(name),
        "ownerReferences": [owner(policy)],
    }
    if present is not None:
        metadata["resourceVersion"] = present["metadata"]["resourceVersion"]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {RESULT_KEY: encode(result)},
    }
