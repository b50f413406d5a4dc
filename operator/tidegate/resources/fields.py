"""Text fields of resources, such as names and addresses, each with its bounds and its rule.

The error of a pattern is a regular expression, so fields that people get wrong have a rule with a
message.
"""

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from tidegate.errors import InvalidResource
from tidegate.resources.schema import Rule, SchemaModel, enforce

MAX_KAFKA_NAME_LENGTH = 256

CONTROL_CHARACTERS = r"[\x00-\x1f\x7f]"


def ruled(*rules: Rule) -> tuple[Any, Any]:
    """The annotations that make a scalar type obey `rules`, in the model and in the CRD alike."""

    def check(value: Any) -> Any:
        enforce(rules, value)
        return value

    in_cel: list[Any] = [dict(rule.as_schema()) for rule in rules if rule.cel]
    schema: dict[str, Any] | None = {"x-kubernetes-validations": in_cel} if in_cel else None
    return AfterValidator(check), Field(json_schema_extra=schema)


def matching(expression: str, message: str) -> Rule:
    """The rule that a text matches a whole regular expression (RE2; anchors are added)."""
    compiled = re.compile(expression)
    return Rule(
        cel=f"self.matches({_cel_text(f'^(?:{expression})$')})",
        message=message,
        holds=lambda text: compiled.fullmatch(text) is not None,
    )


def _cel_text(text: str) -> str:
    return "r'" + text + "'" if "'" not in text else 'r"' + text + '"'


NO_CONTROL_CHARACTERS = Rule(
    cel=f"!self.matches(r'{CONTROL_CHARACTERS}')",
    message="must not contain control characters",
    holds=lambda text: re.search(CONTROL_CHARACTERS, text) is None,
)
_NO_RESERVED_NAME = Rule(
    cel="!(self in ['.', '..', '<default>'])",
    message="must not be '.', '..' (no legal names in ZooKeeper) or '<default>' (Kafka's default "
    "entity: see spec.defaults of the policy)",
    holds=lambda text: text not in (".", "..", "<default>"),
)

_name_check, _name_schema = ruled(NO_CONTROL_CHARACTERS, _NO_RESERVED_NAME)
KafkaName = Annotated[
    str, Field(min_length=1, max_length=MAX_KAFKA_NAME_LENGTH), _name_check, _name_schema
]
"""A user (principal name without `User:`) or client id, exactly as Kafka sees it.

`ANONYMOUS` is an ordinary user.
"""

# a rule for every topic of every member would cost the API server too much: only a pattern
TOPIC_PATTERN = r"^[A-Za-z0-9._-]*[*]?$"
_topic_check, _topic_schema = ruled(
    Rule(
        cel="",
        message="must be a topic name (letters, digits, '.', '_', '-'), or a prefix followed by "
        "one '*'",
        holds=lambda text: re.fullmatch(r"[A-Za-z0-9._-]*[*]?", text) is not None,
    ),
    Rule(
        cel="!(self in ['.', '..'])",
        message="must not be '.' or '..': Kafka has no such topics",
        holds=lambda text: text not in (".", ".."),
    ),
)
TopicPattern = Annotated[
    str,
    Field(min_length=1, max_length=249, json_schema_extra={"pattern": TOPIC_PATTERN}),
    _topic_check,
    _topic_schema,
]
"""A topic name, or a prefix ending in `*`; `*` alone means every topic."""

# as for topics: a rule for every rack of every member would cost too much
_rack_check, _ = ruled(
    Rule(
        cel="",
        message="must be a rack as in the brokers' broker.rack, without spaces",
        holds=lambda text: re.fullmatch(r"\S+", text) is not None,
    )
)
RackName = Annotated[
    str,
    Field(min_length=1, max_length=128, json_schema_extra={"pattern": r"^\S+$"}),
    _rack_check,
]
"""A rack, as in the brokers' broker.rack and in consumers' client.rack."""

