"""spec.rollup: usage tables, how often they are made, where they are kept, and what a Job may use.

The operator reads it to make the Jobs, and the Job reads it too. Whether a claim exists, a bucket
can be written or nodes have the memory is found out by the Job, and reported in the policy's
condition RollupsCurrent.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlencode, urlsplit

from pydantic import Field

from tidegate.resources.fields import ObjectName, matching, ruled
from tidegate.resources.schema import Rule, SchemaModel

RecommendationUse = Literal["Never", "WithinPercent"]
Days = Annotated[int, Field(ge=1, le=3660)]
Cores = Annotated[int, Field(ge=1, le=64)]
Millicores = Annotated[int, Field(ge=10, le=64_000)]

WINDOW_STEP_SECONDS = 300
DAY_SECONDS = 86_400

_interval_check, _interval_schema = ruled(
    Rule(
        cel=f"self % {WINDOW_STEP_SECONDS} == 0 && {DAY_SECONDS} % self == 0",
        message="must divide a day into equal windows of whole five minutes, such as 300, 900, "
        "1800, 3600, 21600 or 86400",
        holds=lambda seconds: seconds % WINDOW_STEP_SECONDS == 0 and DAY_SECONDS % seconds == 0,
    )
)
IntervalSeconds = Annotated[
    int, Field(ge=WINDOW_STEP_SECONDS, le=DAY_SECONDS), _interval_check, _interval_schema
]

_SEGMENT = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
_CONTAINER = r"abfss?://[a-z0-9][a-z0-9-]*@[a-z0-9]+\.dfs\.core\.windows\.net"
_url_check, _url_schema = ruled(
    matching(
        rf"(?:(?:file:///|s3://|gs://){_SEGMENT}|{_CONTAINER})(?:/{_SEGMENT})*/?",
        "must be a folder as file:///path, s3://bucket/path, gs://bucket/path or "
        "abfs://container@account.dfs.core.windows.net/path, without credentials, query or '..'",
    )
)
StorageUrl = Annotated[str, Field(min_length=1, max_length=512), _url_check, _url_schema]

_endpoint_check, _endpoint_schema = ruled(
    matching(
        r"https?://[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[1-9][0-9]{0,4})?",
        "must be an address as https://minio.storage:9000: http or https, a host and perhaps a "
        "port, without login or path",
    )
)
StorageEndpoint = Annotated[
    str, Field(min_length=1, max_length=256), _endpoint_check, _endpoint_schema
]
_region_check, _region_schema = ruled(
    matching(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", "must be a region's name, such as eu-central-1")
)
Region = Annotated[str, Field(min_length=1, max_length=63), _region_check, _region_schema]

CatalogType = Literal["rest"]
_catalog_check, _catalog_schema = ruled(
    matching(
        r"https?://[A-Za-z0-9][A-Za-z0-9.-]*(?::[1-9][0-9]{0,4})?(?:/[A-Za-z0-9._-]+)*/?",
        "must be an address as https://catalog:8181/api, without login or query",
    )
)
CatalogUri = Annotated[str, Field(min_length=1, max_length=512), _catalog_check, _catalog_schema]
_namespace_check, _namespace_schema = ruled(
    matching(r"[a-z][a-z0-9_]*", "must be small letters, digits and '_', a letter first")
)
_warehouse_check, _warehouse_schema = ruled(
    matching(
        r"[A-Za-z0-9](?:[A-Za-z0-9._:/-]*[A-Za-z0-9])?",
        "must be a name or an address, of letters, digits and '.', '_', ':', '/', '-'",
    )
)
CatalogWarehouse = Annotated[
    str, Field(min_length=1, max_length=256), _warehouse_check, _warehouse_schema
]
CatalogNamespace = Annotated[
    str, Field(min_length=1, max_length=63), _namespace_check, _namespace_schema
]

_memory_check, _memory_schema = ruled(
    matching(r"[1-9][0-9]{0,6}(?:Mi|Gi)", "must be memory in Mi or Gi, such as 3Gi or 1536Mi"),
    Rule(
        cel="!isQuantity(self) || (quantity(self).compareTo(quantity('1Gi')) >= 0 && "
        "quantity(self).compareTo(quantity('1024Gi')) <= 0)",
        message="must be from 1Gi to 1024Gi: a Java machine and Python share it",
        holds=lambda text: 1024 <= mebibytes(text) <= 1024 * 1024,
    ),
)
Memory = Annotated[str, Field(min_length=1, max_length=24), _memory_check, _memory_schema]

_price_check, _price_schema = ruled(
    matching(
        r"[0-9]{1,9}(?:\.[0-9]{1,6})?",
        'must be an amount as a text, such as "0.02", in the currency of your choice',
    )
)
Price = Annotated[str, Field(min_length=1, max_length=16), _price_check, _price_schema]


def mebibytes(memory: str) -> int:
    """Mi of a text such as `3Gi`, which has passed its rule."""
    return int(memory[:-2]) * (1024 if memory.endswith("Gi") else 1)


_requested = Rule(
    cel="!has(self.requestMillicores) || self.requestMillicores <= 1000 * (has(self.cores) ? "
    "self.cores : 2)",
    message="requestMillicores must not be above the cores (2 where unset): nothing can be "
    "promised that may not be used",
    field_path=".requestMillicores",
    holds=lambda pod: pod.request_millicores is None or pod.request_millicores <= 1000 * pod.cores,
)


def _of_s3(field: str, attribute: str) -> Rule:
    return Rule(
        cel=f"!has(self.{field}) || self.url.startsWith('s3://')",
        message=f"{field} goes with an s3:// url only",
        reason="FieldValueForbidden",
        field_path=f".{field}",
        holds=lambda storage: (
            getattr(storage, attribute) is None or storage.url.startswith("s3://")
        ),
    )


class StorageCredentials(SchemaModel):
    """The Secret of a storage's login."""

    name: ObjectName = Field(
        description="Name of a Secret in the namespace of this object, with the label "
        "tidegate.io/credentials. Of its keys, AWS_ACCESS_KEY_ID, "
        "AWS_SECRET_ACCESS_KEY, AWS_DEFAULT_REGION, AWS_ENDPOINT_URL, "
        "ICEBERG_TOKEN, ICEBERG_CREDENTIAL, ICEBERG_SCOPE and "
        "ICEBERG_OAUTH2_SERVER_URI are used if present."
    )


