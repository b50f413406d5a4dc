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
        "an unknown quota store",
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
                "metrics.prometheus.authentication.username": "metrics",
                "metrics.prometheus.authentication.passwordSecret": _PASSWORD,
            }
        ),
        "spec.metrics.prometheus.authentication.tokenSecret",
        "tokenSecret must be left out with type basic or tls",
    ),
    BadInput(
        "bearer with a user",
        policy({"metrics.prometheus.authentication.username": "metrics"}),
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
        "released before readings are stale",
        policy({"metrics.staleAfterSeconds": 600, "metrics.whenStale.afterSeconds": 600}),
        "spec.metrics.whenStale.afterSeconds",
    ),
    BadInput(
        "released before readings are stale where unset",
        policy({"metrics.staleAfterSeconds": ABSENT, "metrics.scrapeIntervalSeconds": 300, "metrics.whenStale": {"action": "Release"}}),
        "spec.metrics.whenStale.afterSeconds",
    ),
    BadInput(
        "released after a moment",
        policy({"metrics.whenStale.afterSeconds": 59}),
        "spec.metrics.whenStale.afterSeconds",
        server_says="greater than or equal to 60",
    ),
    BadInput(
        "unknown action of stale metrics",
        policy({"metrics.whenStale.action": "Raise"}),
        "spec.metrics.whenStale.action",
        server_says='supported values: "Hold", "Release"',
    ),
    BadInput(
        "Custom without queries",
        policy({"metrics.preset": "Custom", "metrics.queries": ABSENT}),
        "spec.metrics.queries",
    ),
    *(
        BadInput(
            f"a query that is {name}",
            policy({"metrics.queries": {"egress": query}}),
            "spec.metrics.queries.egress",
        )
        for name, query in {
            "a function": "rate(sent_bytes_total[5m])",
            "a range": "sent_bytes_total[5m]",
            "a sum": 'sum(sent_bytes_total{job="a"})',
            "two selectors": 'a{x="1"} or b{x="2"}',
            "left open": 'a{x="}',
            "shifted": 'a{x="1"} offset 5m',
            "a comparison": "a > 5",
            "blank": "  ",
        }.items()
    ),
    BadInput("no matchers", policy({"metrics.matchers": {}}), "spec.metrics.matchers", server_says="should have at least 1 properties"),
    BadInput(
        "a matcher for no label",
        policy({"metrics.matchers": {"my-cluster": "a"}}),
        "spec.metrics.matchers",
    ),
    BadInput(
        "a matcher for the metric's name",
        policy({"metrics.matchers": {"__name__": "a"}}),
        "spec.metrics.matchers",
    ),
    BadInput(
        "an empty matcher",
        policy({"metrics.matchers": {"cluster": ""}}),
        "spec.metrics.matchers.cluster",
        server_says="at least 1 chars long",
    ),
    BadInput(
        "eleven matchers",
        policy({"metrics.matchers": {f"label{number}": "a" for number in range(11)}}),
        "spec.metrics.matchers",
        server_says="at most 10",
    ),
    BadInput(
        "no broker ids",
        policy({"metrics.brokerIdentity": {}}),
        "spec.metrics.brokerIdentity",
    ),
    BadInput(
        "one broker twice",
        policy({"metrics.brokerIdentity": {"instances": [{"instance": "a:1", "id": 1}, {"instance": "b:1", "id": 1}]}}),
        "spec.metrics.brokerIdentity.instances",
    ),
    *(
        row
        for way in ("egress", "ingress")
        for row in (
            BadInput(
                f"{way} limit above capacity",
                policy({f"brokers.{way}.limit": "3126M"}),
                f"spec.brokers.{way}.limit",
            ),
            BadInput(f"{way} of nothing", policy({f"brokers.{way}": {}}), f"spec.brokers.{way}"),
            BadInput(
                f"{way} of an override above capacity",
                policy({"brokers.overrides.0": {"ids": [7], way: {"limit": "4G"}}}),
                "spec.brokers.overrides",
            ),
        )
    ),
    BadInput(
        "broker in two overrides",
        policy({"brokers.overrides": [{"ids": [1, 2], "egress": {"limit": "1G"}}, {"ids": [2], "egress": {"limit": "2G"}}]}),
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
    BadInput(
        "aim below the raise where unset",
        policy({"escalation": {"cutToPercent": 94}}),
        "spec.escalation",
    ),
    BadInput(
        "mute of 1 s", policy({"escalation.maxMuteSeconds": 1}), "spec.escalation.maxMuteSeconds", server_says="greater than or equal to 2"
    ),
    BadInput(
        "removal of 0 percent", policy({"removal.maxPercent": 0}), "spec.removal.maxPercent", server_says="greater than or equal to 1"
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
