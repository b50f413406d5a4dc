"""What bad input gets, row by row: the field that is blamed.

The same rows are put to the models (unit tests) and to a real API server (integration tests).
Both use the words of our own rules; where only the schema speaks, the API server has words of its
own (`server_says`).
"""

from dataclasses import dataclass

import pytest

from tests.unit.resources.documents import (
    ABSENT,
    NIGHTS,
    Document,
    budget,
    member,
    override,
    policy,
    queue,
    tier,
)
from tidegate.errors import InvalidResource
from tidegate.resources import parse_object


@dataclass(frozen=True)
class BadInput:
    """One wrong object. `field` is the path that must be named; `server_says` defaults to the
    models' words for it.
    """

    name: str
    document: Document
    field: str
    server_says: str = ""

    def refusal(self) -> InvalidResource:
        """What the models make of it."""
        with pytest.raises(InvalidResource) as refused:
            parse_object(self.document, strict=True)
        return refused.value

    def must(self) -> str:
        """What must hold in the field, in the models' words."""
        return next(must for field, must in self.refusal().problems if field == self.field)

    @property
    def server_words(self) -> str:
        return self.server_says or self.must()


# --- BusinessTier ---------------------------------------------------------------------------------
# And where a field or a type is unknown in either kind.


FETCH = "members.0.contract.perPartition.fetch"
FETCH_FIELD = "spec.members[0].contract.perPartition.fetch"
MEMBER = "spec.members[0]"
ABOVE = "must not be above the contract, but it is for member"


def _rate(name: str, value: object) -> BadInput:
    server_says = "" if isinstance(value, str) else "must be of type string"
    return BadInput(f"byte rate {name}", tier({FETCH: value}), FETCH_FIELD, server_says)


BYTE_RATES = (
    _rate("without quotes", 52_428_800),
    _rate("0 without quotes", 0),
    _rate("0", "0"),
    _rate("0Mi", "0Mi"),
    _rate("negative", "-5Mi"),
    _rate("below the floor", "1023"),
    _rate("below the floor by its fraction", "0.5Ki"),
    _rate("1k, which is below the floor", "1k"),
    _rate("above the ceiling", "9007199254740992"),
    _rate("above the ceiling by its fraction", "8191.999999Ti"),
    _rate("above the ceiling by its suffix", "8192Ti"),
    _rate("far above the ceiling", "9999999999999999Ti"),
    _rate("10MB/s", "10MB/s"),
    _rate("10MB", "10MB"),
    _rate("10 Mi with a space", "10 Mi"),
    _rate("a fraction of a byte", "1.3Ki"),
    _rate("a fraction of a byte far behind", "1.000001Gi"),
    _rate("a fraction of a byte of thousands", "1.2345k"),
    _rate("a fraction without a suffix", "1500.0"),
    _rate("a fraction without a whole part", ".5Mi"),
    _rate("a fraction without digits", "1.Mi"),
    _rate("more decimals than anybody needs", "1.5000000Mi"),
    _rate("an exponent", "1e6"),
    _rate("a milli-quantity", "5000m"),
    _rate("peta, which Kubernetes knows and we do not", "1P"),
    _rate("a leading zero", "010Mi"),
    _rate("a leading plus", "+10Mi"),
    _rate("lower case suffix", "10mi"),
    _rate("a trailing newline", "10Mi\n"),
    _rate("other digits", "١٠Mi"),
    _rate("empty", ""),
)

UNKNOWN_AND_MISTYPED = (
    BadInput(
        "unknown field",
        tier({"members.0.usr": "bob"}),
        f"{MEMBER}.usr",
        server_says='unknown field "spec.members[0].usr"',
    ),
    BadInput(
        "number for a name",
        tier({"members.0.user": 7}),
        f"{MEMBER}.user",
        server_says="must be of type string",
    ),
    BadInput(
        "text for a list",
        tier({"members": "all"}),
        "spec.members",
        server_says="must be of type array",
    ),
    BadInput(
        "text for a number",
        policy({"escalation.holdSeconds": "45"}),
        "spec.escalation.holdSeconds",
        server_says="must be of type integer",
    ),
    BadInput(
        "fraction of a second",
        policy({"escalation.holdSeconds": 1.5}),
        "spec.escalation.holdSeconds",
        server_says="must be of type integer",
    ),
    BadInput("boolean byte rate", tier({FETCH: True}), FETCH_FIELD, server_says="must be of type"),
    BadInput(
        "fractional byte rate", tier({FETCH: 1048576.5}), FETCH_FIELD, server_says="must be of type"
    ),
    BadInput(
        "unknown level",
        tier({"level": "L4"}),
        "spec.level",
        server_says='supported values: "L0", "L1", "L2", "L3"',
    ),
    BadInput("no mode", policy({"mode": ABSENT}), "spec.mode", server_says="Required value"),
    BadInput(
        "unknown mode",
        policy({"mode": "DryRun"}),
        "spec.mode",
        server_says='supported values: "Observe", "Enforce"',
    ),
)