class RollupCatalog(SchemaModel):
    """The Iceberg catalog in which published tables are known, too."""

    type: CatalogType = Field(
        description="rest: a service with Iceberg's REST API, such as Polaris, Lakekeeper, Nessie, "
        "Unity Catalog or Gravitino."
    )
    uri: CatalogUri = Field(description="URL of the catalog, such as https://catalog:8181.")
    namespace: CatalogNamespace = Field(
        default="tidegate",
        description="Namespace of the tables; use one per policy. Unset means tidegate.",
    )
    warehouse: CatalogWarehouse | None = Field(
        default=None,
        description="Name of the catalog within the service, if it has several (required by "
        "Polaris, Lakekeeper, Unity Catalog and Gravitino). Unset means the "
        "service's default.",
    )


class RollupStorage(SchemaModel):
    """The storage of the tables."""

    url: StorageUrl = Field(
        description="Folder of the tables: file:///path on a volume (see claimName), or s3://, "
        "gs://, abfs:// or abfss:// with the Job's identity or the login in "
        "credentialsSecretRef."
    )
    endpoint: StorageEndpoint | None = Field(
        default=None,
        description="URL of an S3 service other than Amazon's, such as "
        "https://minio.storage:9000. Unset means Amazon's, or AWS_ENDPOINT_URL of "
        "the Secret.",
    )
    region: Region | None = Field(
        default=None,
        description="Region of an S3 bucket. Unset means AWS_DEFAULT_REGION of the Secret, or "
        "the region that S3 reports.",
    )
    path_style: bool | None = Field(
        default=None,
        description="true: the S3 bucket is in the path of its URL, as in "
        "https://minio:9000/bucket. false: it is in the host. Unset means true "
        "with endpoint, and false without.",
    )
    credentials_secret_ref: StorageCredentials | None = Field(
        default=None,
        description="Secret with the login for an S3 service or the catalog. Unset means the "
        "Secret <policy>-bucket if it exists and neither endpoint nor catalog is "
        "set, else the Job's identity.",
    )
    catalog: RollupCatalog | None = Field(
        default=None,
        description="Iceberg catalog in which published tables are registered, for engines "
        "such as Trino, Spark and DuckDB. Unset means none.",
    )
    claim_name: ObjectName | None = Field(
        default=None,
        description="PersistentVolumeClaim in this namespace that the Job mounts at the path "
        "of a file:// URL. With executors, several nodes must be able to write to "
        "it (ReadWriteMany).",
    )

    rules = (
        Rule(
            cel="!self.url.startsWith('file://') || has(self.claimName)",
            message="claimName is required with a file:// url: without a volume the tables would "
            "be gone with the Job",
            reason="FieldValueRequired",
            field_path=".claimName",
            holds=lambda storage: (
                not storage.url.startswith("file://") or storage.claim_name is not None
            ),
        ),
        Rule(
            cel="self.url.startsWith('file://') || !has(self.claimName)",
            message="claimName goes with a file:// url only; leave it out where the tables are in "
            "a bucket",
            reason="FieldValueForbidden",
            field_path=".claimName",
            holds=lambda storage: storage.url.startswith("file://") or storage.claim_name is None,
        ),
        _of_s3("endpoint", "endpoint"),
        _of_s3("region", "region"),
        _of_s3("pathStyle", "path_style"),
        Rule(
            cel="!has(self.pathStyle) || !self.pathStyle || has(self.endpoint)",
            message="pathStyle true needs an endpoint: Amazon's buckets are in the host",
            reason="FieldValueRequired",
            field_path=".endpoint",
            holds=lambda storage: not storage.path_style or storage.endpoint is not None,
        ),
    )

    def login_secret(self, policy_name: str) -> str | None:
        """The Secret with the login of the storage and of the catalog; None = there is none.

        One that is not named is for the address that it brings itself, so it goes to no endpoint
        and no catalog of the policy.
        """
        if self.credentials_secret_ref is not None:
            return self.credentials_secret_ref.name
        by_itself = self.claim_name is None and self.endpoint is None and self.catalog is None
        return f"{policy_name}-bucket" if by_itself else None

    @property
    def address(self) -> str:
        """`url` with the options by which the tables are opened."""
        options: dict[str, str] = {}
        if self.endpoint is not None:
            parts = urlsplit(self.endpoint)
            options |= {"scheme": parts.scheme, "endpoint_override": parts.netloc}
        if self.region is not None:
            options["region"] = self.region
        if self.endpoint is not None and self.path_style is False:
            options["path_style"] = "false"
        return f"{self.url}?{urlencode(options)}" if options else self.url

    @property
    def mount_path(self) -> str | None:
        """The folder where the claim is mounted; None without one."""
        return self.url.removeprefix("file://").rstrip("/") if self.claim_name is not None else None