_pod_check, _pod_schema = ruled(
    matching(
        r"[a-z0-9.*+?()|\[\]-]+",
        "must be a regular expression of small letters, digits and the signs . * + ? ( ) | [ ] -",
    ),
    Rule(
        cel="",
        message="must be a regular expression that can be read, such as orders-kafka-.*",
        holds=lambda text: _is_expression(text),
    ),
)
PodPattern = Annotated[str, Field(min_length=1, max_length=253), _pod_check, _pod_schema]
"""A regular expression for the names of Pods, without what RE2 and Python read differently."""


def _is_expression(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return "(?" not in text


_member_check, _member_schema = ruled(
    matching(
        r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?",
        (
            "must consist of letters, digits, '.', '_' and '-', and begin and end with a letter or "
            "digit"
        ),
    )
)
MemberName = Annotated[str, Field(min_length=1, max_length=128), _member_check, _member_schema]

_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)"
_PORT = r"(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"

_bootstrap_check, _bootstrap_schema = ruled(
    matching(
        rf"{_HOST}:{_PORT}(?:,{_HOST}:{_PORT})*",
        (
            "must be host:port pairs separated by commas without spaces, such as "
            "kafka-1:9092,kafka-2:9092"
        ),
    )
)
BootstrapServers = Annotated[
    str, Field(min_length=1, max_length=2048), _bootstrap_check, _bootstrap_schema
]

_ledger_topic_check, _ledger_topic_schema = ruled(
    matching(
        r"[A-Za-z0-9._-]+",
        "must be a topic's name, of letters, digits, '.', '_' and '-'",
    )
)
TopicName = Annotated[
    str, Field(min_length=3, max_length=249), _ledger_topic_check, _ledger_topic_schema
]

_zookeeper_check, _zookeeper_schema = ruled(
    matching(
        rf"{_HOST}(?::{_PORT})?(?:,{_HOST}(?::{_PORT})?)*(?:/[^/\x00-\x20\x7f,]+)*",
        "must be Kafka's own zookeeper.connect: host:port pairs separated by commas, then the "
        "chroot if there is one, such as zk-1:2181,zk-2:2181/kafka",
    )
)
ZooKeeperConnect = Annotated[
    str, Field(min_length=1, max_length=2048), _zookeeper_check, _zookeeper_schema
]

_url_check, _url_schema = ruled(
    matching(
        rf"https?://{_HOST}(?::{_PORT})?(?:/[^\x00-\x20\x7f?#@\\]*)?",
        (
            "must be an http:// or https:// address without credentials, query or fragment (logins "
            "belong in prometheus.authentication)"
        ),
    )
)
HttpUrl = Annotated[str, Field(min_length=1, max_length=2048), _url_check, _url_schema]

_https_check, _https_schema = ruled(
    matching(
        rf"https://{_HOST}(?::{_PORT})?(?:/[^\x00-\x20\x7f?#@\\]*)?",
        "must be an https:// address without credentials, query or fragment",
    )
)
HttpsUrl = Annotated[str, Field(min_length=1, max_length=2048), _https_check, _https_schema]

_cluster_check, _cluster_schema = ruled(
    matching(r"[A-Za-z0-9_-]+", "must be a Kafka cluster id: letters, digits, '_' and '-'")
)
ClusterId = Annotated[str, Field(min_length=1, max_length=128), _cluster_check, _cluster_schema]

_object_check, _object_schema = ruled(
    matching(
        r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?",
        (
            "must be the name of a Kubernetes object: lower case letters, digits, '-' and '.', at "
            "most 253 characters"
        ),
    )
)
ObjectName = Annotated[str, Field(min_length=1, max_length=253), _object_check, _object_schema]

_sentence_check, _sentence_schema = ruled(
    NO_CONTROL_CHARACTERS,
    Rule(
        cel=r"self.matches(r'[^ ]')",
        message="must not be blank",
        holds=lambda text: text.strip(" ") != "",
    ),
)
Sentence = Annotated[str, Field(min_length=1, max_length=512), _sentence_check, _sentence_schema]
"""A sentence that a person writes for other people, on one line."""


