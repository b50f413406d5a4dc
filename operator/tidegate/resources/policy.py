"""The spec of BrokerBandwidthPolicy: one Kafka cluster and the bandwidth of its brokers."""

from typing import Annotated, Any, Literal

from pydantic import Field

from tidegate.resources.authentication import (
    CERTIFICATE_NEEDS_TLS,
    KafkaAuthentication,
    PrometheusAuthentication,
    Tls,
    ZooKeeperAuthentication,
    secret_names,
)
from tidegate.resources.fields import BootstrapServers, ClusterId, HttpUrl, ZooKeeperConnect, matching, ruled
from tidegate.resources.rates import ByteRate, QuotaDefaults, cel_at_most
from tidegate.resources.rollup import Rollup
from tidegate.resources.schema import Rule, SchemaModel

# The part of a policy that says which Kafka cluster it is for and how its quotas are read and
# written.


QuotaStoreKind = Literal["ZooKeeper", "AdminApi"]


class ZooKeeperConnection(SchemaModel):
    """Where the brokers keep their configuration in ZooKeeper mode."""

    connect: ZooKeeperConnect = Field(
        description="The brokers' own zookeeper.connect: host:port pairs separated by commas, then the chroot if they have one."
    )
    tls: Tls | None = Field(default=None, description="TLS to ZooKeeper; connect names its secure port then. Unset means plain text.")
    authentication: ZooKeeperAuthentication | None = Field(
        default=None, description="Login to ZooKeeper. New nodes copy the ACL of their parent. Unset means no login."
    )

    rules = (CERTIFICATE_NEEDS_TLS,)

    @property
    def secret_names(self) -> frozenset[str]:
        """The Secrets that the connection needs."""
        return secret_names(self.tls, self.authentication)


class QuotaWindow(SchemaModel):
    """The brokers' quota window, from which every bound on a client's mute is derived."""

    samples: Annotated[int, Field(ge=1, le=600)] | None = Field(
        default=None, description="The brokers' quota.window.num. Unset means 11, which is Kafka's default."
    )
    sample_seconds: Annotated[int, Field(ge=1, le=600)] | None = Field(
        default=None, description="The brokers' quota.window.size.seconds. Unset means 1, which is Kafka's default."
    )

    @property
    def samples_or_default(self) -> int:
        """The number of samples; 11 where unset."""
        return 11 if self.samples is None else self.samples

    @property
    def sample_seconds_or_default(self) -> int:
        """The length of a sample; 1 s where unset."""
        return 1 if self.sample_seconds is None else self.sample_seconds


class KafkaCluster(SchemaModel):
    """One Kafka cluster: where leaders are read and where quotas are written."""

    bootstrap_servers: BootstrapServers = Field(
        description="Brokers to ask for partition leaders first: host:port pairs separated by commas."
    )
    cluster_id: ClusterId | None = Field(
        default=None, description="Guard: a cluster with any other id behind these addresses is refused. Unset means any id is accepted."
    )
    quota_store: QuotaStoreKind = Field(
        description="How quotas are written. ZooKeeper: directly, for clusters in ZooKeeper mode. "
        "AdminApi: through the brokers, for Kafka 2.6 and later and every KRaft cluster; it comes in a later version and is refused "
        "until then."
    )
    zookeeper: ZooKeeperConnection | None = Field(
        default=None, description="Where the quotas are kept with quotaStore ZooKeeper; required with it."
    )
    tls: Tls | None = Field(default=None, description="TLS to bootstrapServers and all other brokers. Unset means plain text.")
    authentication: KafkaAuthentication | None = Field(default=None, description="Login to the brokers. Unset means no login.")
    quota_window: QuotaWindow | None = Field(
        default=None, description="The brokers' quota window, where it is not Kafka's. Unset means the defaults of its fields."
    )

    rules = (
        Rule(
            cel="self.quotaStore != 'ZooKeeper' || has(self.zookeeper)",
            message="zookeeper.connect is required with quotaStore ZooKeeper",
            reason="FieldValueRequired",
            field_path=".zookeeper",
            holds=lambda kafka: kafka.quota_store != "ZooKeeper" or kafka.zookeeper is not None,
        ),
        Rule(
            cel="self.quotaStore != 'AdminApi'",
            message="quotaStore AdminApi comes in a later version: for a cluster in ZooKeeper mode set quotaStore to ZooKeeper and "
            "give zookeeper.connect; a KRaft cluster cannot be managed yet",
            reason="FieldValueForbidden",
            field_path=".quotaStore",
            holds=lambda kafka: kafka.quota_store != "AdminApi",
        ),
        CERTIFICATE_NEEDS_TLS,
    )

    @property
    def secret_names(self) -> frozenset[str]:
        """The Secrets that the connections to brokers and ZooKeeper need."""
        own = secret_names(self.tls, self.authentication)
        return own if self.zookeeper is None else own | self.zookeeper.secret_names

    @property
    def quota_window_or_default(self) -> QuotaWindow:
        """The quota window; Kafka's default where unset."""
        return QuotaWindow() if self.quota_window is None else self.quota_window