class RollupDriver(SchemaModel):
    """The Job's own Pod."""

    cores: Cores = Field(
        default=2, description="CPU limit of the Job's Pod, in processors. Unset means 2."
    )
    request_millicores: Millicores | None = Field(
        default=None,
        description="CPU request of the Job's Pod, in thousandths of a processor. Unset means "
        "all of its cores.",
    )
    memory: Memory = Field(
        default="3Gi",
        description="Memory request and limit of the Job's Pod. Unset means 3Gi.",
    )

    rules = (_requested,)

    @property
    def requested_millicores(self) -> int:
        """Thousandths of a processor that a node has to have free; all of them where unset."""
        return 1000 * self.cores if self.request_millicores is None else self.request_millicores


class RollupExecutors(SchemaModel):
    """Further Pods that the Job starts, for clusters too large for one."""

    instances: Annotated[int, Field(ge=0, le=100)] = Field(
        default=0,
        description="Number of executors. 0: everything runs in the Job's own Pod. Unset means 0.",
    )
    cores: Cores = Field(
        default=2, description="CPU limit of each executor, in processors. Unset means 2."
    )
    request_millicores: Millicores | None = Field(
        default=None,
        description="CPU request of each executor, in thousandths of a processor. Unset means "
        "all of its cores.",
    )
    memory: Memory = Field(
        default="4Gi", description="Memory request and limit of each executor. Unset means 4Gi."
    )

    rules = (_requested,)

    @property
    def requested_millicores(self) -> int:
        """Thousandths of a processor that a node has to have free; all of them where unset."""
        return 1000 * self.cores if self.request_millicores is None else self.request_millicores