NAMES = (
    BadInput(
        "empty user",
        tier({"members.0.user": ""}),
        f"{MEMBER}.user",
        server_says="at least 1 chars long",
    ),
    BadInput(
        "user over 256",
        tier({"members.0.user": "x" * 257}),
        f"{MEMBER}.user",
        server_says="may not be more than 256",
    ),
    BadInput(
        "client id over 256",
        tier({"members.0.clientId": "x" * 257}),
        f"{MEMBER}.clientId",
        server_says="may not be more than 256",
    ),
    BadInput("user with a newline", tier({"members.0.user": "bob\n"}), f"{MEMBER}.user"),
    BadInput("user with a NUL", tier({"members.0.user": "b\x00b"}), f"{MEMBER}.user"),
    BadInput("user .", tier({"members.0.user": "."}), f"{MEMBER}.user"),
    BadInput("client id ..", tier({"members.0.clientId": ".."}), f"{MEMBER}.clientId"),
    BadInput("user <default>", tier({"members.0.user": "<default>"}), f"{MEMBER}.user"),
    BadInput(
        "empty member name",
        tier({"members.0.name": ""}),
        f"{MEMBER}.name",
        server_says="at least 1 chars long",
    ),
    BadInput("member name with a space", tier({"members.0.name": "a b"}), f"{MEMBER}.name"),
    BadInput(
        "topic with a slash",
        tier({"members.0.topics.0": "a/b"}),
        f"{MEMBER}.topics[0]",
        server_says="should match '^[A-Za-z0-9._-]*[*]?$'",
    ),
    BadInput(
        "topic with a * inside",
        tier({"members.0.topics.0": "a*b"}),
        f"{MEMBER}.topics[0]",
        server_says="should match '^[A-Za-z0-9._-]*[*]?$'",
    ),
    BadInput(
        "empty topic",
        tier({"members.0.topics.0": ""}),
        f"{MEMBER}.topics[0]",
        server_says="at least 1 chars long",
    ),
    BadInput("topic ..", tier({"members.0.topics.0": ".."}), f"{MEMBER}.topics[0]"),
    BadInput(
        "topic over 249",
        tier({"members.0.topics.0": "t" * 250}),
        f"{MEMBER}.topics[0]",
        server_says="may not be more than 249",
    ),
    BadInput(
        "policy in a namespace of capitals",
        tier({"policyRef.namespace": "Streaming"}),
        "spec.policyRef.namespace",
    ),
    BadInput("upper case policy name", tier({"policyRef.name": "Orders"}), "spec.policyRef.name"),
)

MEMBERS = (
    BadInput("no members", tier({"members": []}), "spec.members", server_says="at least 1 items"),
    BadInput(
        "501 members",
        tier({"members": [member(f"m{i}") for i in range(501)]}),
        "spec.members",
        server_says="must have at most 500 items",
    ),
    BadInput(
        "two members of one name",
        tier({"members": [member("a"), member("a", user="b")]}),
        "spec.members",
        server_says="Duplicate value",
    ),
    BadInput(
        "same topic twice",
        tier({"members.0.topics": ["a", "a"]}),
        f"{MEMBER}.topics",
        server_says="Duplicate value",
    ),
    BadInput(
        "rack with a space",
        tier({"members.0.racks": ["eu west"]}),
        f"{MEMBER}.racks[0]",
        server_says=r"should match '^\S+$'",
    ),
    BadInput(
        "same rack twice",
        tier({"members.0.racks": ["a", "a"]}),
        f"{MEMBER}.racks",
        server_says="Duplicate value",
    ),
    BadInput(
        "racks without topics",
        tier(
            {
                "members.0.racks": ["a"],
                "members.0.topics": ABSENT,
                "members.0.contract": {"total": {"fetch": "1Gi"}},
            }
        ),
        f"{MEMBER}.topics",
    ),
    BadInput("neither user nor client id", tier({"members.0": {"name": "empty"}}), MEMBER),
    BadInput(
        "topics missing for perPartition",
        tier({"members.0.topics": ABSENT}),
        f"{MEMBER}.topics",
    ),
    BadInput(
        "two forms",
        tier({"members.0.contract.total": {"fetch": "1Gi"}}),
        f"{MEMBER}.contract",
    ),
    BadInput(
        "no form",
        tier({"members.0.contract": {"requestPercentage": 100}}),
        f"{MEMBER}.contract",
    ),
    BadInput(
        "empty rates",
        tier({"members.0.contract.perPartition": {}}),
        f"{MEMBER}.contract.perPartition",
    ),
)

THROTTLED = (
    BadInput("L0 with throttled", tier({"level": "L0"}), "spec.throttledRates"),
    BadInput(
        "L1 without throttled",
        tier({"level": "L1", "throttledRates": ABSENT}),
        "spec.throttledRates",
    ),
    BadInput(
        "L3 without throttled",
        tier({"throttledRates": ABSENT}),
        "spec.throttledRates",
    ),
    BadInput(
        "empty throttled",
        tier({"throttledRates": {}}),
        "spec.throttledRates",
    ),
    BadInput(
        "throttled above contract",
        tier({"throttledRates.perPartition.fetch": "11Mi"}),
        "spec.throttledRates",
        server_says=f"throttledRates.perPartition.fetch {ABOVE} nightly-reports",
    ),
    BadInput(
        "throttled above contract across suffixes",
        tier({"throttledRates.perPartition.produce": "10485761"}),
        "spec.throttledRates",
        server_says=f"throttledRates.perPartition.produce {ABOVE} nightly-reports",
    ),
    BadInput(
        "throttled total above contract of the second member",
        tier(
            {
                "throttledRates": {"total": {"fetch": "30M"}},
                "members": [
                    member("a", contract={"total": {"fetch": "30M"}}),
                    member("b", contract={"total": {"fetch": "29M"}}),
                ],
            }
        ),
        "spec.throttledRates",
        server_says=f"throttledRates.total.fetch {ABOVE} b",
    ),
)

BAD_TIERS = (*BYTE_RATES, *UNKNOWN_AND_MISTYPED, *NAMES, *MEMBERS, *THROTTLED)


# --- BrokerBandwidthPolicy ------------------------------------------------------------------------


