"""The spec of BrokerBandwidthPolicy: one Kafka cluster and the bandwidth of its brokers."""

import re
from typing import Annotated, Any, Literal

from pydantic import Field

from tidegate.resources.access import MAX_RULES, AllowedEntities, AllowedTiers, NamespaceName
from tidegate.resources.authentication import (
    CERTIFICATE_NEEDS_TLS,
    TOKENS_NEED_TLS,
    KafkaAuthentication,
    PrometheusAuthentication,
    Tls,
    ZooKeeperAuthentication,
    secret_names,
)
from tidegate.resources.calendar import Calendar, Recurring
from tidegate.resources.fields import (
    BootstrapServers,
    ClusterId,
    HttpUrl,
    ObjectName,
    PodPattern,
    TopicName,
    ZooKeeperConnect,
    matching,
    ruled,
)
from tidegate.resources.rates import ByteRate, QuotaDefaults, cel_at_most
from tidegate.resources.replication import Background, Replication
from tidegate.resources.rollup import Rollup
from tidegate.resources.schema import Rule, SchemaModel

# spec.kafka: the Kafka cluster, and how its quotas are read and written.


QuotaStoreKind = Literal["Auto", "ZooKeeper", "AdminApi"]


class ZooKeeperConnection(SchemaModel):
    """The ZooKeeper in which the brokers keep their configuration."""

    connect: ZooKeeperConnect = Field(
        description="The brokers' own zookeeper.connect: host:port pairs separated by commas, "
        "followed by the chroot if there is one."
    )
    tls: Tls | None = Field(
        default=None,
        description="TLS to ZooKeeper; connect must name its secure port. Unset means plain text.",
    )
    authentication: ZooKeeperAuthentication | None = Field(
        default=None,
        description="Login to ZooKeeper. New nodes inherit their parent's ACL. Unset means no "
        "login.",
    )

    rules = (CERTIFICATE_NEEDS_TLS,)

    @property
    def secret_names(self) -> frozenset[str]:
        """The Secrets that the connection needs."""
        return secret_names(self.tls, self.authentication)


class QuotaWindow(SchemaModel):
    """The brokers' quota window, from which every bound on a client's mute is derived."""

    samples: Annotated[int, Field(ge=1, le=600)] = Field(
        default=11,
        description="The brokers' quota.window.num. Unset means 11, Kafka's default.",
    )
    sample_seconds: Annotated[int, Field(ge=1, le=600)] = Field(
        default=1,
        description="The brokers' quota.window.size.seconds. Unset means 1, Kafka's default.",
    )


class StrimziCluster(SchemaModel):
    """The Strimzi cluster that the Kafka cluster is, whose KafkaUsers may own quotas."""

    cluster: ObjectName = Field(
        description="Name of Strimzi's Kafka object, as in the label strimzi.io/cluster of its "
        "KafkaUsers."
    )
    namespace: NamespaceName | None = Field(
        default=None,
        description="Namespace of the KafkaUsers. Unset means the policy's own.",
    )


class KafkaCluster(SchemaModel):
    """One Kafka cluster: where leaders are read and where quotas are written."""

    bootstrap_servers: BootstrapServers = Field(
        description="Brokers to connect to first: host:port pairs separated by commas."
    )
    cluster_id: ClusterId | None = Field(
        default=None,
        description="Safeguard: refuse any cluster with a different id behind these addresses. "
        "Unset means any id is accepted.",
    )
    quota_store: QuotaStoreKind = Field(
        default="Auto",
        description="How quotas are written. ZooKeeper: directly, for clusters in ZooKeeper "
        "mode. AdminApi: through the brokers, for Kafka 2.6 and later and every "
        "KRaft cluster. Auto: ZooKeeper if zookeeper is set, else AdminApi. Unset "
        "means Auto.",
    )
    ledger_topic: TopicName | None = Field(
        default=None,
        description="The compacted topic, with one partition, in which AdminApi records what "
        "it wrote and what was there before. Created if it does not exist. Unset "
        "means __tidegate_ledger.",
    )
    zookeeper: ZooKeeperConnection | None = Field(
        default=None,
        description="The ZooKeeper that holds the quotas; required with quotaStore ZooKeeper. "
        "Auto uses it for a cluster in ZooKeeper mode, and changes nothing while "
        "the brokers run KRaft.",
    )
    tls: Tls | None = Field(
        default=None,
        description="TLS to all brokers. Unset means plain text.",
    )
    authentication: KafkaAuthentication | None = Field(
        default=None, description="Login to the brokers. Unset means no login."
    )
    quota_window: QuotaWindow = Field(
        default=QuotaWindow(),
        description="The brokers' quota window, if it is not Kafka's default. Unset means the "
        "defaults of its fields.",
    )
    strimzi: StrimziCluster | None = Field(
        default=None,
        description="The Strimzi cluster behind these brokers. Strimzi owns the quotas that "
        "its KafkaUsers declare. Unset means the cluster named by a bootstrap host "
        "like CLUSTER-kafka-bootstrap.NAMESPACE.svc, else none.",
    )

    rules = (
        Rule(
            cel="!has(self.quotaStore) || self.quotaStore != 'ZooKeeper' || has(self.zookeeper)",
            message="zookeeper.connect is required with quotaStore ZooKeeper",
            reason="FieldValueRequired",
            field_path=".zookeeper",
            holds=lambda kafka: kafka.quota_store != "ZooKeeper" or kafka.zookeeper is not None,
        ),
        Rule(
            cel="!has(self.quotaStore) || self.quotaStore != 'AdminApi' || !has(self.zookeeper)",
            message="zookeeper is not used with quotaStore AdminApi: remove it, or set quotaStore "
            "to ZooKeeper",
            reason="FieldValueForbidden",
            field_path=".zookeeper",
            holds=lambda kafka: kafka.quota_store != "AdminApi" or kafka.zookeeper is None,
        ),
        Rule(
            cel="!has(self.ledgerTopic) || !has(self.zookeeper)",
            message="ledgerTopic is not used with zookeeper, where the ledger is kept beside the "
            "quotas: remove one of the two",
            reason="FieldValueForbidden",
            field_path=".ledgerTopic",
            holds=lambda kafka: kafka.ledger_topic is None or kafka.zookeeper is None,
        ),
        CERTIFICATE_NEEDS_TLS,
        TOKENS_NEED_TLS,
    )

    @property
    def secret_names(self) -> frozenset[str]:
        """The Secrets that the connections to brokers and ZooKeeper need."""
        own = secret_names(self.tls, self.authentication)
        return own if self.zookeeper is None else own | self.zookeeper.secret_names