class RetentionDays(SchemaModel):
    """How long tables are kept. Days are kept for ever."""

    five_minutes: Days = Field(
        default=30, description="Days to keep five-minute tables. Unset means 30."
    )
    hours: Days = Field(default=400, description="Days to keep hourly tables. Unset means 400.")

    rules = (
        Rule(
            cel="(has(self.fiveMinutes) ? self.fiveMinutes : 30) <= (has(self.hours) ? "
            "self.hours : 400)",
            message="fiveMinutes (30 where unset) must not be above hours (400 where unset)",
            holds=lambda days: days.five_minutes <= days.hours,
        ),
    )


class PricePerGiB(SchemaModel):
    """The price of 2^30 bytes in a chargeback report."""

    fetch: Price | None = Field(
        default=None, description="Price per GiB fetched. Unset means that no price is shown."
    )
    produce: Price | None = Field(
        default=None, description="Price per GiB produced. Unset means that no price is shown."
    )

    rules = (
        Rule(
            cel="has(self.fetch) || has(self.produce)",
            message="must have at least one of fetch and produce; leave pricePerGiB out to show "
            "no price",
            holds=lambda price: price.fetch is not None or price.produce is not None,
        ),
    )


class Calibration(SchemaModel):
    """How far the broker's count may be from what the clients' gauges add up to."""

    least_percent: Annotated[int, Field(ge=1, le=100)] = Field(
        default=90,
        description="If a broker counted less than this percentage of what its clients' gauges "
        "add up to, the count is reported as suspect. Clients are never charged "
        "more than was counted. Unset means 90.",
    )
    most_percent: Annotated[int, Field(ge=100, le=200)] = Field(
        default=115,
        description="Clients are charged at most this percentage of what their gauges add up "
        "to. Anything the broker counted beyond that is unattributed: it belongs "
        "to clients that no quota meters. Unset means 115.",
    )


class Recommend(SchemaModel):
    """How contracts are recommended from usage, and whether the operator may act on that."""

    headroom_percent: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=30,
        description="Headroom of a recommended contract above the 99th percentile of the "
        "five-minute rates. Unset means 30.",
    )
    apply: RecommendationUse = Field(
        default="Never",
        description="Never: recommended contracts are only shown in the tier's status. "
        "WithinPercent: they replace the declared contracts by at most "
        "maxChangePercent; the objects stay as you wrote them. Unset means Never.",
    )
    max_change_percent: Annotated[int, Field(ge=1, le=100)] | None = Field(
        default=None,
        description="How far an applied contract may be above or below the declared one. "
        "Required with apply WithinPercent.",
    )

    rules = (
        Rule(
            cel="!has(self.apply) || self.apply != 'WithinPercent' || has(self.maxChangePercent)",
            message="maxChangePercent is required with apply WithinPercent: it bounds how far an "
            "applied contract may be from yours",
            reason="FieldValueRequired",
            field_path=".maxChangePercent",
            holds=lambda recommend: (
                recommend.apply != "WithinPercent" or recommend.max_change_percent is not None
            ),
        ),
    )


# The Pods of a Job, driver and executors alike. Not everyone who can write a policy may create
# Pods: nothing here reads a Secret, mounts a volume, or puts other code into a Pod.

MAX_PAIRS, MAX_ITEMS, MAX_ENVIRONMENT = 16, 16, 32
_KEY = (
    r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
)
_OWN_KEY = (
    r"(?:[^/]*[.])?(?:tidegate[.]io|app[.]kubernetes[.]io)/.*|spark-.*|batch[.]kubernetes[.]io/.*"
)
_LABEL_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?"