KAFKA = (
    BadInput(
        "servers without port",
        policy({"kafka.bootstrapServers": "kafka-1"}),
        "spec.kafka.bootstrapServers",
    ),
    BadInput(
        "servers with a space",
        policy({"kafka.bootstrapServers": "a:1, b:2"}),
        "spec.kafka.bootstrapServers",
    ),
    BadInput(
        "ZooKeeper without zookeeper", policy({"kafka.zookeeper": ABSENT}), "spec.kafka.zookeeper"
    ),
    BadInput(
        "AdminApi with a zookeeper",
        policy({"kafka.quotaStore": "AdminApi"}),
        "spec.kafka.zookeeper",
    ),
    BadInput(
        "a topic for the ledger that is in ZooKeeper",
        policy({"kafka.ledgerTopic": "our-ledger"}),
        "spec.kafka.ledgerTopic",
    ),
    BadInput(
        "a ledger in what is no topic's name",
        policy(
            {
                "kafka.quotaStore": "AdminApi",
                "kafka.zookeeper": ABSENT,
                "kafka.ledgerTopic": "our ledger",
            }
        ),
        "spec.kafka.ledgerTopic",
    ),
    BadInput(
        "a Strimzi cluster with its namespace in its name",
        policy({"kafka.strimzi.cluster": "kafka/orders"}),
        "spec.kafka.strimzi.cluster",
    ),
    BadInput(
        "no namespace of KafkaUsers",
        policy({"kafka.strimzi.namespace": "Kafka"}),
        "spec.kafka.strimzi.namespace",
    ),
    BadInput(
        "an unknown quota store",
        policy({"kafka.quotaStore": "etcd"}),
        "spec.kafka.quotaStore",
        server_says='supported values: "Auto", "ZooKeeper", "AdminApi"',
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
_TOKENS = {
    "type": "oauthbearer",
    "tokenEndpointUri": "https://idp/token",
    "clientId": "tidegate",
    "clientSecret": {"secretName": "login", "key": "clientSecret"},
}
_ROLE = "arn:aws:iam::123456789012:role/tidegate"
_AWS = {
    "type": "aws-msk-iam",
    "region": "eu-central-1",
    "accessKey": {"secretName": "login", "accessKeyId": "id", "secretAccessKey": "secret"},
}

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
        policy(
            {
                "kafka.authentication": {
                    "type": "tls",
                    "username": "orders",
                    "certificateAndKey": _CERTIFICATE,
                }
            }
        ),
        "spec.kafka.authentication.username",
        "username must be left out with type tls",
    ),
    BadInput(
        "tls with a password",
        policy(
            {
                "kafka.authentication": {
                    "type": "tls",
                    "passwordSecret": _PASSWORD,
                    "certificateAndKey": _CERTIFICATE,
                }
            }
        ),
        "spec.kafka.authentication.passwordSecret",
        "passwordSecret must be left out with type tls",
    ),
    BadInput(
        "Kerberos",
        policy({"kafka.authentication": {"type": "gssapi"}}),
        "spec.kafka.authentication.type",
        "give Tidegate a user with scram-sha-512, tls or oauthbearer",
    ),
    BadInput(
        "tokens from nowhere",
        policy({"kafka.authentication": {"type": "oauthbearer"}}),
        "spec.kafka.authentication.type",
        "exactly one of tokenEndpointUri, accessToken and accessTokenFile",
    ),
    BadInput(
        "tokens from two places",
        policy({"kafka.authentication": {**_TOKENS, "accessTokenFile": "kafka"}}),
        "spec.kafka.authentication.type",
        "exactly one of tokenEndpointUri, accessToken and accessTokenFile",
    ),
    BadInput(
        "a token endpoint without secret",
        policy({"kafka.authentication": _TOKENS, "kafka.authentication.clientSecret": ABSENT}),
        "spec.kafka.authentication.tokenEndpointUri",
        "tokenEndpointUri needs clientId and clientSecret",
    ),
    BadInput(
        "a token endpoint over plain http",
        policy({"kafka.authentication": {**_TOKENS, "tokenEndpointUri": "http://idp/token"}}),
        "spec.kafka.authentication.tokenEndpointUri",
        "must be an https:// address",
    ),
    BadInput(
        "a token file that is a path",
        policy({"kafka.authentication": {"type": "oauthbearer", "accessTokenFile": "../token"}}),
        "spec.kafka.authentication.accessTokenFile",
        "it is not a path",
    ),
    BadInput(
        "an extension that replaces the token",
        policy({"kafka.authentication": {**_TOKENS, "saslExtensions": {"auth": "x"}}}),
        "spec.kafka.authentication.saslExtensions",
        "every key must consist of letters and not be auth",
    ),
    BadInput(
        "fields of another type",
        policy({"kafka.authentication.scope": "kafka"}),
        "spec.kafka.authentication.type",
        "type oauthbearer alone has",
    ),
    BadInput(
        "a token file with a password",
        policy({"kafka.authentication.accessTokenFile": "kafka"}),
        "spec.kafka.authentication.accessTokenFile",
        "alone have accessTokenFile",
    ),
    BadInput(
        "a role and an access key of AWS",
        policy({"kafka.authentication": {**_AWS, "roleArn": _ROLE, "accessTokenFile": "aws"}}),
        "spec.kafka.authentication.type",
        "either accessKey or roleArn with accessTokenFile",
    ),
    BadInput(
        "an identity of AWS without tls",
        policy({"kafka.authentication": _AWS, "kafka.tls": ABSENT}),
        "spec.kafka.tls",
        "tls is required with a login by tokens",
    ),
    BadInput(
        "tokens of forwarders without tls",
        queue({"authentication": _TOKENS, "tls": ABSENT}),
        "spec.tls",
        "tls is required with a login by tokens",
    ),
    BadInput(
        "a role of AWS for forwarders",
        queue(
            {
                "authentication": {
                    "type": "aws-msk-iam",
                    "region": "eu-central-1",
                    "roleArn": _ROLE,
                    "accessTokenFile": "aws",
                }
            }
        ),
        "spec.authentication",
        "authentication.roleArn is for policies",
    ),
    BadInput(
        "a login that brokers do not have",
        policy({"kafka.authentication.type": "digest"}),
        "spec.kafka.authentication.type",
        "plain",
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
                "metrics.prometheus.authentication": {
                    "type": "tls",
                    "certificateAndKey": _CERTIFICATE,
                },
            }
        ),
        "spec.metrics.prometheus.url",
        "url must begin with https:// with authentication.certificateAndKey",
    ),
)