MAX_LABELS = 8
_LABEL_NAME = r"[A-Za-z](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?"
_LABEL_VALUE = r"""[^"\\\x00-\x1f\x7f]*"""
_label_check, _label_schema = ruled(
    Rule(
        cel="",
        message="must not contain quotation marks, backslashes or control characters",
        holds=lambda text: re.fullmatch(_LABEL_VALUE, text) is not None,
    )
)
_labels_check, _labels_schema = ruled(
    Rule(
        cel="",  # a map's keys have no bound that the API server could estimate a cost from
        message="must have names such as team or costCenter: at most 63 letters, digits, '.', '_', "
        "'/' and '-', the first one a letter, the last one a letter or digit",
        holds=lambda labels: all(re.fullmatch(_LABEL_NAME, name) for name in labels),
    )
)
Labels = Annotated[
    dict[
        str,
        Annotated[
            str,
            Field(min_length=1, max_length=63, json_schema_extra={"pattern": f"^{_LABEL_VALUE}$"}),
            _label_check,
            _label_schema,
        ],
    ],
    Field(min_length=1, max_length=MAX_LABELS),
    _labels_check,
    _labels_schema,
]
"""Labels for bills, such as `{team: shop, costCenter: "4711"}`."""


class PolicyRef(SchemaModel):
    """A policy in the same namespace."""

    name: ObjectName = Field(
        description="Name of a BrokerBandwidthPolicy in the namespace of this object."
    )


# Moments: RFC 3339 with seconds and an offset, such as `2026-11-30T06:00:00Z`. Commands also take
# how long ago it was: `2h`.
#
# The schema does not use the format `date-time`: the API server would read it loosely (small
# letters, second 60), answer without an example, and accept a list instead of the text.


_DAYS = (
    r"(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|[12][0-9])"
)
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_MOMENT = rf"2[0-9][0-9][0-9]-(?:{_DAYS})T{_CLOCK}:[0-5][0-9](?:[.][0-9]{{1,9}})?(?:Z|[+-]{_CLOCK})"
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGO = re.compile(r"(\d+)([smhd])")
_YEAR = "int(self.substring(0, 4))"


def parse_moment(written: str) -> float:
    """Seconds since the epoch of a moment that its model has accepted."""
    return datetime.fromisoformat(written).timestamp()


def is_ago(text: str) -> bool:
    """Whether a text is how long ago it was, such as `2h`."""
    return _AGO.fullmatch(text) is not None


def moment(text: str, *, now_seconds: float) -> float:
    """`2026-11-21T11:00:00Z`, or `2h` for two hours ago, in seconds since the epoch.

    A time without a zone is UTC.
    """
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now_seconds - int(ago[1]) * _UNIT_SECONDS[ago[2]]
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidResource(
            f"{text!r} is not a time: write 2026-11-21T11:00:00Z, or 90s, 15m, 2h or 3d for how "
            "long ago."
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _is_a_day(written: str) -> bool:
    try:
        parse_moment(written)
    except ValueError:
        return False
    return True


_moment_check, _moment_schema = ruled(
    matching(
        _MOMENT,
        (
            "must be a date and time with seconds and an offset, such as 2026-11-30T06:00:00Z or "
            "2026-11-30T08:00:00+02:00"
        ),
    ),
    Rule(
        cel=f"!self.matches(r'^2[0-9][0-9][0-9]-02-29') || ({_YEAR} % 4 == 0 && ({_YEAR} % 100 "
        f"!= 0 || {_YEAR} % 400 == 0))",
        message="must be a day that exists: February has no 29th in that year",
        holds=_is_a_day,
    ),
)
Moment = Annotated[str, Field(min_length=1, max_length=40), _moment_check, _moment_schema]
"""A moment of a spec; it stays the text that was written."""
