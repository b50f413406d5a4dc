"""spec.rollup: usage tables, how often they are made, where they are kept, and what a Job may use.

The operator reads it to make the Jobs, and the Job reads it too. Whether a claim exists, a bucket
can be written or nodes have the memory is found out by the Job, and reported in the policy's
condition RollupsCurrent.
"""

from typing import Annotated, Literal

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


class RollupStorage(SchemaModel):
    """The storage of the tables."""

    url: StorageUrl = Field(
        description="Folder of the tables: file:///path on a volume (see claimName), or s3://, "
        "gs://, abfs:// or abfss:// with the Job's identity. The Secret <policy>-bucket, where "
        "there is one, gives an S3 bucket's endpoint and login."
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
    )

    @property
    def mount_path(self) -> str | None:
        """The folder where the claim is mounted; None without one."""
        return self.url.removeprefix("file://").rstrip("/") if self.claim_name is not None else None


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