NIGHT = {"from": "22:00", "to": "06:00"}
EGRESS = {"egress": {"limit": "1G"}}

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
    *(
        BadInput(
            f"interfaces of {preset}",
            policy({"metrics.preset": preset, "metrics.interfaces": ["ens5"]}),
            "spec.metrics.interfaces",
            "interfaces are of presets NodeExporter and Cadvisor",
        )
        for preset in ("JmxExporter", "Custom")
    ),
    BadInput(
        "interfaces beside queries for both directions",
        policy({"metrics.queries.ingress": "received", "metrics.interfaces": ["ens5"]}),
        "spec.metrics.interfaces",
        "interfaces have no effect",
    ),
    BadInput(
        "an interface with a space",
        policy({"metrics.interfaces": ["ens 5"]}),
        "spec.metrics.interfaces[0]",
        server_says="should match '^[A-Za-z0-9_.:@*-]+$'",
    ),
    BadInput(
        "no interfaces",
        policy({"metrics.interfaces": []}),
        "spec.metrics.interfaces",
        server_says="at least 1 items",
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
        policy(
            {
                "metrics.staleAfterSeconds": ABSENT,
                "metrics.scrapeIntervalSeconds": 300,
                "metrics.whenStale": {"action": "Release"},
            }
        ),
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
    BadInput(
        "no matchers",
        policy({"metrics.matchers": {}}),
        "spec.metrics.matchers",
        server_says="should have at least 1 properties",
    ),
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
        policy(
            {
                "metrics.brokerIdentity": {
                    "instances": [{"instance": "a:1", "id": 1}, {"instance": "b:1", "id": 1}]
                }
            }
        ),
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
        policy(
            {
                "brokers.overrides": [
                    {"ids": [1, 2], "egress": {"limit": "1G"}},
                    {"ids": [2], "egress": {"limit": "2G"}},
                ]
            }
        ),
        "spec.brokers.overrides",
    ),
    BadInput(
        "override of nothing",
        policy({"brokers.overrides.0": {"ids": [1]}}),
        "spec.brokers.overrides[0]",
    ),
    *(
        BadInput(
            f"schedule {case}", policy({"brokers": brokers}), f"spec.brokers.{place}", *server_says
        )
        for case, brokers, place, *server_says in (
            ("of nothing", {**EGRESS, "schedules": [NIGHT]}, "schedules[0]"),
            (
                "without a limit",
                {**EGRESS, "schedules": [{**NIGHT, "egress": {}}]},
                "schedules[0].egress.limit",
                "Required value",
            ),
            (
                "above the capacity",
                {
                    "egress": {"limit": "1G", "capacity": "2G"},
                    "schedules": [{**NIGHT, "egress": {"limit": "3G"}}],
                },
                "schedules",
            ),
            (
                "of both directions beside one",
                {**EGRESS, "schedules": [{**NIGHT, "combined": {"limit": "1G"}}]},
                "schedules",
            ),
            (
                "of one direction beside both",
                {
                    "combined": {"limit": "1G"},
                    "schedules": [{**NIGHT, "egress": {"limit": "1G"}}],
                },
                "schedules",
            ),
            (
                "at half past 25",
                {**EGRESS, "schedules": [{**NIGHT, **EGRESS, "to": "25:30"}]},
                "schedules[0].to",
            ),
            (
                "that is ready some time",
                {**EGRESS, "schedules": [{**NIGHT, **EGRESS, "ready": "Soon"}]},
                "schedules[0].ready",
                'supported values: "Before", "At"',
            ),
        )
    ),
    *(
        BadInput(f"combined {case}", policy({"brokers": brokers}), place)
        for case, brokers, place in (
            (
                "beside egress",
                {"combined": {"limit": "1G"}, "egress": {"limit": "1G"}},
                "spec.brokers.combined",
            ),
            (
                "beside ingress in an override",
                {
                    "combined": {"limit": "1G"},
                    "overrides": [
                        {"ids": [1], "combined": {"limit": "1G"}, "ingress": {"limit": "1G"}}
                    ],
                },
                "spec.brokers.overrides[0].combined",
            ),
            (
                "overridden by a direction",
                {
                    "combined": {"limit": "1G"},
                    "overrides": [{"ids": [1], "egress": {"limit": "1G"}}],
                },
                "spec.brokers.overrides",
            ),
            (
                "that overrides a direction",
                {
                    "egress": {"limit": "1G"},
                    "overrides": [{"ids": [1], "combined": {"limit": "1G"}}],
                },
                "spec.brokers.overrides",
            ),
            ("of nothing", {"combined": {}}, "spec.brokers.combined"),
            (
                "above its capacity",
                {"combined": {"limit": "2G", "capacity": "1G"}},
                "spec.brokers.combined.limit",
            ),
            ("of zero", {"combined": {"limit": "0"}}, "spec.brokers.combined.limit"),
            (
                "in an unknown unit",
                {"combined": {"limit": "1000Mbit"}},
                "spec.brokers.combined.limit",
            ),
        )
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
        "mute of 1 s",
        policy({"escalation.maxMuteSeconds": 1}),
        "spec.escalation.maxMuteSeconds",
        server_says="greater than or equal to 2",
    ),
    BadInput(
        "removal of 0 percent",
        policy({"removal.maxPercent": 0}),
        "spec.removal.maxPercent",
        server_says="greater than or equal to 1",
    ),
    BadInput("empty default", policy({"defaults.user": {}}), "spec.defaults.user"),
    BadInput("empty defaults", policy({"defaults": {}}), "spec.defaults"),
)


_ALLOWED = "spec.allowedEntities[0]"
_PATTERN = "should match '^[^*"
ACCESS = (
    BadInput(
        "a pattern with a * inside",
        policy({"allowedEntities": [{"users": ["a*b"]}]}),
        f"{_ALLOWED}.users[0]",
        server_says=_PATTERN,
    ),
    BadInput(
        "a pattern with two *",
        policy({"allowedEntities": [{"clientIds": ["a**"]}]}),
        f"{_ALLOWED}.clientIds[0]",
        server_says=_PATTERN,
    ),
    BadInput(
        "a pattern with a newline",
        policy({"allowedEntities": [{"users": ["a\nb"]}]}),
        f"{_ALLOWED}.users[0]",
        server_says=_PATTERN,
    ),
    BadInput(
        "an empty pattern",
        policy({"allowedEntities": [{"users": [""]}]}),
        f"{_ALLOWED}.users[0]",
        server_says="at least 1 chars long",
    ),
    BadInput(
        "neither users nor client ids",
        policy({"allowedEntities": [{"namespaces": ["streaming"]}]}),
        _ALLOWED,
    ),
    BadInput(
        "no allowed entities at all",
        policy({"allowedEntities": []}),
        "spec.allowedEntities",
        server_says="should have at least 1 items",
    ),
    BadInput(
        "a namespace in capitals",
        policy({"allowedEntities": [{"users": ["a"], "namespaces": ["Streaming"]}]}),
        f"{_ALLOWED}.namespaces[0]",
    ),
    BadInput(
        "a selector that is missing",
        policy({"allowedTiers": {"namespaces": "Selector"}}),
        "spec.allowedTiers.selector",
    ),
    BadInput(
        "a selector for the same namespace",
        policy({"allowedTiers": {"selector": {}}}),
        "spec.allowedTiers.selector",
    ),
    BadInput(
        "all namespaces",
        policy({"allowedTiers": {"namespaces": "All"}}),
        "spec.allowedTiers.namespaces",
        server_says="supported values",
    ),
    BadInput(
        "an expression without values",
        policy(
            {
                "allowedTiers.selector": {
                    "matchExpressions": [{"key": "team", "operator": "NotIn"}],
                }
            }
        ),
        "spec.allowedTiers.selector.matchExpressions[0].values",
    ),
)