# spec.metrics: where the load of brokers and clients is measured.


StaleAction = Literal["Hold", "Release"]
MetricsPreset = Literal["NodeExporter", "Cadvisor", "JmxExporter", "Custom"]
BrokerId = Annotated[int, Field(ge=0, le=2**31 - 1)]
_BLANK = r"[ \t\r\n]*"
# quoted values may hold braces; \x27 is the single quote, which would end the text in CEL
_BRACES = r"\{(?:[^\x22\x27`{}]|\x22(?:[^\x22\\]|\\.)*\x22|\x27(?:[^\x27\\]|\\.)*\x27|`[^`]*`)*\}"
_query_check, _query_schema = ruled(
    matching(
        rf"{_BLANK}(?:[A-Za-z_:][A-Za-z0-9_:]*{_BLANK}(?:{_BRACES})?|{_BRACES}){_BLANK}",
        "must be a plain selector such as my_bytes_total{job='kafka'}: no function, range, sum or "
        "operator, so that samples keep their own times",
    )
)
Query = Annotated[str, Field(min_length=1, max_length=4096), _query_check, _query_schema]

_LABEL = r"[A-Za-z_][A-Za-z0-9_]*"
_label_check, _label_schema = ruled(
    matching(
        _LABEL,
        (
            "must be the name of a Prometheus label: letters, digits and '_', not beginning with a "
            "digit"
        ),
    )
)
LabelName = Annotated[str, Field(min_length=1, max_length=128), _label_check, _label_schema]
_matchers_check, _matchers_schema = ruled(
    Rule(
        cel=f"self.all(label, label.matches('^{_LABEL}$') && label.size() <= 128 && label != "
        f"'__name__')",
        message="every key must be the name of a Prometheus label (letters, digits and '_', not "
        "beginning with a digit, at most 128) other than __name__",
        holds=lambda matchers: all(
            re.fullmatch(_LABEL, label, re.ASCII) and len(label) <= 128 and label != "__name__"
            for label in matchers
        ),
    )
)
Matchers = Annotated[
    dict[str, Annotated[str, Field(min_length=1, max_length=256)]],
    Field(min_length=1, max_length=10),
    _matchers_check,
    _matchers_schema,
]


_NO_TENANTS = (
    "authorization",
    "cookie",
    "host",
    "connection",
    "transfer-encoding",
    "user-agent",
    "proxy-authorization",
)
_HEADER = r"[A-Za-z0-9-]{1,64}"
_headers_check, _headers_schema = ruled(
    Rule(
        cel=f"self.all(name, name.matches('^{_HEADER}$') && !(name.lowerAscii() in "
        f"[{', '.join(repr(name) for name in _NO_TENANTS)}]) && "
        "!name.lowerAscii().startsWith('content-') && !name.lowerAscii().startsWith('accept'))",
        message="every key must be the name of a header such as X-Scope-OrgID: letters, digits and "
        "'-', at most 64, and none of those that belong to the connection or to a login",
        holds=lambda headers: all(
            re.fullmatch(_HEADER, name, re.ASCII)
            and name.lower() not in _NO_TENANTS
            and not name.lower().startswith(("content-", "accept"))
            for name in headers
        ),
    ),
    Rule(
        cel="self.all(name, self[name].matches('^[!-~]+$'))",
        message="every value must be printable ASCII without spaces",
        holds=lambda headers: all(re.fullmatch(r"[!-~]+", value) for value in headers.values()),
    ),
)
Headers = Annotated[
    dict[str, Annotated[str, Field(min_length=1, max_length=256)]],
    Field(min_length=1, max_length=5),
    _headers_check,
    _headers_schema,
]


