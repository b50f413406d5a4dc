"""What bad input gets in a BrokerBandwidthPolicy."""

from tests.unit.resources.bad_row import BadInput
from tests.unit.resources.documents import ABSENT, Document, policy

KAFKA = (
    BadInput(
        "servers without port", policy({"kafka.bootstrapServers": "kafka-1"}), "spec.kafka.bootstrapServers", "must be host:port pairs"
    ),
    BadInput("servers with a space", policy({"kafka.bootstrapServers": "a:1, b:2"}), "spec.kafka.bootstrapServers", "without spaces"),
    BadInput(
        "ZooKeeper without zookeeper", policy({"kafka.zookeeper": ABSENT}), "spec.kafka.zookeeper", "is required with quotaStore ZooKeeper"
    ),
    BadInput(
        "a quota store of a later version",
        policy({"kafka.quotaStore": "AdminApi", "kafka.zookeeper": ABSENT}),
        "spec.kafka.quotaStore",
        "AdminApi comes in a later version: for a cluster in ZooKeeper mode set quotaStore to ZooKeeper and give zookeeper.connect",
    ),
    BadInput(
        "a quota store of a later version beside today's",
        policy({"kafka.quotaStore": "AdminApi"}),
        "spec.kafka.quotaStore",
        "AdminApi comes in a later version",
    ),
    BadInput("a quota store that nobody plans", policy({"kafka.quotaStore": "etcd"}), "spec.kafka.quotaStore", "ZooKeeper"),
    BadInput(
        "chroot with a trailing slash",
        policy({"kafka.zookeeper.connect": "zk:2181/kafka/"}),
        "spec.kafka.zookeeper.connect",
        "must be Kafka's own zookeeper.connect",
    ),
    BadInput(
        "window of 0 samples", policy({"kafka.quotaWindow.samples": 0}), "spec.kafka.quotaWindow.samples", "greater than or equal to 1"
    ),
)

METRICS_AND_BROKERS = (
    BadInput(
        "credentials in the address",
        policy({"metrics.prometheus.url": "http://me:pw@prom:9090"}),
        "spec.metrics.prometheus.url",
        "without credentials",
    ),
    BadInput(
        "no scheme",
        policy({"metrics.prometheus.url": "prom:9090"}),
        "spec.metrics.prometheus.url",
        "must be an http:// or https:// address",
    ),
    BadInput(
        "stale before the next scrape",
        policy({"metrics.staleAfterSeconds": 14}),
        "spec.metrics.staleAfterSeconds",
        "must not be below scrapeIntervalSeconds",
    ),
    BadInput(
        "Custom without queries",
        policy({"metrics.preset": "Custom", "metrics.queries": ABSENT}),
        "spec.metrics.queries",
        "queries are required with preset Custom",
    ),
    BadInput("no broker ids", policy({"metrics.brokerIds": {}}), "spec.metrics.brokerIds", "must have exactly one of label and instances"),
    BadInput(
        "one broker twice",
        policy({"metrics.brokerIds": {"instances": [{"instance": "a:1", "id": 1}, {"instance": "b:1", "id": 1}]}}),
        "spec.metrics.brokerIds.instances",
        "every broker id may appear once only",
    ),
    BadInput(
        "limit above capacity",
        policy({"brokers.egressLimit": "3126M"}),
        "spec.brokers.egressLimit",
        "egressLimit must not be above egressCapacity",
    ),
    BadInput(
        "override above capacity",
        policy({"brokers.overrides.0.egressLimit": "4G"}),
        "spec.brokers.overrides",
        "must not be above egressCapacity",
    ),
    BadInput(
        "broker in two overrides",
        policy({"brokers.overrides": [{"ids": [1, 2], "egressLimit": "1G"}, {"ids": [2], "egressLimit": "2G"}]}),
        "spec.brokers.overrides",
        "a broker may appear in one override only",
    ),
    BadInput(
        "override of nothing",
        policy({"brokers.overrides.0": {"ids": [1]}}),
        "spec.brokers.overrides[0]",
        "must have at least one of egressLimit",
    ),
)

MOTION = (
    BadInput(
        "raise above aim",
        policy({"escalation.raiseToPercent": 98}),
        "spec.escalation",
        "raiseToPercent (95 where unset) must not be above aimPercent",
    ),
    BadInput(
        "aim below the raise where unset", policy({"escalation": {"aimPercent": 94}}), "spec.escalation", "raiseToPercent (95 where unset)"
    ),
    BadInput("mute of 1 s", policy({"escalation.maxMuteSeconds": 1}), "spec.escalation.maxMuteSeconds", "greater than or equal to 2"),
    BadInput(
        "removal of 0 percent", policy({"removal.maxPercentPerPass": 0}), "spec.removal.maxPercentPerPass", "greater than or equal to 1"
    ),
    BadInput("empty default", policy({"defaults.user": {}}), "spec.defaults.user", "leave the whole entry out to manage nothing"),
    BadInput("empty defaults", policy({"defaults": {}}), "spec.defaults", "leave defaults out to manage nothing"),
)


def _long_policy_name() -> Document:
    document = policy()
    document["metadata"]["name"] = "p" * 64
    return document


NAME_OF_POLICY = (BadInput("policy name over 63", _long_policy_name(), "", "metadata.name must have at most 63 characters"),)

BAD_POLICIES = (*KAFKA, *METRICS_AND_BROKERS, *MOTION, *NAME_OF_POLICY)
