"""What bad input gets in a BrokerBandwidthPolicy."""

from tests.unit.resources.bad_row import BadInput
from tests.unit.resources.documents import ABSENT, Document, policy

KAFKA = (
    BadInput("servers without port", policy({"kafka.bootstrapServers": "kafka-1"}), "spec.kafka.bootstrapServers"),
    BadInput("servers with a space", policy({"kafka.bootstrapServers": "a:1, b:2"}), "spec.kafka.bootstrapServers"),
    BadInput("ZooKeeper without zookeeper", policy({"kafka.zookeeper": ABSENT}), "spec.kafka.zookeeper"),
    BadInput(
        "a quota store of a later version",
        policy({"kafka.quotaStore": "AdminApi", "kafka.zookeeper": ABSENT}),
        "spec.kafka.quotaStore",
    ),
    BadInput(
        "a quota store of a later version beside today's",
        policy({"kafka.quotaStore": "AdminApi"}),
        "spec.kafka.quotaStore",
    ),
    BadInput(
        "a quota store that nobody plans",
        policy({"kafka.quotaStore": "etcd"}),
        "spec.kafka.quotaStore",
        server_says='supported values: "ZooKeeper", "AdminApi"',
    ),
    BadInput(
        "chroot with a trailing slash",
        policy({"kafka.zookeeper.connect": "zk:2181/kafka/"}),
        "spec.kafka.zookeeper.connect",
    ),
    BadInput(
        "window of 0 samples",
        policy({"kafka.quotaWindow.samples": 0}),
        "spec.kafka.quotaWindow.samples",
        server_says="greater than or equal to 1",
    ),
)

_PASSWORD = {"secretName": "login", "password": "password"}
_CERTIFICATE = {"secretName": "login", "certificate": "user.crt", "key": "user.key"}

LOGINS = (
    BadInput(
        "a password without user",
        policy({"kafka.authentication": {"type": "scram-sha-256", "passwordSecret": _PASSWORD}}),
        "spec.kafka.authentication.username",
        "username is required with type scram-sha-512 or scram-sha-256 or plain",
    ),
    BadInput(
        "a user without password",
        policy({"kafka.zookeeper.authentication": {"type": "digest", "username": "kafka"}}),
        "spec.kafka.zookeeper.authentication.passwordSecret",
        "passwordSecret is required with type digest",
    ),
    BadInput(
        "tls without certificate",
        policy({"kafka.authentication": {"type": "tls"}}),
        "spec.kafka.authentication.certificateAndKey",
        "certificateAndKey is required with type tls",
    ),
    BadInput(
        "tls with a user",
        policy({"kafka.authentication": {"type": "tls", "username": "orders", "certificateAndKey": _CERTIFICATE}}),
        "spec.kafka.authentication.username",
        "username must be left out with type tls",
    ),
    BadInput(
        "tls with a password",
        policy({"kafka.authentication": {"type": "tls", "passwordSecret": _PASSWORD, "certificateAndKey": _CERTIFICATE}}),
        "spec.kafka.authentication.passwordSecret",
        "passwordSecret must be left out with type tls",
    ),
    BadInput(
        "a login that brokers do not have", policy({"kafka.authentication.type": "digest"}), "spec.kafka.authentication.type", "plain"
    ),
    BadInput(
        "a login that ZooKeeper does not have",
        policy({"kafka.zookeeper.authentication.type": "scram-sha-512"}),
        "spec.kafka.zookeeper.authentication.type",
        "digest",
    ),
    BadInput(
        "a certificate without tls",
        policy({"kafka.tls": ABSENT}),
        "spec.kafka.tls",
        "tls is required with authentication.certificateAndKey",
    ),
    BadInput(
        "a certificate without tls to ZooKeeper",
        policy({"kafka.zookeeper.tls": ABSENT}),
        "spec.kafka.zookeeper.tls",
        "tls is required with authentication.certificateAndKey",
    ),
    BadInput(
        "a trusted certificate and a pattern",
        policy({"kafka.tls.trustedCertificates.0.pattern": "*.crt"}),
        "spec.kafka.tls.trustedCertificates[0]",
        "must have exactly one of certificate and pattern",
    ),
    BadInput(
        "a trusted Secret without key",
        policy({"kafka.tls.trustedCertificates.0.certificate": ABSENT}),
        "spec.kafka.tls.trustedCertificates[0]",
        "must have exactly one of certificate and pattern",
    ),
    BadInput(
        "a key with a slash",
        policy({"kafka.authentication.passwordSecret.password": "a/b"}),
        "spec.kafka.authentication.passwordSecret.password",
        "must be a key of a Secret",
    ),
    BadInput(
        "a pattern with a slash",
        policy({"kafka.zookeeper.tls.trustedCertificates.0.pattern": "a/*"}),
        "spec.kafka.zookeeper.tls.trustedCertificates[0].pattern",
        "must be a pattern of a Secret's keys",
    ),
    BadInput(
        "bearer without token",
        policy({"metrics.prometheus.authentication": {"type": "bearer"}}),
        "spec.metrics.prometheus.authentication.tokenSecret",
        "tokenSecret is required with type bearer",
    ),
    BadInput(
        "basic with a token",
        policy(
            {
                "metrics.prometheus.authentication.type": "basic",
                "metrics.prometheus.authentication.username": "tide",
                "metrics.prometheus.authentication.passwordSecret": _PASSWORD,
            }
        ),
        "spec.metrics.prometheus.authentication.tokenSecret",
        "tokenSecret must be left out with type basic or tls",
    ),
    BadInput(
        "bearer with a user",
        policy({"metrics.prometheus.authentication.username": "tide"}),
        "spec.metrics.prometheus.authentication.username",
        "username must be left out with type bearer or tls",
    ),
    BadInput(
        "tls to a plain address",
        policy({"metrics.prometheus.url": "http://prometheus:9090"}),
        "spec.metrics.prometheus.url",
        "url must begin with https:// where tls is given",
    ),
    BadInput(
        "a certificate to a plain address",
        policy(
            {
                "metrics.prometheus.url": "http://prometheus:9090",
                "metrics.prometheus.tls": ABSENT,
                "metrics.prometheus.authentication": {"type": "tls", "certificateAndKey": _CERTIFICATE},
            }
        ),
        "spec.metrics.prometheus.url",
        "url must begin with https:// with authentication.certificateAndKey",
    ),
)