class Prometheus(SchemaModel):
    """A Prometheus server or anything that answers its query API."""

    url: HttpUrl = Field(description="URL of the query API, such as http://prometheus:9090.")
    tls: Tls | None = Field(
        default=None,
        description="Certificate authorities to trust for an https URL. Unset means the "
        "certificate authorities of the operator's machine.",
    )
    authentication: PrometheusAuthentication | None = Field(
        default=None, description="Login to Prometheus. Unset means no login."
    )
    insecure: bool | None = Field(
        default=None,
        description="true: send the login over plain http, where anyone on the network path "
        "can read it. Unset means false, and a login requires an https:// URL.",
    )
    headers: Headers | None = Field(
        default=None,
        description="Headers to send with every request, such as X-Scope-OrgID: orders for a "
        "tenant of Mimir or Cortex. Logins have their own field. Unset means none.",
    )
    replica_labels: tuple[LabelName, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=5,
        description="Labels that distinguish the replicas of a highly available Prometheus "
        "pair, such as prometheus_replica. Usage tables read the pair as one. A "
        "Thanos that deduplicates needs none. Unset means none.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )

    rules = (
        Rule(
            cel="!has(self.tls) || self.url.startsWith('https://')",
            message="url must begin with https:// where tls is given",
            field_path=".url",
            holds=lambda server: server.tls is None or server.url.startswith("https://"),
        ),
        Rule(
            cel="!has(self.authentication) || !has(self.authentication.certificateAndKey) || "
            "self.url.startsWith('https://')",
            message="url must begin with https:// with authentication.certificateAndKey: a "
            "certificate is shown over TLS only",
            field_path=".url",
            holds=lambda server: (
                server.authentication is None
                or server.authentication.certificate_and_key is None
                or server.url.startswith("https://")
            ),
        ),
    )

    @property
    def secret_names(self) -> frozenset[str]:
        """The Secrets that the connection needs."""
        return secret_names(self.tls, self.authentication)


class MetricQueries(SchemaModel):
    """PromQL instead of the preset's: plain selectors.

    A selector is `metric{...}` without function, range or sum, so that samples keep their own
    times. Each series must have the label that names its broker.
    """

    egress: Query | None = Field(
        default=None, description="Bytes sent by each broker's NIC, a counter."
    )
    ingress: Query | None = Field(
        default=None, description="Bytes received by each broker's NIC, a counter."
    )
    user_fetch: Query | None = Field(
        default=None,
        description="Bytes per second that each user and client id fetches from each broker.",
    )
    user_produce: Query | None = Field(
        default=None,
        description="Bytes per second that each user and client id produces to each broker.",
    )

    rules = (
        Rule(
            cel="has(self.egress) || has(self.ingress) || has(self.userFetch) || "
            "has(self.userProduce)",
            message="must have at least one of egress, ingress, userFetch and userProduce",
            holds=lambda queries: any(
                (queries.egress, queries.ingress, queries.user_fetch, queries.user_produce)
            ),
        ),
    )


class BrokerInstance(SchemaModel):
    """Which broker a scrape target belongs to."""

    instance: Annotated[str, Field(min_length=1, max_length=256)] = Field(
        description="Value of the instance label, such as 10.0.0.1:9100."
    )
    id: BrokerId = Field(description="Id of the broker on that machine.")


class BrokerIdentity(SchemaModel):
    """How a series names the broker that it is about."""

    label: LabelName | None = Field(
        default=None, description="Label whose value is the broker's id."
    )
    pod_pattern: PodPattern | None = Field(
        default=None,
        description="Regular expression that the whole value of the label must match; other "
        "series are ignored. Keeps other Pods in the namespace, such as Kafka "
        "Connect's or those of other clusters, from being mistaken for brokers.",
    )
    instances: tuple[BrokerInstance, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=500,
        description="Explicit list, for exporters that do not know the broker's id.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["instance"],
        },
    )

    rules = (
        Rule(
            cel="has(self.label) != has(self.instances)",
            message="must have exactly one of label and instances",
            holds=lambda ids: (ids.label is None) != (ids.instances is None),
        ),
        Rule(
            cel="!has(self.podPattern) || has(self.label)",
            message="podPattern needs label, such as pod",
            field_path=".podPattern",
            holds=lambda ids: ids.pod_pattern is None or ids.label is not None,
        ),
        Rule(
            cel="!has(self.instances) || self.instances.all(i, self.instances.exists_one(j, "
            "j.id == i.id))",
            message="every broker id may appear once only",
            field_path=".instances",
            holds=lambda ids: (
                ids.instances is None or len({i.id for i in ids.instances}) == len(ids.instances)
            ),
        ),
        Rule(
            cel="",
            message="every instance may appear once only",
            field_path=".instances",
            holds=lambda ids: (
                ids.instances is None
                or len({i.instance for i in ids.instances}) == len(ids.instances)
            ),
        ),
    )


