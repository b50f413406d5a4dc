"""The part of a policy that says where the load of brokers and clients is measured."""

from typing import Annotated, Literal

from pydantic import Field

from tidegate.resources.fields import HttpUrl, SecretRef, matching, ruled
from tidegate.resources.rules import Rule
from tidegate.resources.schema import SchemaModel

MetricsPreset = Literal["NodeExporter", "Cadvisor", "JmxExporter", "Custom"]
BrokerId = Annotated[int, Field(ge=0, le=2**31 - 1)]
Query = Annotated[str, Field(min_length=1, max_length=4096)]

_label_check, _label_schema = ruled(
    matching(r"[A-Za-z_][A-Za-z0-9_]*", "must be the name of a Prometheus label: letters, digits and '_', not beginning with a digit")
)
LabelName = Annotated[str, Field(min_length=1, max_length=128), _label_check, _label_schema]


class Prometheus(SchemaModel):
    """A Prometheus server or anything that answers its query API."""

    url: HttpUrl = Field(description="Address of the query API, such as http://prometheus:9090.")
    credentials_secret_ref: SecretRef | None = Field(
        default=None, description="Secret with a bearer token, or user name and password. Unset means no login."
    )
    ca_secret_ref: SecretRef | None = Field(
        default=None, description="Secret with the certificate authority of an https address. Unset means the system's own."
    )


class MetricQueries(SchemaModel):
    """PromQL in place of the preset's: plain selectors (`metric{...}`, no function, range or sum), so that samples keep their own times.

    Each series must have the label that names its broker.
    """

    egress: Query | None = Field(default=None, description="Bytes sent by each broker's card, as a counter.")
    ingress: Query | None = Field(default=None, description="Bytes received by each broker's card, as a counter.")
    user_fetch: Query | None = Field(default=None, description="Bytes per second that each user and client id fetches from each broker.")
    user_produce: Query | None = Field(default=None, description="Bytes per second that each user and client id produces to each broker.")

    rules = (
        Rule(
            cel="has(self.egress) || has(self.ingress) || has(self.userFetch) || has(self.userProduce)",
            message="must have at least one of egress, ingress, userFetch and userProduce",
            holds=lambda queries: any((queries.egress, queries.ingress, queries.user_fetch, queries.user_produce)),
        ),
    )


class BrokerInstance(SchemaModel):
    """Which broker a scrape target belongs to."""

    instance: Annotated[str, Field(min_length=1, max_length=256)] = Field(description="Value of the label instance, such as 10.0.0.1:9100.")
    id: BrokerId = Field(description="Id of the broker on that machine.")


class BrokerIds(SchemaModel):
    """How a series tells which broker it is about."""

    label: LabelName | None = Field(default=None, description="Label whose value is the broker's id.")
    instances: tuple[BrokerInstance, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=500,
        description="Explicit list, for exporters that do not know the broker's id.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["instance"]},
    )

    rules = (
        Rule(
            cel="has(self.label) != has(self.instances)",
            message="must have exactly one of label and instances",
            holds=lambda ids: (ids.label is None) != (ids.instances is None),
        ),
        Rule(
            cel="!has(self.instances) || self.instances.all(i, self.instances.exists_one(j, j.id == i.id))",
            message="every broker id may appear once only",
            field_path=".instances",
            holds=lambda ids: ids.instances is None or len({i.id for i in ids.instances}) == len(ids.instances),
        ),
        Rule(
            cel="",
            message="every instance may appear once only",
            field_path=".instances",
            holds=lambda ids: ids.instances is None or len({i.instance for i in ids.instances}) == len(ids.instances),
        ),
    )


class MetricsSource(SchemaModel):
    """Where load is measured, how often, and when a reading is too old to act on."""

    prometheus: Prometheus = Field(description="The Prometheus server that scrapes the brokers.")
    preset: MetricsPreset | None = Field(
        default=None,
        description="What the readings come from: node_exporter, cAdvisor, the JMX exporter, or your own queries (Custom). "
        "Unset means NodeExporter.",
    )
    queries: MetricQueries | None = Field(
        default=None,
        description="PromQL that replaces the preset's, each by itself. Plain selectors such as my_bytes_total{cluster='c1'}: a query with "
        "a function, a range or a sum is refused, because samples must keep their own times.",
    )
    broker_ids: BrokerIds | None = Field(
        default=None,
        description="How a series tells which broker it is about. Unset means the label broker; with preset Cadvisor the number at the "
        "end of the label pod.",
    )
    scrape_interval_seconds: Annotated[int, Field(ge=1, le=300)] | None = Field(
        default=None, description="How often Prometheus scrapes the brokers. Unset means 15."
    )
    stale_after_seconds: Annotated[int, Field(ge=1, le=3600)] | None = Field(
        default=None, description="A reading older than this is not acted on. Unset means three scrape intervals."
    )
    enable_metering: bool | None = Field(
        default=None,
        description="true: write a quota that never binds (2^53-1 B/s) for Kafka's default user, so that brokers meter every user. "
        "The ledger records it, and false gives it back. Nothing is written where defaults.user is declared, where somebody else has set "
        "a default-user quota, or where client ids without a user have byte rates, which it would hide (MeteringWithheld). Unset: false.",
    )

    rules = (
        Rule(
            cel="!has(self.preset) || self.preset != 'Custom' || has(self.queries)",
            message="queries are required with preset Custom",
            reason="FieldValueRequired",
            field_path=".queries",
            holds=lambda metrics: metrics.preset != "Custom" or metrics.queries is not None,
        ),
        Rule(
            cel="!has(self.staleAfterSeconds) || "
            "self.staleAfterSeconds >= (has(self.scrapeIntervalSeconds) ? self.scrapeIntervalSeconds : 15)",
            message="staleAfterSeconds must not be below scrapeIntervalSeconds (15 where unset): every reading would be stale",
            field_path=".staleAfterSeconds",
            holds=lambda metrics: metrics.stale_after_seconds_or_default >= metrics.scrape_interval_seconds_or_default,
        ),
    )

    @property
    def preset_or_default(self) -> MetricsPreset:
        """The preset; NodeExporter where unset."""
        return self.preset or "NodeExporter"

    @property
    def scrape_interval_seconds_or_default(self) -> int:
        """The scrape interval; 15 s where unset."""
        return 15 if self.scrape_interval_seconds is None else self.scrape_interval_seconds

    @property
    def stale_after_seconds_or_default(self) -> int:
        """When a reading is stale; three scrape intervals where unset."""
        return 3 * self.scrape_interval_seconds_or_default if self.stale_after_seconds is None else self.stale_after_seconds

    @property
    def enable_metering_or_default(self) -> bool:
        """Whether brokers are made to meter every user; False where unset."""
        return bool(self.enable_metering)