def _long_policy_name() -> Document:
    document = policy()
    document["metadata"]["name"] = "p" * 64
    return document


NAME_OF_POLICY = (BadInput("policy name over 63", _long_policy_name(), ""),)

REPLICATION = (
    BadInput("empty replication", policy({"replication": {}}), "spec.replication"),
    BadInput(
        "reassignments without a mode",
        policy({"replication.reassignments.mode": ABSENT}),
        "spec.replication.reassignments.mode",
        server_says="Required value",
    ),
    BadInput(
        "a fixed rate without the rate",
        policy({"replication.reassignments": {"mode": "Fixed", "rate": {"min": "1M"}}}),
        "spec.replication.reassignments.rate",
    ),
    BadInput(
        "a smallest rate above the largest",
        policy({"replication.reassignments.rate.min": "401M"}),
        "spec.replication.reassignments.rate.min",
    ),
    BadInput(
        "a replication rate of nothing",
        policy({"replication.recovery.rate.min": "0"}),
        "spec.replication.recovery.rate.min",
    ),
    BadInput(
        "a priority that nothing follows",
        policy({"replication.recovery.mode": "Off"}),
        "spec.replication.recovery.priority",
    ),
    BadInput(
        "a fixed recovery",
        policy({"replication.recovery.mode": "Fixed"}),
        "spec.replication.recovery.mode",
        server_says="Unsupported value",
    ),
    BadInput(
        "replication that follows unknown limits",
        policy({"brokers": ABSENT}),
        "spec.replication",
    ),
    BadInput(
        "replication that follows unknown load",
        policy({"metrics": ABSENT, "rollup": ABSENT}),
        "spec.replication",
    ),
    BadInput("empty background", policy({"background": {}}), "spec.background"),
    BadInput(
        "background that follows unknown limits",
        policy({"brokers": ABSENT, "replication": ABSENT}),
        "spec.background",
    ),
    BadInput(
        "a fixed copy without the rate",
        policy({"background.remoteCopy": {"mode": "Fixed"}}),
        "spec.background.remoteCopy.rate",
    ),
    BadInput(
        "a smallest rate of copies above the largest",
        policy({"background.remoteCopy.rate": {"min": "2M", "max": "1M"}}),
        "spec.background.remoteCopy.rate.min",
    ),
    BadInput(
        "a priority of fixed fetches",
        policy({"background.remoteFetch.priority": "L1"}),
        "spec.background.remoteFetch.priority",
    ),
    BadInput(
        "log directories that follow a NIC",
        policy({"background.logDirs.mode": "Follow"}),
        "spec.background.logDirs.mode",
        server_says="Unsupported value",
    ),
    BadInput(
        "log directories that are off with a rate",
        policy({"background.logDirs.mode": "Off"}),
        "spec.background.logDirs.rate",
    ),
)

BAD_POLICIES = (
    *KAFKA,
    *LOGINS,
    *METRICS_AND_BROKERS,
    *MOTION,
    *ACCESS,
    *REPLICATION,
    *NAME_OF_POLICY,
)


# --- the rollup of a BrokerBandwidthPolicy --------------------------------------------------------


