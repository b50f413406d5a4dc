"""What bad input gets in a BusinessTier, and where a field or a type is unknown in either kind."""

from tests.unit.resources.bad_row import BadInput
from tests.unit.resources.documents import ABSENT, member, policy, tier

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
    BadInput("number for a name", tier({"members.0.user": 7}), f"{MEMBER}.user", server_says="must be of type string"),
    BadInput("text for a list", tier({"members": "all"}), "spec.members", server_says="must be of type array"),
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
    BadInput("fractional byte rate", tier({FETCH: 1048576.5}), FETCH_FIELD, server_says="must be of type"),
    BadInput("unknown level", tier({"level": "L4"}), "spec.level", server_says='supported values: "L0", "L1", "L2", "L3"'),
    BadInput("no mode", policy({"mode": ABSENT}), "spec.mode", server_says="Required value"),
    BadInput("unknown mode", policy({"mode": "DryRun"}), "spec.mode", server_says='supported values: "Observe", "Enforce"'),
)

NAMES = (
    BadInput("empty user", tier({"members.0.user": ""}), f"{MEMBER}.user", server_says="at least 1 chars long"),
    BadInput("user over 256", tier({"members.0.user": "x" * 257}), f"{MEMBER}.user", server_says="may not be more than 256"),
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
    BadInput("empty member name", tier({"members.0.name": ""}), f"{MEMBER}.name", server_says="at least 1 chars long"),
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
    BadInput("empty topic", tier({"members.0.topics.0": ""}), f"{MEMBER}.topics[0]", server_says="at least 1 chars long"),
    BadInput("topic ..", tier({"members.0.topics.0": ".."}), f"{MEMBER}.topics[0]"),
    BadInput("topic over 249", tier({"members.0.topics.0": "t" * 250}), f"{MEMBER}.topics[0]", server_says="may not be more than 249"),
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
    BadInput("same topic twice", tier({"members.0.topics": ["a", "a"]}), f"{MEMBER}.topics", server_says="Duplicate value"),
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
