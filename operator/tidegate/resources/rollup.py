"""spec.rollup: usage tables, how often they are made, where they are kept, and what a Job may use.

The operator reads it to make the Jobs, and the Job reads it too. Whether a claim exists, a bucket
can be written or nodes have the memory is found out by the Job, and reported in the policy's
condition RollupsCurrent.
"""

import re
from typing import Annotated, Literal
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
CatalogNamespace = Annotated[
    str, Field(min_length=1, max_length=63), _namespace_check, _namespace_schema
]

_OWN_PREFIXES = ("app.kubernetes.io/", "tidegate.io/", "batch.kubernetes.io/", "spark-")
_pod_labels_check, _pod_labels_schema = ruled(
    Rule(
        cel="self.all(label, label.matches('^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]"
        "([A-Za-z0-9_.-]*[A-Za-z0-9])?$') && label.size() <= 253)",
        message="every key must be the name of a label, such as azure.workload.identity/use",
        holds=lambda labels: all(
            re.fullmatch(
                r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?",
                label,
            )
            and len(label) <= 253
            for label in labels
        ),
    ),
    Rule(
        cel="self.all(label, !label.startsWith('app.kubernetes.io/') && "
        "!label.startsWith('tidegate.io/') && !label.startsWith('batch.kubernetes.io/') && "
        "!label.startsWith('spark-'))",
        message="labels of app.kubernetes.io, tidegate.io, batch.kubernetes.io and Spark are set "
        "by those who own them",
        holds=lambda labels: not any(label.startswith(_OWN_PREFIXES) for label in labels),
    ),
    Rule(
        cel="self.all(label, self[label].matches('^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$'))",
        message="every value must be a label's value: letters, digits, '-', '_' and '.'",
        holds=lambda labels: all(
            re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?", value)
            for value in labels.values()
        ),
    ),
)
PodLabels = Annotated[
    dict[str, Annotated[str, Field(max_length=63)]],
    Field(min_length=1, max_length=20),
    _pod_labels_check,
    _pod_labels_schema,
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
        "tidegate.io/credentials. Its keys AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
        "AWS_DEFAULT_REGION, AWS_ENDPOINT_URL, ICEBERG_TOKEN and ICEBERG_CREDENTIAL are used, each "
        "where it is there."
    )


class RollupCatalog(SchemaModel):
    """The Iceberg catalog in which published tables are known, too."""

    type: CatalogType = Field(
        description="rest: a service with Iceberg's REST API, such as Polaris, Lakekeeper, Nessie, "
        "Unity Catalog or Gravitino."
    )
    uri: CatalogUri = Field(description="Address of the catalog, such as https://catalog:8181.")
    namespace: CatalogNamespace = Field(
        default="tidegate",
        description="Namespace of the tables, one for each policy. Unset means tidegate.",
    )