class WhenStale(SchemaModel):
    """What happens to throttled quotas while a broker's load is not known for long."""

    after_seconds: Annotated[int, Field(ge=60, le=604_800)] = Field(
        default=900,
        description="How long a broker's load must be unknown, without interruption, before "
        "action is taken. Unset means 900.",
    )
    action: StaleAction = Field(
        default="Hold",
        description="Hold: throttled quotas stay as they are until there are readings again. "
        "Release: they return to their contracts as far as brokers with readings "
        "have headroom. Unknown load never lowers a quota. Unset means Hold.",
    )


# Linux allows any sign but / and space; * stands for any signs.
InterfaceName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.:@*-]+$")]


class DirectReadings(SchemaModel):
    """Reads hot brokers from their own node_exporter, between two scrapes of Prometheus."""

    enabled: bool = Field(
        description="true: read a broker that is close to its limit directly from its "
        "node_exporter every 2 s, so that the first cut need not wait for Prometheus' next scrapes."
    )
    port: Annotated[int, Field(ge=1, le=65535)] = Field(
        default=9100,
        description="Port of every exporter. The host is that of the label instance of the "
        "broker's series. Unset means 9100.",
    )
    path: Annotated[str, Field(max_length=256, pattern=r"^/[A-Za-z0-9._~/-]*$")] | None = Field(
        default=None, description="Path of every exporter. Unset means /metrics."
    )
    above_percent: Annotated[int, Field(ge=0, le=100)] = Field(
        default=80,
        description="A broker is read directly while it carries more than this percentage of its "
        "limit in either direction. 0: all brokers, always. Unset means 80.",
    )
    tls: Tls | None = Field(
        default=None,
        description="Connect by https, and trust these certificate authorities. Unset means plain "
        "http.",
    )
    authentication: PrometheusAuthentication | None = Field(
        default=None,
        description="Login to the exporters; Prometheus' own login is never sent to them. "
        "Requires tls. Unset means no login.",
    )

    rules = (
        Rule(
            cel="!has(self.authentication) || has(self.tls)",
            message="tls is required with authentication: over plain http, anyone on the network "
            "path can read the login",
            reason="FieldValueRequired",
            field_path=".tls",
            holds=lambda direct: direct.authentication is None or direct.tls is not None,
        ),
    )

    @property
    def secret_names(self) -> frozenset[str]:
        """The Secrets that the connections need."""
        return secret_names(self.tls, self.authentication)


