"""What bad input gets, row by row: the field that is blamed, and the words in which a person reads what must hold.

The same rows are put to the models (unit tests) and to a real API server (integration tests). `says` are the words of our
own rules, which both use; where only the schema speaks, the API server has words of its own (`server_says`).
"""

from dataclasses import dataclass

from tests.unit.resources.documents import ABSENT, Document, member, policy, tier

A_RATE = "must be a whole number of bytes per second from 1024 to 9007199254740991, such as 52428800, 50Mi or 1250M"
FETCH = "members.0.contract.perPartition.fetch"
FETCH_FIELD = "spec.members[0].contract.perPartition.fetch"
MEMBER = "spec.members[0]"


@dataclass(frozen=True)
class BadInput:
    """One wrong object. `field` is the path that must be named; `server_says` defaults to `says`."""

    name: str
    document: Document
    field: str
    says: str
    server_says: str = ""

    @property
    def server_words(self) -> str:
        return self.server_says or self.says


def _rate(name: str, value: object) -> BadInput:
    return BadInput(f"byte rate {name}", tier({FETCH: value}), FETCH_FIELD, A_RATE)


BYTE_RATES = (
    _rate("0", 0),
    _rate("0 as text", "0"),
    _rate("0Mi", "0Mi"),
    _rate("negative", -1),
    _rate("negative as text", "-5Mi"),
    _rate("below the floor", 1023),
    _rate("below the floor as text", "1023"),
    _rate("1k, which is below the floor", "1k"),
    _rate("above the ceiling", 2**53),
    _rate("above the ceiling as text", "9007199254740992"),
    _rate("above the ceiling by its suffix", "8192Ti"),
    _rate("far above the ceiling", "9999999999999999Ti"),
    _rate("10MB/s", "10MB/s"),
    _rate("10MB", "10MB"),
    _rate("10 Mi with a space", "10 Mi"),
    _rate("a fraction", "1.5Mi"),
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
        "is not a field of this kind",
        'unknown field "spec.members[0].usr"',
    ),
    BadInput(
        "rollup, not offered yet",
        policy({"rollup": {"everySeconds": 3600}}),
        "spec.rollup",
        "is not a field of this kind",
        'unknown field "spec.rollup"',
    ),
    BadInput("number for a name", tier({"members.0.user": 7}), f"{MEMBER}.user", "must be a valid string", "must be of type string"),
    BadInput("text for a list", tier({"members": "all"}), "spec.members", "must be a valid array", "must be of type array"),
    BadInput(
        "text for a number",
        policy({"escalation.holdSeconds": "45"}),
        "spec.escalation.holdSeconds",
        "must be a valid integer",
        "must be of type integer",
    ),
    BadInput(
        "fraction of a second", policy({"escalation.holdSeconds": 1.5}), "spec.escalation.holdSeconds", "must be", "must be of type integer"
    ),
    BadInput("boolean byte rate", tier({FETCH: True}), FETCH_FIELD, A_RATE, "must be of type"),
    BadInput("fractional byte rate", tier({FETCH: 1048576.5}), FETCH_FIELD, A_RATE, "must be of type"),
    BadInput(
        "unknown level", tier({"level": "L4"}), "spec.level", "must be 'L0', 'L1', 'L2' or 'L3'", 'supported values: "L0", "L1", "L2", "L3"'
    ),
    BadInput("no mode", policy({"mode": ABSENT}), "spec.mode", "is required", "Required value"),
    BadInput(
        "unknown mode", policy({"mode": "DryRun"}), "spec.mode", "must be 'Observe' or 'Enforce'", 'supported values: "Observe", "Enforce"'
    ),
)

NAMES = (
    BadInput("empty user", tier({"members.0.user": ""}), f"{MEMBER}.user", "at least 1 char", "at least 1 chars long"),
    BadInput("user over 256", tier({"members.0.user": "x" * 257}), f"{MEMBER}.user", "at most 256 characters", "may not be more than 256"),
    BadInput(
        "client id over 256",
        tier({"members.0.clientId": "x" * 257}),
        f"{MEMBER}.clientId",
        "at most 256 characters",
        "may not be more than 256",
    ),
    BadInput("user with a newline", tier({"members.0.user": "bob\n"}), f"{MEMBER}.user", "must not contain control characters"),
    BadInput("user with a NUL", tier({"members.0.user": "b\x00b"}), f"{MEMBER}.user", "must not contain control characters"),
    BadInput("user .", tier({"members.0.user": "."}), f"{MEMBER}.user", "must not be '.'"),
    BadInput("client id ..", tier({"members.0.clientId": ".."}), f"{MEMBER}.clientId", "must not be '.'"),
    BadInput("user <default>", tier({"members.0.user": "<default>"}), f"{MEMBER}.user", "see spec.defaults of the policy"),
    BadInput("empty member name", tier({"members.0.name": ""}), f"{MEMBER}.name", "at least 1 char", "at least 1 chars long"),
    BadInput(
        "member name with a space", tier({"members.0.name": "a b"}), f"{MEMBER}.name", "must consist of letters, digits, '.', '_' and '-'"
    ),
    BadInput(
        "topic with a slash",
        tier({"members.0.topics.0": "a/b"}),
        f"{MEMBER}.topics[0]",
        "must be a topic name",
        "should match '^[A-Za-z0-9._-]*[*]?$'",
    ),
    BadInput(
        "topic with a * inside",
        tier({"members.0.topics.0": "a*b"}),
        f"{MEMBER}.topics[0]",
        "one '*'",
        "should match '^[A-Za-z0-9._-]*[*]?$'",
    ),
    BadInput("empty topic", tier({"members.0.topics.0": ""}), f"{MEMBER}.topics[0]", "at least 1 char", "at least 1 chars long"),
    BadInput("topic ..", tier({"members.0.topics.0": ".."}), f"{MEMBER}.topics[0]", "Kafka has no such topics"),
    BadInput("topic over 249", tier({"members.0.topics.0": "t" * 250}), f"{MEMBER}.topics[0]", "at most 249", "may not be more than 249"),
    BadInput(
        "upper case policy name", tier({"policyRef.name": "Orders"}), "spec.policyRef.name", "must be the name of a Kubernetes object"
    ),
)