METRICS_AND_BROKERS = (
    BadInput(
        "credentials in the address",
        policy({"metrics.prometheus.url": "http://me:pw@prom:9090"}),
        "spec.metrics.prometheus.url",
    ),
    BadInput(
        "no scheme",
        policy({"metrics.prometheus.url": "prom:9090"}),
        "spec.metrics.prometheus.url",
    ),
    BadInput(
        "stale before the next scrape",
        policy({"metrics.staleAfterSeconds": 14}),
        "spec.metrics.staleAfterSeconds",
    ),
    BadInput(
        "Custom without queries",
        policy({"metrics.preset": "Custom", "metrics.queries": ABSENT}),
        "spec.metrics.queries",
    ),
    BadInput("no broker ids", policy({"metrics.brokerIds": {}}), "spec.metrics.brokerIds"),
    BadInput(
        "one broker twice",
        policy({"metrics.brokerIds": {"instances": [{"instance": "a:1", "id": 1}, {"instance": "b:1", "id": 1}]}}),
        "spec.metrics.brokerIds.instances",
    ),
    BadInput(
        "limit above capacity",
        policy({"brokers.egressLimit": "3126M"}),
        "spec.brokers.egressLimit",
    ),
    BadInput(
        "override above capacity",
        policy({"brokers.overrides.0.egressLimit": "4G"}),
        "spec.brokers.overrides",
    ),
    BadInput(
        "broker in two overrides",
        policy({"brokers.overrides": [{"ids": [1, 2], "egressLimit": "1G"}, {"ids": [2], "egressLimit": "2G"}]}),
        "spec.brokers.overrides",
    ),
    BadInput(
        "override of nothing",
        policy({"brokers.overrides.0": {"ids": [1]}}),
        "spec.brokers.overrides[0]",
    ),
)

MOTION = (
    BadInput(
        "raise above aim",
        policy({"escalation.raiseToPercent": 98}),
        "spec.escalation",
    ),
    BadInput("aim below the raise where unset", policy({"escalation": {"aimPercent": 94}}), "spec.escalation"),
    BadInput(
        "mute of 1 s", policy({"escalation.maxMuteSeconds": 1}), "spec.escalation.maxMuteSeconds", server_says="greater than or equal to 2"
    ),
    BadInput(
        "removal of 0 percent",
        policy({"removal.maxPercentPerPass": 0}),
        "spec.removal.maxPercentPerPass",
        server_says="greater than or equal to 1",
    ),
    BadInput("empty default", policy({"defaults.user": {}}), "spec.defaults.user"),
    BadInput("empty defaults", policy({"defaults": {}}), "spec.defaults"),
)


def _long_policy_name() -> Document:
    document = policy()
    document["metadata"]["name"] = "p" * 64
    return document


NAME_OF_POLICY = (BadInput("policy name over 63", _long_policy_name(), ""),)

BAD_POLICIES = (*KAFKA, *LOGINS, *METRICS_AND_BROKERS, *MOTION, *NAME_OF_POLICY)