class MetricsSource(SchemaModel):
    """The source of load: where and how often it is measured, and when a reading is too old."""

    prometheus: Prometheus = Field(description="The Prometheus server that scrapes the brokers.")
    preset: MetricsPreset = Field(
        default="NodeExporter",
        description="Where readings come from: node_exporter, cAdvisor, the JMX exporter, or "
        "your own queries (Custom). Unset means NodeExporter.",
    )
    queries: MetricQueries | None = Field(
        default=None,
        description="PromQL that replaces the preset's queries one by one. Plain selectors "
        "only, such as my_bytes_total{job='kafka'}, because samples must keep "
        "their timestamps.",
    )
    matchers: Matchers | None = Field(
        default=None,
        description="Labels that every series must have, such as cluster: orders if one "
        'Prometheus watches several Kafka clusters. Added as label="value" to '
        "every query, the preset's as well as your own. Unset means none.",
    )
    broker_identity: BrokerIdentity | None = Field(
        default=None,
        description="How a series identifies its broker. Unset means the label broker; with "
        "preset Cadvisor, the number at the end of the label pod.",
    )
    interfaces: tuple[InterfaceName, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=32,
        description="The network interfaces that make up a broker's NIC, with presets "
        "NodeExporter and Cadvisor: names such as ens5, with * as a wildcard "
        "(eno*). List a bond once: either its members or the bond. Unset means "
        "those that are known to be physical; if that cannot be determined, the "
        "broker's load is unknown.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    scrape_interval_seconds: Annotated[int, Field(ge=1, le=300)] = Field(
        default=15, description="How often Prometheus scrapes the brokers. Unset means 15."
    )
    stale_after_seconds: Annotated[int, Field(ge=1, le=3600)] = Field(
        default_factory=lambda metrics: 3 * metrics.get("scrape_interval_seconds", 15),
        description="Readings older than this are ignored. Unset means three scrape intervals.",
    )
    direct: DirectReadings | None = Field(
        default=None,
        description="Reads brokers that are close to their limit directly from their "
        "node_exporter. Unset means that Prometheus alone is read.",
    )
    when_stale: WhenStale = Field(
        default=WhenStale(),
        description="What happens to throttled quotas when a broker's load stays unknown. "
        "Unset means the defaults of its fields.",
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
            cel="!has(self.direct) || ((!has(self.preset) || self.preset == 'NodeExporter') && "
            "(!has(self.queries) || !(has(self.queries.egress) || has(self.queries.ingress))))",
            message="direct reads node_exporter: it requires preset NodeExporter, without queries "
            "for egress and ingress",
            field_path=".direct",
            holds=lambda metrics: (
                metrics.direct is None
                or (
                    metrics.preset == "NodeExporter"
                    and (
                        metrics.queries is None
                        or (metrics.queries.egress is None and metrics.queries.ingress is None)
                    )
                )
            ),
        ),
        Rule(
            cel="!has(self.interfaces) || !has(self.preset) || "
            "self.preset in ['NodeExporter', 'Cadvisor']",
            message="interfaces are of presets NodeExporter and Cadvisor: the others count no "
            "interfaces by name",
            field_path=".interfaces",
            holds=lambda metrics: (
                metrics.interfaces is None or metrics.preset in ("NodeExporter", "Cadvisor")
            ),
        ),
        Rule(
            cel="!has(self.interfaces) || !has(self.queries) || !(has(self.queries.egress) && "
            "has(self.queries.ingress))",
            message="interfaces have no effect where queries replace both egress and ingress",
            field_path=".interfaces",
            holds=lambda metrics: (
                metrics.interfaces is None
                or metrics.queries is None
                or metrics.queries.egress is None
                or metrics.queries.ingress is None
            ),
        ),
        Rule(
            cel="!has(self.staleAfterSeconds) || self.staleAfterSeconds >= "
            "(has(self.scrapeIntervalSeconds) ? self.scrapeIntervalSeconds : 15)",
            message="staleAfterSeconds must not be below scrapeIntervalSeconds (15 where unset): "
            "every reading would be stale",
            field_path=".staleAfterSeconds",
            holds=lambda metrics: metrics.stale_after_seconds >= metrics.scrape_interval_seconds,
        ),
        Rule(
            cel="!has(self.whenStale) || (has(self.whenStale.afterSeconds) ? "
            "self.whenStale.afterSeconds : 900) > (has(self.staleAfterSeconds) ? "
            "self.staleAfterSeconds : 3 * (has(self.scrapeIntervalSeconds) ? "
            "self.scrapeIntervalSeconds : 15))",
            message="whenStale.afterSeconds (900 where unset) must be above staleAfterSeconds "
            "(three scrape intervals where unset): until then readings are still used",
            field_path=".whenStale.afterSeconds",
            holds=lambda metrics: (
                "when_stale" not in metrics.model_fields_set
                or metrics.when_stale.after_seconds > metrics.stale_after_seconds
            ),
        ),
    )


# spec.brokers: how much traffic a single broker may carry before tiers are throttled.


ScheduleReady = Literal["Before", "At"]


class NicLimits(SchemaModel):
    """One direction of a broker's NIC, or both as one."""

    limit: ByteRate | None = Field(
        default=None,
        description="Bytes per second above which tiers are throttled. Unset means no limit.",
    )
    capacity: ByteRate | None = Field(
        default=None,
        description="Speed of the NIC, measured as the limit is. Used to reject absurd readings "
        "and to recognize a saturated link. Unset means unknown.",
    )

    rules = (
        Rule(
            cel="has(self.limit) || has(self.capacity)",
            message="must have at least one of limit and capacity",
            holds=lambda limits: limits.limit is not None or limits.capacity is not None,
        ),
        Rule(
            cel=f"!has(self.limit) || !has(self.capacity) || "
            f"{cel_at_most('self.limit', 'self.capacity')}",
            message="limit must not be above capacity: the NIC could never reach it",
            field_path=".limit",
            holds=lambda limits: (
                limits.limit is None or limits.capacity is None or limits.limit <= limits.capacity
            ),
        ),
    )


_DIRECTIONS = (
    Rule(
        cel="has(self.egress) || has(self.ingress) || has(self.combined)",
        message="must have at least one of egress, ingress and combined",
        holds=lambda limits: bool(limits.egress or limits.ingress or limits.combined),
    ),
    Rule(
        cel="!has(self.combined) || !(has(self.egress) || has(self.ingress))",
        message="combined already counts both directions: set either combined, or egress and "
        "ingress",
        field_path=".combined",
        holds=lambda limits: not (limits.combined and (limits.egress or limits.ingress)),
    ),
)