# The part of a policy that says where the load of brokers and clients is measured.


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
    tls: Tls | None = Field(
        default=None, description="What an https address is trusted by. Unset means the authorities of the operator's own machine."
    )
    authentication: PrometheusAuthentication | None = Field(default=None, description="Login to Prometheus. Unset means no login.")

    rules = (
        Rule(
            cel="!has(self.tls) || self.url.startsWith('https://')",
            message="url must begin with https:// where tls is given",
            field_path=".url",
            holds=lambda server: server.tls is None or server.url.startswith("https://"),
        ),
        Rule(
            cel="!has(self.authentication) || !has(self.authentication.certificateAndKey) || self.url.startsWith('https://')",
            message="url must begin with https:// with authentication.certificateAndKey: a certificate is shown over TLS only",
            field_path=".url",
            holds=lambda server: (
                server.authentication is None or server.authentication.certificate_and_key is None or server.url.startswith("https://")
            ),
        ),
    )

    @property
    def secret_names(self) -> frozenset[str]:
        """The Secrets that the connection needs."""
        return secret_names(self.tls, self.authentication)


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


# The part of a policy that says how much traffic a single broker may carry before tiers are
# throttled.


def _limit_fits_capacity(limits: Any) -> bool:
    return limits.egress_limit is None or limits.egress_capacity is None or limits.egress_limit <= limits.egress_capacity


_LIMIT_FITS_CAPACITY = Rule(
    cel=f"!has(self.egressLimit) || !has(self.egressCapacity) || {cel_at_most('self.egressLimit', 'self.egressCapacity')}",
    message="egressLimit must not be above egressCapacity: the card could never reach its limit",
    field_path=".egressLimit",
    holds=_limit_fits_capacity,
)
_HAS_A_LIMIT = Rule(
    cel="has(self.egressLimit) || has(self.ingressLimit) || has(self.egressCapacity)",
    message="must have at least one of egressLimit, ingressLimit and egressCapacity",
    holds=lambda limits: not (limits.egress_limit is None and limits.ingress_limit is None and limits.egress_capacity is None),
)