_pod_key_check, _pod_key_schema = ruled(
    matching(_KEY, "must be a key of Kubernetes, such as pool or example.com/pool")
)
PodKey = Annotated[str, Field(min_length=1, max_length=317), _pod_key_check, _pod_key_schema]
_pod_value_check, _pod_value_schema = ruled(
    matching(_LABEL_VALUE, "must be a label's value: letters, digits, '.', '_' and '-'")
)
PodLabelValue = Annotated[str, Field(max_length=63), _pod_value_check, _pod_value_schema]


def _keys(expression: str, message: str, *, refused: str = "") -> tuple[Any, Any]:
    """The rule of a map's keys: what they match, and what they must not.

    The operator checks it, and makes no Job otherwise: keys have no bound from which the API server
    could estimate the cost of a rule.
    """
    wanted, unwanted = re.compile(expression), re.compile(refused)

    def holds(pairs: Mapping[str, str]) -> bool:
        return all(
            wanted.fullmatch(key) and not (refused and unwanted.fullmatch(key)) for key in pairs
        )

    return ruled(Rule(cel="", message=message, holds=holds))


_selector_check, _selector_schema = _keys(_KEY, "must have keys of Kubernetes' labels")
_pairs_check, _pairs_schema = _keys(
    _KEY,
    "must have keys of Kubernetes, and none of tidegate.io, app.kubernetes.io, batch.kubernetes.io "
    "and spark-, by which the operator and Spark find their Pods",
    refused=_OWN_KEY,
)
_conf_check, _conf_schema = _keys(
    r"spark[.](?:sql|memory|shuffle|io|network|rpc|task|locality|cleaner|scheduler|broadcast|"
    r"reducer|storage|python|executor[.]heartbeatInterval|excludeOnFailure|default[.]parallelism)"
    r"(?:[.][A-Za-z0-9.]+)?",
    "must be settings of spark.sql, memory, shuffle, io, network, rpc, task, locality, cleaner, "
    "scheduler, broadcast, reducer, storage, python, excludeOnFailure, default.parallelism or "
    "executor.heartbeatInterval, without those that are Tidegate's own or load code",
    refused=r"spark[.](?:network[.]crypto|sql[.]extensions|sql[.]catalog|sql[.]hive|python[.]daemon|"
    r"python[.]worker[.]module|python[.]use|sql[.]session[.]timeZone|shuffle[.]manager|"
    r"shuffle[.]sort[.]io|sql[.]queryExecutionListeners|sql[.]streaming|io[.]encryption|"
    r"storage[.]replication|scheduler[.]allocation|sql[.]cache[.]serializer|sql[.]warehouse|"
    r"sql[.]sources[.]commitProtocolClass|sql[.]artifact).*",
)
_ENV_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_OWN_ENV = (
    r"(?:TIDEGATE|POD|SPARK|PYSPARK|PYTHON|JAVA|JDK|LD|KUBERNETES|HADOOP|_).*|NODE|"
    r"SERVICE_ACCOUNT|MEMORY_LIMIT_MIB|PATH|HOME|CLASSPATH"
)
_env_check, _env_schema = ruled(
    matching(_ENV_NAME, "must be a variable's name: letters, digits and '_'"),
    Rule(
        cel=f"!self.matches(r'^(?:{_OWN_ENV})$')",
        message="must not be a variable of the Job itself or of Java, Python, Spark, Kubernetes or "
        "the loader",
        holds=lambda name: re.fullmatch(_OWN_ENV, name) is None,
    ),
)