class BrokerLimitOverride(SchemaModel):
    """Other limits for some brokers."""

    ids: tuple[BrokerId, ...] = Field(
        min_length=1,
        max_length=64,
        description="Broker ids.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    egress: NicLimits | None = Field(
        default=None,
        description="Limits for traffic leaving these brokers; omitted fields are as for all "
        "other brokers. Unset means as for all other brokers.",
    )
    ingress: NicLimits | None = Field(
        default=None,
        description="Limits for traffic entering these brokers; omitted fields are as for all "
        "other brokers. Unset means as for all other brokers.",
    )
    combined: NicLimits | None = Field(
        default=None,
        description="Limits for traffic in both directions together; omitted fields are as for "
        "all other brokers. Unset means as for all other brokers.",
    )

    rules = (
        *_DIRECTIONS,
        Rule(
            cel="",
            message="every broker id may appear once only",
            field_path=".ids",
            holds=lambda override: len(set(override.ids)) == len(override.ids),
        ),
    )


def _ids_are_disjoint(limits: Any) -> bool:
    ids = [broker for override in limits.overrides or () for broker in override.ids]
    return len(set(ids)) == len(ids)


def _fits(place: str, direction: str) -> Rule:
    """The rule that limits in overrides or schedules are within the capacity that stays as it is.

    Where an override has a capacity of its own, that one counts.
    """
    capacity, limit = f"self.{direction}.capacity", f"o.{direction}.limit"
    compared, advice = f"has(o.{direction})", ""
    if place == "overrides":
        compared += f" && !has(o.{direction}.capacity) && has({limit})"
        advice = "; give the override a capacity of its own"

    def holds(limits: Any) -> bool:
        everywhere = getattr(limits, direction)
        others = [
            own.limit or 0
            for one in getattr(limits, place) or ()
            if (own := getattr(one, direction)) is not None
            and getattr(own, "capacity", None) is None
        ]
        return (
            everywhere is None
            or everywhere.capacity is None
            or all(other <= everywhere.capacity for other in others)
        )

    return Rule(
        cel=f"!has(self.{place}) || !has(self.{direction}) || !has({capacity}) || "
        f"self.{place}.all(o, !({compared}) || {cel_at_most(limit, capacity)})",
        message=f"{direction}.limit in {place} must not be above {direction}.capacity{advice}",
        field_path=f".{place}",
        holds=holds,
    )


def _combined_as_everywhere(place: str) -> Rule:
    return Rule(
        cel=f"!has(self.{place}) || self.{place}.all(o, has(o.combined) == has(self.combined))",
        message=f"{place} must set combined where all other brokers have it, and only there",
        field_path=f".{place}",
        holds=lambda limits: all(
            (one.combined is None) == (limits.combined is None)
            for one in getattr(limits, place) or ()
        ),
    )


class ScheduledLimit(SchemaModel):
    """One direction of a broker's NIC, or both as one, at certain times."""

    limit: ByteRate = Field(
        description="Bytes per second above which tiers are throttled at these times."
    )


class LimitSchedule(Recurring):
    """Other limits at times that come back every week."""

    egress: ScheduledLimit | None = Field(
        default=None,
        description="Limit for traffic leaving a broker. Unset means as at other times.",
    )
    ingress: ScheduledLimit | None = Field(
        default=None,
        description="Limit for traffic entering a broker. Unset means as at other times.",
    )
    combined: ScheduledLimit | None = Field(
        default=None,
        description="Limit for both directions together, where brokers.combined is set.",
    )
    ready: ScheduleReady = Field(
        default="At",
        description="Where a boundary of this schedule lowers a limit. Before: the lower limit "
        "counts so early that safe steps can end at the boundary. At: it counts from the boundary "
        "on, and steps follow. Unset means At.",
    )

    rules = _DIRECTIONS