class BrokerLimitOverride(SchemaModel):
    """Other limits for some brokers."""

    ids: tuple[BrokerId, ...] = Field(
        min_length=1,
        max_length=64,
        description="Ids of the brokers.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    egress_limit: ByteRate | None = Field(default=None, description="Bytes per second out of these brokers. Unset means as for the others.")
    ingress_limit: ByteRate | None = Field(default=None, description="Bytes per second into these brokers. Unset means as for the others.")
    egress_capacity: ByteRate | None = Field(default=None, description="The speed of these brokers' cards. Unset means as for the others.")

    rules = (
        _HAS_A_LIMIT,
        _LIMIT_FITS_CAPACITY,
        Rule(
            cel="",
            message="every broker id may appear once only",
            field_path=".ids",
            holds=lambda override: len(set(override.ids)) == len(override.ids),
        ),
    )


def _override_fits_capacity(limits: Any) -> bool:
    capacity = limits.egress_capacity
    return capacity is None or all(
        o.egress_capacity is not None or o.egress_limit is None or o.egress_limit <= capacity for o in limits.overrides or ()
    )


def _ids_are_disjoint(limits: Any) -> bool:
    ids = [broker for override in limits.overrides or () for broker in override.ids]
    return len(set(ids)) == len(ids)


class BrokerLimits(SchemaModel):
    """The threshold of every single broker, and of some that differ."""

    egress_limit: ByteRate | None = Field(
        default=None, description="Bytes per second out of a broker above which tiers are throttled. Unset means no limit."
    )
    ingress_limit: ByteRate | None = Field(
        default=None, description="Bytes per second into a broker above which tiers are throttled. Unset means no limit."
    )
    egress_capacity: ByteRate | None = Field(
        default=None,
        description="Speed of a broker's network card in bytes per second. Absurd readings are refused against it, "
        "and a full link is known by it.",
    )
    overrides: tuple[BrokerLimitOverride, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=20,
        description="Brokers with other limits. A broker may be named once only.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )

    rules = (
        _HAS_A_LIMIT,
        _LIMIT_FITS_CAPACITY,
        Rule(
            cel=(
                "!has(self.egressCapacity) || !has(self.overrides) || "
                "self.overrides.all(o, has(o.egressCapacity) || !has(o.egressLimit) || "
                + cel_at_most("o.egressLimit", "self.egressCapacity")
                + ")"
            ),
            message="an egressLimit in overrides must not be above egressCapacity; give the override an egressCapacity of its own",
            field_path=".overrides",
            holds=_override_fits_capacity,
        ),
        Rule(
            cel="!has(self.overrides) || self.overrides.all(a, a.ids.all(i, self.overrides.exists_one(b, i in b.ids)))",
            message="a broker may appear in one override only",
            field_path=".overrides",
            holds=_ids_are_disjoint,
        ),
    )

    def egress_limit_of(self, broker_id: int) -> int | None:
        """Bytes per second out of one broker; None where no limit is set for it."""
        override = self._override_of(broker_id)
        return self.egress_limit if override is None or override.egress_limit is None else override.egress_limit

    def ingress_limit_of(self, broker_id: int) -> int | None:
        """Bytes per second into one broker; None where no limit is set for it."""
        override = self._override_of(broker_id)
        return self.ingress_limit if override is None or override.ingress_limit is None else override.ingress_limit

    def egress_capacity_of(self, broker_id: int) -> int | None:
        """Speed of one broker's card in bytes per second; None where it is not known."""
        override = self._override_of(broker_id)
        return self.egress_capacity if override is None or override.egress_capacity is None else override.egress_capacity

    def _override_of(self, broker_id: int) -> BrokerLimitOverride | None:
        return next((override for override in self.overrides or () if broker_id in override.ids), None)


# The parts of a policy that say how fast quotas may move: scaling by leaders, escalation, and the
# write budget.


ScalingMethod = Literal["Max", "Mean", "Min", "Adaptive"]
EscalationSpeed = Literal["Ladder", "Drain"]
Percent = Annotated[int, Field(ge=0, le=100)]
PercentOfLimit = Annotated[int, Field(ge=50, le=100)]


class LeaderScaling(SchemaModel):
    """How a contract becomes one number for all brokers, when they lead unequally many partitions."""

    method: ScalingMethod | None = Field(
        default=None,
        description="What to do where leaders are uneven; a native quota is one number for all brokers. "
        "Max: no partition gets less than promised, the total may exceed the contract. Mean: the total is the contract, "
        "partitions on crowded brokers get less. Min: no broker allows more than promised. "
        "Adaptive: between Mean and Max by measured rates, so that the total is the contract for greedy clients and for even demand; "
        "without metrics it stays at Max. Unset means Max.",
    )
    minimum_change_percent: Percent | None = Field(
        default=None, description="Leader moves that change a quota by less than this are not written. Unset means 10."
    )

    @property
    def method_or_default(self) -> ScalingMethod:
        """The method; Max where unset."""
        return self.method or "Max"

    @property
    def minimum_change_percent_or_default(self) -> int:
        """The smallest change worth a write, in percent; 10 where unset."""
        return 10 if self.minimum_change_percent is None else self.minimum_change_percent


class Escalation(SchemaModel):
    """How tiers are throttled and released while a broker is over its limit."""

    speed: EscalationSpeed | None = Field(
        default=None,
        description="Ladder: several bounded steps, each mute within maxMuteSeconds. "
        "Drain: two writes and one longer silence where readings allow it, else the ladder. Unset means Ladder.",
    )
    max_mute_seconds: Annotated[int, Field(ge=2, le=120)] | None = Field(
        default=None,
        description="Longest silence that one lowering may cause for a client, whatever its cause. "
        "Clients give up on a request after 30 s by default. Unset means 12.",
    )
    aim_percent: PercentOfLimit | None = Field(
        default=None, description="Where a cut aims, in percent of the broker's limit. Unset means 97."
    )
    raise_to_percent: PercentOfLimit | None = Field(
        default=None, description="How far raises may fill the broker's limit, in percent; not above aimPercent. Unset means 95."
    )
    hold_seconds: Annotated[int, Field(ge=1, le=480)] | None = Field(
        default=None, description="How long brokers must stay within their limits before quotas are raised again. Unset means 45."
    )

    rules = (
        Rule(
            cel="(has(self.raiseToPercent) ? self.raiseToPercent : 95) <= (has(self.aimPercent) ? self.aimPercent : 97)",
            message="raiseToPercent (95 where unset) must not be above aimPercent (97 where unset): every raise would be cut again",
            holds=lambda escalation: escalation.raise_to_percent_or_default <= escalation.aim_percent_or_default,
        ),
    )

    @property
    def speed_or_default(self) -> EscalationSpeed:
        """The speed; Ladder where unset."""
        return self.speed or "Ladder"

    @property
    def max_mute_seconds_or_default(self) -> int:
        """The longest mute that one lowering may cause; 12 s where unset."""
        return 12 if self.max_mute_seconds is None else self.max_mute_seconds

    @property
    def aim_percent_or_default(self) -> int:
        """Where a cut aims, in percent of the limit; 97 where unset."""
        return 97 if self.aim_percent is None else self.aim_percent

    @property
    def raise_to_percent_or_default(self) -> int:
        """How far raises fill the limit, in percent; 95 where unset."""
        return 95 if self.raise_to_percent is None else self.raise_to_percent

    @property
    def hold_seconds_or_default(self) -> int:
        """How long to wait before raising; 45 s where unset."""
        return 45 if self.hold_seconds is None else self.hold_seconds


class WriteBudget(SchemaModel):
    """How many quota changes Kafka is asked to digest."""

    notifications_per_quarter_hour: Annotated[int, Field(ge=10, le=100_000)] | None = Field(
        default=None, description="Entities that may be changed within 15 minutes; every broker reads each change. Unset means 300."
    )

    @property
    def notifications_per_quarter_hour_or_default(self) -> int:
        """The budget; 300 entities in 15 minutes where unset."""
        return 300 if self.notifications_per_quarter_hour is None else self.notifications_per_quarter_hour


class Removal(SchemaModel):
    """How many quotas may be given back at once without a person's word."""

    max_percent_per_pass: Annotated[int, Field(ge=1, le=100)] | None = Field(
        default=None,
        description="Giving back more than this share of all managed quotas at once is held (reason RemovalHeld) until the annotation "
        "tidegate.io/confirm-removal names the count. Unset means 50; 100 never holds.",
    )

    @property
    def max_percent_per_pass_or_default(self) -> int:
        """The share in percent; 50 where unset."""
        return 50 if self.max_percent_per_pass is None else self.max_percent_per_pass


PolicyMode = Literal["Observe", "Enforce"]
DeletionPolicy = Literal["Restore", "Keep"]


class PolicySpec(SchemaModel):
    """What a person wants of one Kafka cluster."""

    mode: PolicyMode = Field(
        description="Observe: decide, publish and audit, but write nothing to Kafka. Enforce: act. There is no default; choose."
    )
    suspend: bool | None = Field(
        default=None,
        description="true: freeze everything as it is, as the annotation tidegate.io/paused does: nothing is written to Kafka, not even "
        "when this policy is deleted. Unset: false.",
    )
    kafka: KafkaCluster = Field(description="The Kafka cluster. One policy per cluster, told apart by cluster id.")
    metrics: MetricsSource | None = Field(
        default=None,
        description="Where load is measured. Unset means that contracts follow the leaders and no tier is ever throttled.",
    )
    brokers: BrokerLimits | None = Field(
        default=None,
        description="Limits of each single broker. Unset means that no broker is ever over its limit.",
    )
    leader_scaling: LeaderScaling | None = Field(
        default=None, description="How contracts follow partition leaders. Unset means the defaults of its fields."
    )
    escalation: Escalation | None = Field(
        default=None,
        description="How tiers are throttled and released while a broker is over its limit. Unset means the defaults of its fields.",
    )
    defaults: QuotaDefaults | None = Field(
        default=None, description="Quotas of Kafka's default entities, on each broker. Unset means not managed."
    )
    write_budget: WriteBudget | None = Field(
        default=None, description="How many quota changes Kafka is asked to digest. Unset means the defaults of its fields."
    )
    removal: Removal | None = Field(
        default=None,
        description="How many quotas may be given back at once without a person's word. Unset means the defaults of its fields.",
    )
    deletion: DeletionPolicy | None = Field(
        default=None,
        description="What happens to quotas when this policy is deleted. Restore: each entity gets back what it had before Tidegate "
        "first wrote it. Keep: everything stays as it is. Unset means Restore.",
    )
    rollup: Rollup | None = Field(
        default=None, description="Usage tables, chargeback reports and recommended contracts. Unset means that there are none."
    )

    rules = (
        Rule(
            cel="!has(self.rollup) || has(self.metrics)",
            message="metrics is required with rollup: usage is read from the Prometheus that it names",
            reason="FieldValueRequired",
            field_path=".metrics",
            holds=lambda policy: policy.rollup is None or policy.metrics is not None,
        ),
    )

    @property
    def leader_scaling_or_default(self) -> LeaderScaling:
        """How contracts follow leaders; all defaults where unset."""
        return self.leader_scaling or LeaderScaling()

    @property
    def escalation_or_default(self) -> Escalation:
        """How tiers are throttled; all defaults where unset."""
        return self.escalation or Escalation()

    @property
    def write_budget_or_default(self) -> WriteBudget:
        """The write budget; its default where unset."""
        return self.write_budget or WriteBudget()

    @property
    def removal_or_default(self) -> Removal:
        """The removal cap; its default where unset."""
        return self.removal or Removal()

    @property
    def deletion_or_default(self) -> DeletionPolicy:
        """What happens on deletion; Restore where unset."""
        return self.deletion or "Restore"