BAD_ROLLUPS = (
    BadInput(
        "a toleration of nothing",
        policy({"rollup.pod.tolerations": [{"effect": "NoSchedule"}]}),
        "spec.rollup.pod.tolerations[0].key",
    ),
    BadInput(
        "an effect that Kubernetes does not know",
        policy({"rollup.pod.tolerations.0.effect": "Never"}),
        "spec.rollup.pod.tolerations[0].effect",
        server_says="Unsupported value",
    ),
    BadInput(
        "a Job more important than Kubernetes",
        policy({"rollup.pod.priorityClassName": "system-node-critical"}),
        "spec.rollup.pod.priorityClassName",
    ),
    BadInput(
        "code for the loader",
        policy({"rollup.pod.env.0.name": "LD_PRELOAD"}),
        "spec.rollup.pod.env[0].name",
    ),
    BadInput(
        "another image by the environment",
        policy({"rollup.pod.env.0.name": "TIDEGATE_IMAGE"}),
        "spec.rollup.pod.env[0].name",
    ),
    BadInput(
        "event logs without a volume",
        policy({"rollup.storage": {"url": "s3://usage/shop"}}),
        "spec.rollup.eventLog",
    ),
    BadInput(
        "no event log is kept",
        policy({"rollup.eventLog.keep": 0}),
        "spec.rollup.eventLog.keep",
        server_says="greater than or equal to 1",
    ),
    BadInput(
        "windows that do not divide a day",
        policy({"rollup.intervalSeconds": 1500}),
        "spec.rollup.intervalSeconds",
    ),
    BadInput(
        "windows of a minute",
        policy({"rollup.intervalSeconds": 60}),
        "spec.rollup.intervalSeconds",
        server_says="greater than or equal to 300",
    ),
    BadInput(
        "a password as a header",
        policy({"metrics.prometheus.headers": {"Authorization": "Basic bWU6cHc="}}),
        "spec.metrics.prometheus.headers",
    ),
    BadInput(
        "a header of two lines",
        policy({"metrics.prometheus.headers": {"X-Scope-OrgID": "a\nb: c"}}),
        "spec.metrics.prometheus.headers",
    ),
    BadInput(
        "a replica label that is none",
        policy({"metrics.prometheus.replicaLabels": ["replica-1"]}),
        "spec.metrics.prometheus.replicaLabels[0]",
    ),
    BadInput(
        "no storage",
        policy({"rollup.storage": ABSENT}),
        "spec.rollup.storage",
        server_says="Required value",
    ),
    BadInput(
        "tables on the web",
        policy({"rollup.storage.url": "https://tables"}),
        "spec.rollup.storage.url",
    ),
    BadInput(
        "a path that climbs",
        policy({"rollup.storage.url": "file:///var/../etc"}),
        "spec.rollup.storage.url",
    ),
    BadInput(
        "the root of a Pod", policy({"rollup.storage.url": "file:///"}), "spec.rollup.storage.url"
    ),
    BadInput(
        "credentials of a bucket",
        policy({"rollup.storage.url": "s3://me:pw@b/x"}),
        "spec.rollup.storage.url",
    ),
    BadInput(
        "a container without the account's host",
        policy({"rollup.storage": {"url": "abfs://usage@account/tidegate"}}),
        "spec.rollup.storage.url",
    ),
    BadInput(
        "a container at another service",
        policy({"rollup.storage": {"url": "abfss://usage@account.blob.core.windows.net/x"}}),
        "spec.rollup.storage.url",
    ),
    BadInput(
        "a container of a bucket",
        policy({"rollup.storage": {"url": "s3://usage@shop/tidegate"}}),
        "spec.rollup.storage.url",
    ),
    BadInput(
        "a folder without a volume",
        policy({"rollup.storage.claimName": ABSENT}),
        "spec.rollup.storage.claimName",
    ),
    BadInput(
        "a volume beside a bucket",
        policy({"rollup.storage.url": "s3://usage/tidegate"}),
        "spec.rollup.storage.claimName",
    ),
    BadInput(
        "an endpoint of Google's",
        policy({"rollup.storage": {"url": "gs://usage/x", "endpoint": "https://minio:9000"}}),
        "spec.rollup.storage.endpoint",
    ),
    BadInput(
        "an endpoint with a login",
        policy({"rollup.storage": {"url": "s3://usage/x", "endpoint": "https://me:pw@minio"}}),
        "spec.rollup.storage.endpoint",
    ),
    BadInput(
        "a region on a disk",
        policy({"rollup.storage.region": "eu-central-1"}),
        "spec.rollup.storage.region",
    ),
    BadInput(
        "a path style of Amazon's",
        policy({"rollup.storage": {"url": "s3://usage/x", "pathStyle": True}}),
        "spec.rollup.storage.endpoint",
    ),
    BadInput(
        "a catalog without an address",
        policy({"rollup.storage.catalog": {"type": "rest"}}),
        "spec.rollup.storage.catalog.uri",
        server_says="Required value",
    ),
    BadInput(
        "a catalog's password in its address",
        policy({"rollup.storage.catalog": {"type": "rest", "uri": "https://me:pw@catalog"}}),
        "spec.rollup.storage.catalog.uri",
    ),
    BadInput(
        "a catalog's warehouse with a login",
        policy({"rollup.storage.catalog.warehouse": "s3://me:pw@lake"}),
        "spec.rollup.storage.catalog.warehouse",
    ),
    BadInput(
        "a catalog of a kind that is not offered",
        policy({"rollup.storage.catalog.type": "hive"}),
        "spec.rollup.storage.catalog.type",
        server_says="Unsupported value",
    ),
    BadInput(
        "memory without a unit",
        policy({"rollup.driver.memory": "3000000000"}),
        "spec.rollup.driver.memory",
    ),
    BadInput(
        "memory of a phone",
        policy({"rollup.executors.memory": "512Mi"}),
        "spec.rollup.executors.memory",
    ),
    BadInput(
        "five minutes kept longer than hours",
        policy({"rollup.retentionDays": {"fiveMinutes": 401}}),
        "spec.rollup.retentionDays",
    ),
    BadInput(
        "a price with a currency",
        policy({"rollup.pricePerGiB.fetch": "2 EUR"}),
        "spec.rollup.pricePerGiB.fetch",
    ),
    BadInput("no price at all", policy({"rollup.pricePerGiB": {}}), "spec.rollup.pricePerGiB"),
    BadInput(
        "recommendations applied without a bound",
        policy({"rollup.recommend": {"apply": "WithinPercent"}}),
        "spec.rollup.recommend.maxChangePercent",
    ),
    BadInput(
        "usage without metrics",
        policy({"metrics": ABSENT}),
        "spec.metrics",
    ),
)


# --- QuotaOverride --------------------------------------------------------------------------------


EXEMPT = {"action": "Exempt", "rates": ABSENT}


def _moment(name: str, value: str) -> BadInput:
    return BadInput(f"expiresAt {name}", override({"expiresAt": value}), "spec.expiresAt")


MOMENTS = (
    _moment("in a word", "tomorrow"),
    _moment("without a time", "2026-11-30"),
    _moment("with a space", "2026-11-30 06:00:00Z"),
    _moment("without seconds", "2026-11-30T06:00Z"),
    _moment("in month 13", "2026-13-01T06:00:00Z"),
    _moment("on 31 November", "2026-11-31T06:00:00Z"),
    _moment("on 29 February of a common year", "2027-02-29T06:00:00Z"),
    _moment("on 29 February 2100", "2100-02-29T06:00:00Z"),
    _moment("in hour 24", "2026-11-30T24:00:00Z"),
    _moment("without an offset", "2026-11-30T06:00:00"),
    _moment("with small letters", "2026-11-30t06:00:00z"),
    _moment("with a leap second", "2026-11-30T06:00:60Z"),
    _moment("with an offset of 25 hours", "2026-11-30T06:00:00+25:00"),
    _moment("with a comma", "2026-11-30T06:00:00,5Z"),
    _moment("in the year 1999", "1999-11-30T06:00:00Z"),
    _moment("with a newline", "2026-11-30T06:00:00Z\n"),
    _moment("in other digits", "٢٠٢٦-11-30T06:00:00Z"),
)