class Toleration(SchemaModel):
    """A taint that the Pods tolerate, as Kubernetes has it."""

    key: PodKey | None = Field(default=None, description="The taint's key. Unset means every key.")
    operator: Literal["Exists", "Equal"] = Field(
        default="Equal", description="How key and value are compared. Unset means Equal."
    )
    value: PodLabelValue | None = Field(
        default=None, description="The taint's value, with operator Equal."
    )
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="The taint's effect. Unset means every effect."
    )
    toleration_seconds: Annotated[int, Field(ge=0, le=86_400)] | None = Field(
        default=None,
        description="With NoExecute: how long the Pod stays. Unset means indefinitely.",
    )

    rules = (
        Rule(
            cel="has(self.key) || (has(self.operator) && self.operator == 'Exists')",
            message="key is required unless operator is Exists",
            field_path=".key",
            reason="FieldValueRequired",
            holds=lambda one: one.key is not None or one.operator == "Exists",
        ),
    )


class NodeRequirement(SchemaModel):
    """A requirement of a node's label."""

    key: PodKey = Field(description="The label's name.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = Field(
        description="How its value is compared with values."
    )
    values: tuple[PodLabelValue, ...] | None = Field(
        default=None,
        max_length=MAX_ITEMS,
        description="Values: none with Exists and DoesNotExist, one with Gt and Lt.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


class NodeTerm(SchemaModel):
    """Requirements that must all hold."""

    match_expressions: tuple[NodeRequirement, ...] = Field(
        min_length=1,
        max_length=MAX_ITEMS,
        description="Requirements on labels; all of them must hold.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


class RequiredNodes(SchemaModel):
    """Nodes that meet at least one term."""

    node_selector_terms: tuple[NodeTerm, ...] = Field(
        min_length=1,
        max_length=8,
        description="Terms; one of them must hold.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


class PreferredNodes(SchemaModel):
    """A preferred term."""

    weight: Annotated[int, Field(ge=1, le=100)] = Field(description="Weight of this preference.")
    preference: NodeTerm = Field(description="The preferred nodes.")


class NodeAffinity(SchemaModel):
    """On which nodes the Pods run."""

    required_during_scheduling_ignored_during_execution: RequiredNodes | None = Field(
        default=None, description="Required node affinity."
    )
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredNodes, ...] | None = Field(
        default=None,
        max_length=8,
        description="Preferred node affinity.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


class PodAffinity(SchemaModel):
    """Affinity to nodes, as Kubernetes has it."""

    node_affinity: NodeAffinity | None = Field(default=None, description="Node affinity.")


class EnvironmentVariable(SchemaModel):
    """A variable of the Pods' environment. Its value is not a secret."""

    name: Annotated[str, Field(min_length=1, max_length=128), _env_check, _env_schema] = Field(
        description="Name of the variable. Those of Tidegate, Spark, Java and Python are refused."
    )
    value: Annotated[str, Field(max_length=1024)] = Field(
        description="Value of the variable, visible to anyone who can read the policy or the Pods."
    )


_priority_check, _priority_schema = ruled(
    Rule(
        cel="!self.startsWith('system-')",
        message="must not begin with system-: a rollup is less important than Kubernetes",
        holds=lambda name: not name.startswith("system-"),
    )
)


class RollupPod(SchemaModel):
    """Where a Job's Pods run, and what they have beside the image: driver and executors alike."""

    node_selector: (
        Annotated[
            dict[str, PodLabelValue],
            Field(max_length=MAX_PAIRS),
            _selector_check,
            _selector_schema,
        ]
        | None
    ) = Field(default=None, description="Labels that a node must have.")
    tolerations: tuple[Toleration, ...] | None = Field(
        default=None,
        max_length=MAX_ITEMS,
        description="Taints that the Pods tolerate.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    affinity: PodAffinity | None = Field(default=None, description="Affinity of the Pods.")
    priority_class_name: Annotated[ObjectName, _priority_check, _priority_schema] | None = Field(
        default=None, description="PriorityClass of the Pods."
    )
    labels: (
        Annotated[
            dict[str, PodLabelValue], Field(max_length=MAX_PAIRS), _pairs_check, _pairs_schema
        ]
        | None
    ) = Field(
        default=None,
        description="Labels of Job and Pods, such as a queue's, or a cloud's for its workload "
        "identity.",
    )
    annotations: (
        Annotated[
            dict[str, Annotated[str, Field(max_length=1024)]],
            Field(max_length=MAX_PAIRS),
            _pairs_check,
            _pairs_schema,
        ]
        | None
    ) = Field(default=None, description="Annotations of the Pods.")
    env: tuple[EnvironmentVariable, ...] | None = Field(
        default=None,
        max_length=MAX_ENVIRONMENT,
        description="Environment variables of the Pods, such as a proxy.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    ephemeral_storage: Memory | None = Field(
        default=None,
        description="Request and limit of ephemeral storage on the node for what Spark spills. "
        "Unset means no limit.",
    )

    rules = (
        Rule(
            cel="",
            message="every variable may appear once only",
            field_path=".env",
            holds=lambda pod: len({one.name for one in pod.env or ()}) == len(pod.env or ()),
        ),
    )

    @property
    def placement(self) -> dict[str, Any]:
        """The fields of a Pod's spec that say where it runs."""
        return self.model_dump(
            mode="json",
            by_alias=True,
            exclude_none=True,
            include={"node_selector", "tolerations", "affinity", "priority_class_name"},
        )


class EventLog(SchemaModel):
    """Spark's event logs, which its History Server shows."""

    keep: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=48, description="How many Jobs' logs to keep. Unset means 48."
    )


class Rollup(SchemaModel):
    """Usage tables, reports and recommended contracts, made by Jobs that the operator starts."""

    interval_seconds: IntervalSeconds = Field(
        default=3600,
        description="Length of one Job's window, and so how often a Job runs; windows are "
        "aligned to midnight UTC. Unset means 3600.",
    )
    storage: RollupStorage = Field(description="Where the tables are stored.")
    driver: RollupDriver = Field(
        default=RollupDriver(),
        description="The Job's own Pod. Unset means the defaults of its fields.",
    )
    executors: RollupExecutors = Field(
        default=RollupExecutors(),
        description="Additional Pods that the Job starts, for clusters too large for one. "
        "Unset means the defaults of its fields.",
    )
    retention_days: RetentionDays = Field(
        default=RetentionDays(),
        description="How long tables are kept. Unset means the defaults of its fields.",
    )
    price_per_gib: PricePerGiB | None = Field(
        default=None,
        alias="pricePerGiB",
        description="Prices per GiB (2^30 bytes) for chargeback reports. Unset means that no "
        "price is shown.",
    )
    calibration: Calibration = Field(
        default=Calibration(),
        description="How far the broker's count may differ from the sum of its clients' "
        "gauges. Unset means the defaults of its fields.",
    )
    recommend: Recommend = Field(
        default=Recommend(),
        description="How contracts are recommended from usage. Unset means the defaults of its "
        "fields.",
    )
    pod: RollupPod = Field(
        default=RollupPod(),
        description="Where a Job's Pods run, and what they have in addition to the image. "
        "Unset means the defaults of its fields.",
    )
    spark_conf: (
        Annotated[
            dict[str, Annotated[str, Field(max_length=256)]],
            Field(max_length=32),
            _conf_check,
            _conf_schema,
        ]
        | None
    ) = Field(
        default=None,
        description="Spark settings that replace Tidegate's, such as "
        'spark.sql.shuffle.partitions: "64". Settings of Pods, logins and code are '
        "refused.",
    )
    event_log: EventLog | None = Field(
        default=None,
        description="Keep Spark's event logs on the claim, in its folder _spark-events. Unset "
        "means none are written.",
    )
    suspend: bool = Field(
        default=False,
        description="Create Jobs suspended, for a queueing system such as Kueue that starts "
        "them. Unset means false.",
    )

    rules = (
        Rule(
            cel="!has(self.eventLog) || has(self.storage.claimName)",
            message="eventLog needs a claim (storage.claimName): Spark writes its logs as files",
            field_path=".eventLog",
            holds=lambda rollup: rollup.event_log is None or rollup.storage.claim_name is not None,
        ),
    )

    @property
    def factor_bounds(self) -> tuple[float, float]:
        """The lowest and the highest factor from gauges to the count that is not suspect."""
        return self.calibration.least_percent / 100, self.calibration.most_percent / 100