class RollupStorage(SchemaModel):
    """The storage of the tables."""

    url: StorageUrl = Field(
        description="Folder of the tables: file:///path on a volume (see claimName), or s3://, "
        "gs://, abfs:// or abfss:// with the Job's identity, or with the login of "
        "credentialsSecretRef."
    )
    endpoint: StorageEndpoint | None = Field(
        default=None,
        description="Address of an S3 service that is not Amazon's, such as "
        "https://minio.storage:9000. Unset means Amazon's, or AWS_ENDPOINT_URL of the Secret.",
    )
    region: Region | None = Field(
        default=None,
        description="Region of an S3 bucket. Unset means AWS_DEFAULT_REGION of the Secret, or what "
        "S3 says.",
    )
    path_style: bool | None = Field(
        default=None,
        description="true: an S3 bucket is in the path of its address, as in "
        "https://minio:9000/bucket. false: in its host. Unset means true with endpoint, and false "
        "without.",
    )
    credentials_secret_ref: StorageCredentials | None = Field(
        default=None,
        description="Secret of the login at an S3 service, or at the catalog. Unset means the "
        "Secret <policy>-bucket, where there is one and neither endpoint nor catalog is given, and "
        "otherwise the Job's identity.",
    )
    catalog: RollupCatalog | None = Field(
        default=None,
        description="Iceberg catalog that is told of what is published, for engines such as Trino, "
        "Spark and DuckDB. Unset means none.",
    )
    claim_name: ObjectName | None = Field(
        default=None,
        description="PersistentVolumeClaim in this namespace that the Job mounts at the path of a "
        "file:// url. With executors it has to be one that several nodes may write "
        "(ReadWriteMany).",
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


class RollupPod(SchemaModel):
    """What the Pods of Jobs, and their executors, have beside what they need."""

    labels: PodLabels | None = Field(
        default=None,
        description="Further labels, such as azure.workload.identity/use: 'true' for Azure's "
        "workload identity. Unset means none.",
    )


class RollupDriver(SchemaModel):
    """The Job's own Pod."""

    cores: Cores = Field(
        default=2, description="Processors of the Job's Pod, not exceeded. Unset means 2."
    )
    request_millicores: Millicores | None = Field(
        default=None,
        description="What of them a node has to have free, in thousandths of a processor. Unset "
        "means all of them.",
    )
    memory: Memory = Field(
        default="3Gi",
        description="Memory of the Job's Pod, asked for and not exceeded. Unset means 3Gi.",
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
        description="How many. 0: everything happens in the Job's own Pod. Unset means 0.",
    )
    cores: Cores = Field(default=2, description="Processors of each. Unset means 2.")
    request_millicores: Millicores | None = Field(
        default=None,
        description="What of them a node has to have free for each, in thousandths of a "
        "processor. Unset means all of them.",
    )
    memory: Memory = Field(default="4Gi", description="Memory of each. Unset means 4Gi.")

    rules = (_requested,)

    @property
    def requested_millicores(self) -> int:
        """Thousandths of a processor that a node has to have free; all of them where unset."""
        return 1000 * self.cores if self.request_millicores is None else self.request_millicores


class RetentionDays(SchemaModel):
    """How long tables are kept. Days are kept for ever."""

    five_minutes: Days = Field(
        default=30, description="Days for which tables of five minutes are kept. Unset means 30."
    )
    hours: Days = Field(
        default=400, description="Days for which tables of hours are kept. Unset means 400."
    )

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
        default=None, description="Price of each GiB fetched. Unset means that none is shown."
    )
    produce: Price | None = Field(
        default=None, description="Price of each GiB produced. Unset means that none is shown."
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
        description="A count below so many percent of the gauges is named as doubtful. Clients "
        "never get more than was counted. Unset means 90.",
    )
    most_percent: Annotated[int, Field(ge=100, le=200)] = Field(
        default=115,
        description="Clients get at most so many percent of what their gauges add up to. What was "
        "counted beyond that is unattributed: it is of clients that no quota meters. Unset means "
        "115.",
    )


class Recommend(SchemaModel):
    """How contracts are recommended from usage, and whether the operator may act on that."""

    headroom_percent: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=30,
        description="How far a recommended contract is above what 99 % of five minutes stayed "
        "under. Unset means 30.",
    )
    apply: RecommendationUse = Field(
        default="Never",
        description="Never: recommended contracts are shown in the tier's status. WithinPercent: "
        "they replace the declared ones, no further from these than maxChangePercent; the objects "
        "themselves stay as you wrote them. Unset means Never.",
    )
    max_change_percent: Annotated[int, Field(ge=1, le=100)] | None = Field(
        default=None,
        description="How far an applied contract may be from the declared one, up or down. "
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


class Rollup(SchemaModel):
    """Usage tables, reports and recommended contracts, made by Jobs that the operator starts."""

    interval_seconds: IntervalSeconds = Field(
        default=3600,
        description="How long the window of one Job is, so how often there is one; windows are "
        "aligned to midnight UTC. Unset means 3600.",
    )
    storage: RollupStorage = Field(description="Where the tables are.")
    driver: RollupDriver = Field(
        default=RollupDriver(),
        description="The Job's own Pod. Unset means the defaults of its fields.",
    )
    executors: RollupExecutors = Field(
        default=RollupExecutors(),
        description="Further Pods that the Job starts, for clusters too large for one. Unset "
        "means the defaults of its fields.",
    )
    pod: RollupPod = Field(
        default=RollupPod(),
        description="What the Pods of Jobs and their executors have beside what they need. Unset "
        "means the defaults of its fields.",
    )
    retention_days: RetentionDays = Field(
        default=RetentionDays(),
        description="How long tables are kept. Unset means the defaults of its fields.",
    )
    price_per_gib: PricePerGiB | None = Field(
        default=None,
        alias="pricePerGiB",
        description="What 2^30 bytes cost in a chargeback report. Unset means that no price is "
        "shown.",
    )
    calibration: Calibration = Field(
        default=Calibration(),
        description="How far the broker's count may be from what the clients' gauges add up to. "
        "Unset means the defaults of its fields.",
    )
    recommend: Recommend = Field(
        default=Recommend(),
        description="How contracts are recommended from usage. Unset means the defaults of its "
        "fields.",
    )

    @property
    def factor_bounds(self) -> tuple[float, float]:
        """The lowest and the highest factor from gauges to the count that is not doubtful."""
        return self.calibration.least_percent / 100, self.calibration.most_percent / 100