RECURRING = {"expiresAt": ABSENT, "recurrence": NIGHTS}
BAD_OVERRIDES = (
    BadInput("override with two ends", override({"recurrence": NIGHTS}), "spec.recurrence"),
    BadInput(
        "start at the end",
        override({"startsAt": "2026-11-30T07:00:00+01:00"}),
        "spec.startsAt",
    ),
    BadInput(
        "start at the end of what comes back",
        override({**RECURRING, "startsAt": NIGHTS["until"]}),
        "spec.startsAt",
    ),
    BadInput("start in a word", override({"startsAt": "tonight"}), "spec.startsAt"),
    BadInput(
        "what comes back without an end",
        override({**RECURRING, "recurrence.until": ABSENT}),
        "spec.recurrence.until",
        server_says="Required value",
    ),
    BadInput(
        "what comes back without a time of day",
        override({**RECURRING, "recurrence.from": ABSENT}),
        "spec.recurrence.from",
        server_says="Required value",
    ),
    BadInput(
        "what comes back at half past 25",
        override({**RECURRING, "recurrence.to": "25:30"}),
        "spec.recurrence.to",
    ),
    BadInput(
        "what comes back in a zone with a space",
        override({**RECURRING, "recurrence.timeZone": "Europe Berlin"}),
        "spec.recurrence.timeZone",
    ),
    BadInput("override without a target", override({"target": {}}), "spec.target"),
    BadInput(
        "override for a level and a user",
        override({"target": {"level": "L2", "user": "a"}}),
        "spec.target",
    ),
    BadInput(
        "override for a level and a client id",
        override({"target": {"level": "L2", "clientId": "a"}}),
        "spec.target",
    ),
    BadInput(
        "override without a target",
        override({"target": ABSENT}),
        "spec.target",
        server_says="Required value",
    ),
    BadInput(
        "override without an action",
        override({"action": ABSENT}),
        "spec.action",
        server_says="Required value",
    ),
    BadInput(
        "unknown action",
        override({"action": "Mute"}),
        "spec.action",
        server_says='supported values: "SetRates", "Exempt"',
    ),
    BadInput("SetRates without rates", override({"rates": ABSENT}), "spec.rates"),
    BadInput("Exempt with rates", override({"action": "Exempt"}), "spec.rates"),
    BadInput(
        "Exempt for L0",
        override({**EXEMPT, "target": {"level": "L0"}}),
        "spec.action",
    ),
    BadInput("rates without a form", override({"rates": {}}), "spec.rates"),
    BadInput("rates in two forms", override({"rates.total": {"fetch": "1Mi"}}), "spec.rates"),
    BadInput("rates without a direction", override({"rates": {"total": {}}}), "spec.rates.total"),
    BadInput(
        "rates of 0", override({"rates.perPartition.fetch": "0"}), "spec.rates.perPartition.fetch"
    ),
    BadInput(
        "rates with a request percentage",
        override({"rates.requestPercentage": 200}),
        "spec.rates.requestPercentage",
        server_says='unknown field "spec.rates.requestPercentage"',
    ),
    BadInput(
        "unknown level of an override",
        override({"target": {"level": "L4"}}),
        "spec.target.level",
        server_says='supported values: "L0", "L1", "L2", "L3"',
    ),
    BadInput(
        "override of the default user", override({"target.user": "<default>"}), "spec.target.user"
    ),
    BadInput(
        "override without a policy",
        override({"policyRef": ABSENT}),
        "spec.policyRef",
        server_says="Required value",
    ),
    BadInput(
        "override without an end",
        override({"expiresAt": ABSENT}),
        "spec.expiresAt",
    ),
    BadInput(
        "list for an end",
        override({"expiresAt": []}),
        "spec.expiresAt",
        server_says="must be of type string",
    ),
    BadInput(
        "empty end",
        override({"expiresAt": ""}),
        "spec.expiresAt",
        server_says="at least 1 chars long",
    ),
    BadInput(
        "override without a reason",
        override({"reason": ABSENT}),
        "spec.reason",
        server_says="Required value",
    ),
    BadInput("blank reason", override({"reason": "   "}), "spec.reason"),
    BadInput(
        "empty reason", override({"reason": ""}), "spec.reason", server_says="at least 1 chars long"
    ),
    BadInput("reason of two lines", override({"reason": "a\nb"}), "spec.reason"),
    BadInput(
        "endless reason", override({"reason": "x" * 513}), "spec.reason", server_says="Too long"
    ),
    *MOMENTS,
)


# --- DelayQueue -----------------------------------------------------------------------------------


def _long_queue_name() -> Document:
    document = queue()
    document["metadata"]["name"] = "q" * 64
    return document