MEMBERS = (
    BadInput("no members", tier({"members": []}), "spec.members", "at least 1 item", "at least 1 items"),
    BadInput(
        "501 members",
        tier({"members": [member(f"m{i}") for i in range(501)]}),
        "spec.members",
        "at most 500 items",
        "must have at most 500 items",
    ),
    BadInput(
        "two members of one name",
        tier({"members": [member("a"), member("a", user="b")]}),
        "spec.members",
        "name of its own",
        "Duplicate value",
    ),
    BadInput("same topic twice", tier({"members.0.topics": ["a", "a"]}), f"{MEMBER}.topics", "once only", "Duplicate value"),
    BadInput("neither user nor client id", tier({"members.0": {"name": "nobody"}}), MEMBER, "must have a user, a clientId or both"),
    BadInput(
        "topics missing for perPartition",
        tier({"members.0.topics": ABSENT}),
        f"{MEMBER}.topics",
        "topics are required with a contract perPartition",
    ),
    BadInput(
        "two forms",
        tier({"members.0.contract.total": {"fetch": "1Gi"}}),
        f"{MEMBER}.contract",
        "must have exactly one of perPartition, perBroker and total",
    ),
    BadInput(
        "no form",
        tier({"members.0.contract": {"requestPercentage": 100}}),
        f"{MEMBER}.contract",
        "must have exactly one of perPartition, perBroker and total",
    ),
    BadInput(
        "empty rates",
        tier({"members.0.contract.perPartition": {}}),
        f"{MEMBER}.contract.perPartition",
        "must have at least one of fetch and produce",
    ),
)

THROTTLED = (
    BadInput("L0 with throttled", tier({"level": "L0"}), "spec.throttled", "throttled must be left out on level L0"),
    BadInput(
        "L1 without throttled",
        tier({"level": "L1", "throttled": ABSENT}),
        "spec.throttled",
        "throttled is required on levels L1, L2 and L3",
    ),
    BadInput("L3 without throttled", tier({"throttled": ABSENT}), "spec.throttled", "throttled is required on levels L1, L2 and L3"),
    BadInput("empty throttled", tier({"throttled": {}}), "spec.throttled", "must have at least one of perPartition, perBroker and total"),
    BadInput(
        "throttled above contract",
        tier({"throttled.perPartition.fetch": "11Mi"}),
        "spec.throttled",
        "throttled.perPartition.fetch must not be above the contract of any member",
        "throttled.perPartition.fetch must not be above the contract, but it is for member nightly-reports",
    ),
    BadInput(
        "throttled above contract across suffixes",
        tier({"throttled.perPartition.produce": 10485761}),
        "spec.throttled",
        "throttled.perPartition.produce must not be above the contract of any member",
        "throttled.perPartition.produce must not be above the contract, but it is for member nightly-reports",
    ),
    BadInput(
        "throttled total above contract of the second member",
        tier(
            {
                "throttled": {"total": {"fetch": "30M"}},
                "members": [
                    member("a", contract={"total": {"fetch": "30M"}}),
                    member("b", contract={"total": {"fetch": "29M"}}),
                ],
            }
        ),
        "spec.throttled",
        "throttled.total.fetch must not be above the contract of any member",
        "throttled.total.fetch must not be above the contract, but it is for member b",
    ),
)

KAFKA = (
    BadInput(
        "servers without port", policy({"kafka.bootstrapServers": "kafka-1"}), "spec.kafka.bootstrapServers", "must be host:port pairs"
    ),
    BadInput("servers with a space", policy({"kafka.bootstrapServers": "a:1, b:2"}), "spec.kafka.bootstrapServers", "without spaces"),
    BadInput(
        "ZooKeeper without zookeeper", policy({"kafka.zookeeper": ABSENT}), "spec.kafka.zookeeper", "is required with quotaStore ZooKeeper"
    ),
    BadInput(
        "AdminApi with zookeeper",
        policy({"kafka.quotaStore": "AdminApi"}),
        "spec.kafka.zookeeper",
        "zookeeper is only used with quotaStore ZooKeeper",
    ),
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

BAD_INPUT = (*BYTE_RATES, *UNKNOWN_AND_MISTYPED, *NAMES, *MEMBERS, *THROTTLED, *KAFKA, *METRICS_AND_BROKERS, *MOTION, *NAME_OF_POLICY)