class BrokerLimits(SchemaModel):
    """The threshold of every single broker, and of some that differ."""

    egress: NicLimits | None = Field(
        default=None, description="Limits for traffic leaving a broker. Unset means no limit."
    )
    ingress: NicLimits | None = Field(
        default=None, description="Limits for traffic entering a broker. Unset means no limit."
    )
    combined: NicLimits | None = Field(
        default=None,
        description="Limits for the sum of traffic leaving and entering a broker, for clouds that "
        "meter both as one. Not beside egress or ingress. Unset means no limit.",
    )
    overrides: tuple[BrokerLimitOverride, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=20,
        description="Brokers with different limits. A broker may appear only once.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    schedules: tuple[LimitSchedule, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=8,
        description="Other limits at certain times, such as at night; the first that matches "
        "counts. Brokers in overrides keep the limits that they set. Unset means the same limits "
        "at all times.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )

    rules = (
        *_DIRECTIONS,
        _combined_as_everywhere("overrides"),
        _combined_as_everywhere("schedules"),
        *(
            _fits(place, direction)
            for place in ("overrides", "schedules")
            for direction in ("egress", "ingress", "combined")
        ),
        Rule(
            cel="!has(self.overrides) || self.overrides.all(a, a.ids.all(i, "
            "self.overrides.exists_one(b, i in b.ids)))",
            message="a broker may appear in one override only",
            field_path=".overrides",
            holds=_ids_are_disjoint,
        ),
    )

    def egress_of(self, broker_id: int) -> NicLimits | None:
        """The limit and capacity out of one broker; None if nothing is set for it."""
        override = self._override_of(broker_id)
        return _merged(self.egress, None if override is None else override.egress)

    def ingress_of(self, broker_id: int) -> NicLimits | None:
        """The limit and capacity into one broker; None if nothing is set for it."""
        override = self._override_of(broker_id)
        return _merged(self.ingress, None if override is None else override.ingress)

    def combined_of(self, broker_id: int) -> NicLimits | None:
        """The limit and capacity of both directions together; None where nothing is set for it."""
        override = self._override_of(broker_id)
        return _merged(self.combined, None if override is None else override.combined)

    def _override_of(self, broker_id: int) -> BrokerLimitOverride | None:
        return next(
            (override for override in self.overrides or () if broker_id in override.ids), None
        )


def _merged(everywhere: NicLimits | None, own: NicLimits | None) -> NicLimits | None:
    if everywhere is None or own is None:
        return own or everywhere
    # not validated once more: the policy's rules have compared both
    return everywhere.model_copy(
        update={
            name: value
            for name in ("limit", "capacity")
            if (value := getattr(own, name)) is not None
        }
    )


# How fast quotas may change: scaling by leaders, escalation, the write budget, and removal.


ScalingMethod = Literal["Max", "Mean", "Min", "Adaptive"]
EscalationSpeed = Literal["Ladder", "Drain"]
Percent = Annotated[int, Field(ge=0, le=100)]
PercentOfLimit = Annotated[int, Field(ge=50, le=100)]


class LeaderScaling(SchemaModel):
    """How a contract becomes one number for all brokers, when they lead unequally."""

    method: ScalingMethod = Field(
        default="Max",
        description="What to do when leaders are uneven, since a native quota is one number "
        "for all brokers. Max: no partition gets less than promised; the total may "
        "exceed the contract. Mean: the total is the contract; partitions on "
        "crowded brokers get less. Min: no broker allows more than promised. "
        "Adaptive: between Mean and Max by measured rates, so that the total "
        "matches the contract for greedy clients and for even demand; without "
        "metrics it stays at Max. Unset means Max.",
    )
    minimum_change_percent: Percent = Field(
        default=10,
        description="Ignore leader changes that would change a quota by less than this. Unset "
        "means 10.",
    )


class Escalation(SchemaModel):
    """How tiers are throttled and released while a broker is over its limit."""

    speed: EscalationSpeed = Field(
        default="Ladder",
        description="Ladder: several bounded steps, each delaying a client for at most "
        "maxMuteSeconds. Drain: two writes and one longer delay if readings allow "
        "it, else the ladder. Unset means Ladder.",
    )
    max_mute_seconds: Annotated[int, Field(ge=2, le=120)] = Field(
        default=12,
        description="Longest throttle delay that one lowering may cause a client. Clients give "
        "up on a request after request.timeout.ms, 30 s by default; above 25, a "
        "warning asks you to raise theirs. Unset means 12.",
    )
    cut_to_percent: PercentOfLimit = Field(
        default=97,
        description="Target of a throttle, in percent of the broker's limit. Unset means 97.",
    )
    raise_to_percent: PercentOfLimit = Field(
        default=95,
        description="How full raises may make a broker, in percent of its limit; at most "
        "cutToPercent. Unset means 95.",
    )
    hold_seconds: Annotated[int, Field(ge=1, le=480)] = Field(
        default=45,
        description="How long brokers must stay within their limits before quotas are raised "
        "again. Unset means 45.",
    )
    calendar: Calendar | None = Field(
        default=None,
        description="Times at which levels may use less than their contracts, whatever the load "
        "is. Unset means none.",
    )

    rules = (
        Rule(
            cel="(has(self.raiseToPercent) ? self.raiseToPercent : 95) <= "
            "(has(self.cutToPercent) ? self.cutToPercent : 97)",
            message="raiseToPercent (95 where unset) must not be above cutToPercent (97 where "
            "unset): every raise would be cut again",
            holds=lambda escalation: escalation.raise_to_percent <= escalation.cut_to_percent,
        ),
    )


class WriteBudget(SchemaModel):
    """Limits how many quotas change per period."""

    changes: Annotated[int, Field(ge=10, le=100_000)] = Field(
        default=300,
        description="Entities whose quotas may change within periodSeconds. First quotas, and "
        "raises because leaders moved, do not count. Unset means 300.",
    )
    period_seconds: Annotated[int, Field(ge=60, le=3600)] = Field(
        default=900,
        description="Length of the sliding window in which changes are counted. With every "
        "change, brokers in ZooKeeper mode read all changes of the last 15 minutes "
        "again. Unset means 900.",
    )


class Removal(SchemaModel):
    """How many quotas may be restored within 15 minutes without a person's confirmation."""

    max_percent: Annotated[int, Field(ge=1, le=100)] = Field(
        default=50,
        description="Hold removals when more than this share of the managed quotas would be "
        "restored within 15 minutes, all together or bit by bit (reason "
        "RemovalHeld). To confirm, set the annotation tidegate.io/confirm-removal "
        "to the value in the message of Ready: the count and a short hash of these "
        "quotas, valid once. 100 never holds. Unset means 50.",
    )


def _follow_rule(field: str, *kinds: str) -> Rule:
    """What follows the load needs readings and limits."""
    follows = " || ".join(
        f"(has(self.{field}.{kind}) && self.{field}.{kind}.mode == 'Follow')" for kind in kinds
    )
    return Rule(
        cel=f"!has(self.{field}) || !({follows}) || (has(self.metrics) && has(self.brokers))",
        message=f"metrics and brokers are required with {field} of mode Follow: it follows "
        "the load of every broker up to its limit",
        reason="FieldValueRequired",
        field_path=f".{field}",
        holds=lambda policy: (
            getattr(policy, field) is None
            or not getattr(policy, field).follows
            or (policy.metrics is not None and policy.brokers is not None)
        ),
    )


PolicyMode = Literal["Observe", "Enforce"]
DeletionPolicy = Literal["Restore", "Retain"]


class PolicySpec(SchemaModel):
    """The desired state of one Kafka cluster."""

    mode: PolicyMode = Field(
        description="Observe: decide, publish and audit, but write nothing to Kafka. Enforce: "
        "act. Required; there is no default."
    )
    suspend: bool | None = Field(
        default=None,
        description="true: freeze everything as it is, like the annotation tidegate.io/paused. "
        "Nothing is written to Kafka, not even when this policy is deleted. Unset "
        "means false.",
    )
    kafka: KafkaCluster = Field(
        description="The Kafka cluster. One policy per cluster; clusters are distinguished by "
        "their id."
    )
    metrics: MetricsSource | None = Field(
        default=None,
        description="Where load is measured. Unset means that contracts follow leaders and no "
        "tier is ever throttled.",
    )
    brokers: BrokerLimits | None = Field(
        default=None,
        description="Limits of each broker. Unset means that no broker is ever over its limit.",
    )
    allowed_tiers: AllowedTiers = Field(
        default=AllowedTiers(),
        description="Which namespaces may have BusinessTiers for this policy. Unset means the "
        "defaults of its fields.",
    )
    allowed_entities: tuple[AllowedEntities, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_RULES,
        description="Users and client ids that tiers may name; any matching rule allows an "
        "entity. Members with any other entity are refused (reason "
        "EntityNotAllowed). Unset means all are allowed. Kafka's default entities "
        "can only be set in spec.defaults.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    leader_scaling: LeaderScaling = Field(
        default=LeaderScaling(),
        description="How contracts follow partition leaders. Unset means the defaults of its "
        "fields.",
    )
    escalation: Escalation = Field(
        default=Escalation(),
        description="How tiers are throttled and released when a broker is over its limit. "
        "Unset means the defaults of its fields.",
    )
    defaults: QuotaDefaults | None = Field(
        default=None,
        description="Quotas of Kafka's default entities, per broker. Unset means not managed.",
    )
    write_budget: WriteBudget = Field(
        default=WriteBudget(),
        description="Limits how many quotas change per period. Unset means the defaults of its "
        "fields.",
    )
    removal: Removal = Field(
        default=Removal(),
        description="Limits how many quotas may be removed within a quarter of an hour without "
        "confirmation. Unset means the defaults of its fields.",
    )
    deletion_policy: DeletionPolicy = Field(
        default="Restore",
        description="What happens to quotas when this policy is deleted. Restore: each entity "
        "gets back the quota it had before Tidegate. Retain: everything stays as "
        "it is. Unset means Restore.",
    )
    replication: Replication | None = Field(
        default=None,
        description="How much of the brokers' limits reassignments and recovery may use. Unset "
        "means that Tidegate sets no replication throttle.",
    )
    background: Background | None = Field(
        default=None,
        description="How much tiered storage may use of the brokers' limits, and moves between "
        "log directories of their disks. Unset means that Tidegate sets no such rate.",
    )
    rollup: Rollup | None = Field(
        default=None,
        description="Usage tables, chargeback reports and recommended contracts. Unset means none.",
    )

    rules = (
        Rule(
            cel="!has(self.escalation) || !has(self.escalation.calendar) || has(self.metrics)",
            message="metrics is required with escalation.calendar: quotas are raised again after "
            "an entry as readings show room",
            reason="FieldValueRequired",
            field_path=".metrics",
            holds=lambda policy: policy.escalation.calendar is None or policy.metrics is not None,
        ),
        Rule(
            cel="!has(self.rollup) || has(self.metrics)",
            message="metrics is required with rollup: usage is read from the Prometheus that it "
            "names",
            reason="FieldValueRequired",
            field_path=".metrics",
            holds=lambda policy: policy.rollup is None or policy.metrics is not None,
        ),
        _follow_rule("replication", "reassignments", "recovery"),
        _follow_rule("background", "remoteCopy", "remoteFetch"),
    )