_DELAYS, _ALLOWED_TARGET, _DEFAULT = (
    "spec.delays",
    "spec.target.allowed[0]",
    "spec.target.default",
)
BAD_QUEUES = (
    BadInput("queue name over 63", _long_queue_name(), ""),
    BadInput(
        "queue without a policy",
        queue({"policyRef": ABSENT}),
        "spec.policyRef",
        server_says="Required value",
    ),
    BadInput(
        "queue without a guarantee",
        queue({"guarantee": ABSENT}),
        "spec.guarantee",
        server_says="Required value",
    ),
    BadInput(
        "unknown guarantee",
        queue({"guarantee": "AtMostOnce"}),
        "spec.guarantee",
        server_says='supported values: "AtLeastOnce", "ExactlyOnce"',
    ),
    BadInput(
        "queue without delays", queue({"delays": []}), _DELAYS, server_says="at least 1 items"
    ),
    BadInput(
        "delay of 0",
        queue({"delays.0.seconds": 0}),
        "spec.delays[0].seconds",
        server_says="greater than or equal to 1",
    ),
    BadInput(
        "delay of more than a year",
        queue({"delays.0.seconds": 31_536_001}),
        "spec.delays[0].seconds",
        server_says="less than or equal to 31536000",
    ),
    BadInput(
        "delay without seconds",
        queue({"delays.0": {"topics": 2}}),
        "spec.delays[0].seconds",
        server_says="Required value",
    ),
    BadInput(
        "delays alike",
        queue({"delays": [{"seconds": 5}, {"seconds": 5, "topics": 2}]}),
        _DELAYS,
        server_says="Duplicate value",
    ),
    BadInput(
        "delay without topics",
        queue({"delays.0.topics": 0}),
        "spec.delays[0].topics",
        server_says="greater than or equal to 1",
    ),
    BadInput(
        "more topics than one queue may have",
        queue({"delays": [{"seconds": n, "topics": 128} for n in range(1, 6)]}),
        _DELAYS,
    ),
    BadInput(
        "messages that wait until Kafka deletes them",
        queue({"shift.latestSeconds": 86400}),
        "spec.shift",
    ),
    BadInput(
        "messages that wait beyond the default of graceSeconds",
        queue({"shift.latestSeconds": 86400, "topics": {"replicationFactor": 3}}),
        "spec.shift",
    ),
    BadInput(
        "messages that wait less than a minute",
        queue({"shift.latestSeconds": 59}),
        "spec.shift.latestSeconds",
        server_says="greater than or equal to 60",
    ),
    BadInput("messages that leave at no rate", queue({"shift.rate": "0"}), "spec.shift.rate"),
    BadInput(
        "messages that wait otherwise",
        queue({"shift.whileOverLimit": "Drop"}),
        "spec.shift.whileOverLimit",
        server_says="Unsupported value",
    ),
    BadInput("prefix that begins with a dot", queue({"topicPrefix": ".a"}), "spec.topicPrefix"),
    BadInput("internal prefix", queue({"topicPrefix": "__a"}), "spec.topicPrefix"),
    BadInput("prefix with a slash", queue({"topicPrefix": "a/b"}), "spec.topicPrefix"),
    BadInput(
        "prefix with which a topic's name would be too long",
        queue({"topicPrefix": "a" * 201}),
        "spec.topicPrefix",
        server_says="Too long",
    ),
    BadInput(
        "queue without targets",
        queue({"target.allowed": []}),
        "spec.target.allowed",
        server_says="at least 1 items",
    ),
    BadInput(
        "target allowed twice",
        queue({"target.allowed": ["orders.due", "orders.due"]}),
        "spec.target.allowed",
        server_says="Duplicate value",
    ),
    BadInput(
        "internal target allowed",
        queue({"target.allowed.0": "__consumer_offsets"}),
        _ALLOWED_TARGET,
    ),
    BadInput(
        "pattern of targets with a star in the middle",
        queue({"target.allowed.0": "a*b"}),
        _ALLOWED_TARGET,
        server_says="should match",
    ),
    BadInput("internal default target", queue({"target.default": "__a"}), _DEFAULT),
    BadInput("default target that is no topic", queue({"target.default": "a b"}), _DEFAULT),
    BadInput("default target of one dot", queue({"target.default": "."}), _DEFAULT),
    BadInput("default target that is not allowed", queue({"target.default": "invoices"}), _DEFAULT),
    BadInput(
        "level topic as target",
        queue({"target": {"allowed": ["*"], "default": "shop.unpaid.5.0"}}),
        "spec.target",
    ),
    BadInput(
        "dead topic as target",
        queue({"target": {"allowed": ["*"], "default": "shop.unpaid.dead"}}),
        "spec.target",
    ),
    BadInput(
        "topic of cancellations as target",
        queue({"target": {"allowed": ["*"], "default": "shop.unpaid.cancelled"}}),
        "spec.target",
    ),
    BadInput(
        "control topic as target",
        queue({"target": {"allowed": ["*"], "default": "shop.unpaid.control"}}),
        "spec.target",
    ),
    BadInput(
        "no forwarders",
        queue({"forwarders.replicas": 0}),
        "spec.forwarders.replicas",
        server_says="greater than or equal to 1",
    ),
    BadInput(
        "memory in gigabytes",
        queue({"forwarders.resources.limits.memory": "1GB"}),
        "spec.forwarders.resources.limits.memory",
    ),
    BadInput(
        "processor of 0",
        queue({"forwarders.resources.limits.cpu": "0"}),
        "spec.forwarders.resources.limits.cpu",
    ),
    BadInput(
        "grace of a second",
        queue({"topics.graceSeconds": 1}),
        "spec.topics.graceSeconds",
        server_says="greater than or equal to 60",
    ),
    BadInput(
        "no replicas of a topic",
        queue({"topics.replicationFactor": 0}),
        "spec.topics.replicationFactor",
        server_says="greater than or equal to 1",
    ),
    BadInput("certificate of a queue without tls", queue({"tls": ABSENT}), "spec.tls"),
    BadInput(
        "queue's login without a password",
        queue({"authentication.passwordSecret": ABSENT}),
        "spec.authentication.passwordSecret",
    ),
    BadInput(
        "unknown deletion policy",
        queue({"deletionPolicy": "Restore"}),
        "spec.deletionPolicy",
        server_says='supported values: "Drain", "Keep"',
    ),
)


BAD_BUDGETS = (
    BadInput(
        "budget without a policy", budget({"policyRef": ABSENT}), "spec.policyRef", "Required"
    ),
    BadInput("budget without a total", budget({"total": ABSENT}), "spec.total", "Required"),
    BadInput("total of nothing", budget({"total": {}}), "spec.total"),
    BadInput("total of 0", budget({"total.fetch": "0"}), "spec.total.fetch"),
    BadInput("members of nothing", budget({"members": {}}), "spec.members"),
    BadInput(
        "no label in a selector",
        budget({"members.selector.matchLabels": {}}),
        "spec.members.selector.matchLabels",
        server_says="at least 1",
    ),
    BadInput(
        "tier twice in a budget",
        budget({"members.tiers": ["reporting", "reporting"]}),
        "spec.members.tiers",
        server_says="Duplicate value",
    ),
    BadInput("parent without a name", budget({"parent": {}}), "spec.parent.name", "Required"),
    BadInput(
        "minimum of more than all",
        budget({"share.minimumPercent": 101}),
        "spec.share.minimumPercent",
        server_says="less than or equal to 100",
    ),
    BadInput(
        "weight of 0",
        budget({"share.weight": 0}),
        "spec.share.weight",
        server_says="greater than or equal to 1",
    ),
)


BAD_INPUT = (
    *BAD_TIERS,
    *BAD_POLICIES,
    *BAD_OVERRIDES,
    *BAD_ROLLUPS,
    *BAD_QUEUES,
    *BAD_BUDGETS,
)
