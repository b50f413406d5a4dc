"""The spec and status of DelayQueue: messages that are sent on to their target after a delay.

The operator, not the schema, checks what needs other objects or the namespace: whether the policy
lets the queue in, whether the prefix and its topics are free, and the default prefix's own topics.
"""

import re
from typing import Annotated, Literal

from pydantic import Field

from tidegate.queues.names import QueueNames
from tidegate.resources.access import NamespaceName
from tidegate.resources.authentication import (
    CERTIFICATE_NEEDS_TLS,
    TOKENS_NEED_TLS,
    KafkaAuthentication,
    Tls,
    secret_names,
)
from tidegate.resources.fields import TOPIC_PATTERN, ObjectName, matching, ruled
from tidegate.resources.rates import ByteRate
from tidegate.resources.schema import Rule, SchemaModel
from tidegate.resources.status import ByteCount, Condition, Count, Generation

MAX_DELAYS = 64
MAX_TOPICS = 512
MAX_DELAY_SECONDS = 31_536_000
MAX_ALLOWED = 64
MAX_SHOWN_FORWARDERS = 100
MAX_QUEUE_NAME_LENGTH = 63
_GRACE_SECONDS = 86_400
# with the longest delay and number behind it, it is still a topic's name
MAX_PREFIX_LENGTH = 200

_prefix_check, _prefix_schema = ruled(
    matching(
        r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?",
        "must consist of letters, digits, '.', '_' and '-', and begin and end with a letter or "
        "digit",
    )
)
TopicPrefix = Annotated[
    str, Field(min_length=1, max_length=MAX_PREFIX_LENGTH), _prefix_check, _prefix_schema
]

_NOT_INTERNAL = Rule(
    cel="!self.startsWith('__')",
    message="must not begin with '__': internal topics are never a target",
    holds=lambda text: not text.startswith("__"),
)
_target_check, _target_schema = ruled(
    matching(r"[A-Za-z0-9._-]+", "must be a topic's name, of letters, digits, '.', '_' and '-'"),
    Rule(
        cel="!(self in ['.', '..'])",
        message="must not be '.' or '..': Kafka has no such topics",
        holds=lambda text: text not in (".", ".."),
    ),
    _NOT_INTERNAL,
)
TargetTopic = Annotated[str, Field(min_length=1, max_length=249), _target_check, _target_schema]

_allowed_check, _allowed_schema = ruled(
    Rule(
        cel="",
        message="must be a topic name (letters, digits, '.', '_', '-'), or a prefix followed by "
        "one '*'",
        holds=lambda text: re.fullmatch(r"[A-Za-z0-9._-]*[*]?", text) is not None,
    ),
    _NOT_INTERNAL,
)
AllowedTarget = Annotated[
    str,
    Field(min_length=1, max_length=249, json_schema_extra={"pattern": TOPIC_PATTERN}),
    _allowed_check,
    _allowed_schema,
]

_quantity_check, _quantity_schema = ruled(
    matching(
        r"(?:[1-9][0-9]{0,8}|0[.][0-9]{0,2}[1-9]|[1-9][0-9]{0,8}[.][0-9]{1,3})"
        r"(?:m|k|M|G|Ki|Mi|Gi)?",
        "must be a quantity above 0, such as 500m, 2 or 512Mi",
    )
)
Quantity = Annotated[str, Field(min_length=1, max_length=16), _quantity_check, _quantity_schema]


class QueuePolicyRef(SchemaModel):
    """The policy of the Kafka cluster that has the queue's topics."""

    name: ObjectName = Field(description="Name of a BrokerBandwidthPolicy.")
    namespace: NamespaceName | None = Field(
        default=None,
        description="Its namespace; a policy in another namespace must admit this one "
        "(spec.allowedTiers). Unset means that of this object.",
    )


class Delay(SchemaModel):
    """One level: messages that wait equally long."""

    seconds: Annotated[int, Field(ge=1, le=MAX_DELAY_SECONDS)] = Field(
        description="How long a message waits, counted from the time at which the broker "
        "appended it."
    )
    topics: Annotated[int, Field(ge=1, le=128)] = Field(
        default=1,
        description="Number of topics of this delay, each with one partition. Order is kept "
        "within a topic. Unset means 1.",
    )


class QueueTarget(SchemaModel):
    """Where messages may be sent when they are due."""

    allowed: tuple[AllowedTarget, ...] = Field(
        min_length=1,
        max_length=MAX_ALLOWED,
        description="Topics that messages may name in the header tidegate-target: whole names, or "
        "prefixes ending in *. Anyone who may write to the queue may write to these topics. "
        "Internal topics and topics of the queue itself are never a target.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    default: TargetTopic = Field(
        description="Topic for messages without that header. One of those allowed."
    )

    rules = (
        Rule(
            cel="self.allowed.exists(a, a == self.default || (a.endsWith('*') && "
            "self.default.startsWith(a.substring(0, a.size() - 1))))",
            message="default must be one of those that allowed has",
            field_path=".default",
            holds=lambda target: any(matches(one, target.default) for one in target.allowed),
        ),
        Rule(
            cel="",
            message="every allowed target may appear once only",
            field_path=".allowed",
            holds=lambda target: len(set(target.allowed)) == len(target.allowed),
        ),
    )


def matches(pattern: str, topic: str) -> bool:
    """Whether a pattern of `allowed` covers the topic."""
    return topic.startswith(pattern[:-1]) if pattern.endswith("*") else topic == pattern


class ResourceAmounts(SchemaModel):
    """Amounts of processor and memory."""

    cpu: Quantity | None = Field(default=None, description="Processor, such as 500m.")
    memory: Quantity | None = Field(default=None, description="Memory, such as 512Mi.")


class ForwarderResources(SchemaModel):
    """What a forwarder's container requests and may use."""

    requests: ResourceAmounts | None = Field(
        default=None, description="Requests. Unset means none."
    )
    limits: ResourceAmounts | None = Field(default=None, description="Limits. Unset means none.")


class Forwarders(SchemaModel):
    """The Pods that send messages on."""

    replicas: Annotated[int, Field(ge=1, le=100)] = Field(
        default=2, description="How many run and share the topics. Unset means 2."
    )
    resources: ForwarderResources | None = Field(
        default=None,
        description="Resources of each Pod. Unset means requests of 100m and 128Mi, and a memory "
        "limit of 512Mi.",
    )


class LevelTopics(SchemaModel):
    """Settings of the topics that the operator creates."""

    replication_factor: Annotated[int, Field(ge=1, le=7)] = Field(
        default=3, description="Replicas of each topic, when it is created. Unset means 3."
    )
    grace_seconds: Annotated[int, Field(ge=60, le=MAX_DELAY_SECONDS)] = Field(
        default=_GRACE_SECONDS,
        description="How long a message is kept after it is due. Longer outages of all "
        "forwarders lose messages. Unset means 86400.",
    )


class Shift(SchemaModel):
    """What happens to due messages while brokers have no room."""

    while_over_limit: Literal["Hold"] = Field(
        default="Hold",
        description="Hold: due messages wait while the egress of a broker is over its limit, or is "
        "throttled because it was, if that broker leads a partition of a topic that they may be "
        "sent to. Unset means Hold.",
    )
    latest_seconds: Annotated[int, Field(ge=60, le=MAX_DELAY_SECONDS)] = Field(
        description="How long after its due time a message is sent at the latest. Less than "
        "topics.graceSeconds."
    )
    rate: ByteRate = Field(
        description="Rate at which all forwarders together send what has waited, in bytes per "
        "second. Well above what the queue usually sends, or it stays late."
    )


# what `QueueNames.is_own` says, behind the prefix
_OWN_TOPIC = "^([1-9][0-9]{0,8}[.](0|[1-9][0-9]{0,3})|control|dead|cancelled)$"


def _fixed(field: str) -> Rule:
    """A rule of updates, which a model cannot check: it sees one object."""
    return Rule(
        cel=f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || "
        f"self.{field} == oldSelf.{field})",
        message=f"{field} cannot be changed, because the topics would stay behind with their "
        "messages: create another DelayQueue and delete this one when nothing waits",
        reason="FieldValueForbidden",
        field_path=f".{field}",
        holds=lambda _: True,
    )


class DelayQueueSpec(SchemaModel):
    """One queue of messages that wait."""

    policy_ref: QueuePolicyRef = Field(
        description="The policy, and so the Kafka cluster, that the queue belongs to."
    )
    authentication: KafkaAuthentication | None = Field(
        default=None,
        description="Login of the forwarders to the brokers, never the policy's: they are a "
        "client like others. Its Secret is in the namespace of this object. Unset means no login, "
        "which only a cluster without logins accepts.",
    )
    tls: Tls | None = Field(
        default=None,
        description="TLS of the forwarders to the brokers, with Secrets in the namespace of this "
        "object. Unset means plain text.",
    )
    topic_prefix: TopicPrefix | None = Field(
        default=None,
        description="First part of the names of all topics: PREFIX.SECONDS.NUMBER. It cannot be "
        "changed. Unset means NAMESPACE.NAME of this object.",
    )
    guarantee: Literal["AtLeastOnce", "ExactlyOnce"] = Field(
        description="AtLeastOnce: no message is lost, and some arrive twice after a failure. "
        "ExactlyOnce: none twice either, for consumers that read committed messages only; slower."
    )
    delays: tuple[Delay, ...] = Field(
        min_length=1,
        max_length=MAX_DELAYS,
        description="The delays that messages may choose. One that is removed is deleted when its "
        "last message has been sent on.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["seconds"],
        },
    )
    target: QueueTarget = Field(description="Where messages may be sent when they are due.")
    forwarders: Forwarders = Field(
        default=Forwarders(),
        description="The Pods that send messages on. Unset means the defaults of its fields.",
    )
    topics: LevelTopics = Field(
        default=LevelTopics(),
        description="Settings of the queue's topics. Unset means the defaults of its fields.",
    )
    cancellable: bool = Field(
        default=False,
        description="Creates the topic PREFIX.cancelled: a message with the header tidegate-id is "
        "not sent if its id is written there, as the key of a record with any value, at least a "
        "second before the message is due. Unset means false.",
    )
    arbitrary_delays: bool = Field(
        default=False,
        description="A message with the header tidegate-due, in milliseconds since 1970, is sent "
        "when that time has come, never earlier and later by less than the shortest of delays. "
        "Until then it waits in one topic after the other, whose delays fit. Unset means false: "
        "the header has no meaning.",
    )
    shift: Shift | None = Field(
        default=None,
        description="Lets due messages wait while brokers are over their limit. Unset means that "
        "they never wait longer than their delay.",
    )
    deletion_policy: Literal["Drain", "Keep"] = Field(
        default="Drain",
        description="What happens when this object is deleted. Drain: it stays until the last "
        "message has been sent on, then its topics are deleted. Keep: its topics and messages "
        "stay, and nothing sends them on. Unset means Drain.",
    )

    rules = (
        CERTIFICATE_NEEDS_TLS,
        TOKENS_NEED_TLS,
        Rule(
            cel="!has(self.authentication) || !has(self.authentication.roleArn)",
            message="authentication.roleArn is for policies: give forwarders an accessKey in a "
            "Secret",
            reason="FieldValueForbidden",
            field_path=".authentication",
            holds=lambda spec: spec.authentication is None or spec.authentication.role_arn is None,
        ),
        _fixed("policyRef"),
        _fixed("topicPrefix"),
        Rule(
            cel="!has(self.topicPrefix) || !self.target.default.startsWith(self.topicPrefix + '.') "
            "|| !self.target.default.substring(self.topicPrefix.size() + 1)"
            f".matches('{_OWN_TOPIC}')",
            message="target.default must not be a topic of the queue itself",
            field_path=".target",
            holds=lambda spec: (
                spec.topic_prefix is None
                or not QueueNames(spec.topic_prefix).is_own(spec.target.default)
            ),
        ),
        Rule(
            cel="self.delays.map(d, has(d.topics) ? d.topics : 1).sum() <= " + str(MAX_TOPICS),
            message=f"all delays together may have at most {MAX_TOPICS} topics",
            field_path=".delays",
            holds=lambda spec: sum(delay.topics for delay in spec.delays) <= MAX_TOPICS,
        ),
        Rule(
            cel="!has(self.shift) || self.shift.latestSeconds < (has(self.topics) && "
            f"has(self.topics.graceSeconds) ? self.topics.graceSeconds : {_GRACE_SECONDS})",
            message="shift.latestSeconds must be less than topics.graceSeconds, or Kafka deletes "
            "messages that still wait",
            field_path=".shift",
            holds=lambda spec: (
                spec.shift is None or spec.shift.latest_seconds < spec.topics.grace_seconds
            ),
        ),
        Rule(
            cel="",
            message="every delay may appear once only",
            field_path=".delays",
            holds=lambda spec: len({delay.seconds for delay in spec.delays}) == len(spec.delays),
        ),
    )

    @property
    def secret_names(self) -> frozenset[str]:
        """The Secrets that the forwarders need."""
        return secret_names(self.tls, self.authentication)


# --- status ---------------------------------------------------------------------------------------


class DelayStatus(SchemaModel):
    """One delay as it was at the last look."""

    seconds: Annotated[int, Field(ge=0, le=2**53 - 1, json_schema_extra={"format": "int64"})] = (
        Field(description="The delay.")
    )
    topics: Count = Field(description="Topics that exist for it.")
    waiting: ByteCount | None = Field(
        default=None, description="Messages that were not sent on yet. Unset if unknown."
    )
    oldest_late_seconds: Count | None = Field(
        default=None,
        description="How long the oldest of them has been due. 0 if none is due. Unset if unknown.",
    )
    per_second: Count | None = Field(
        default=None,
        description="Messages sent on per second between the last two looks. Unset if unknown.",
    )


class ForwarderStatus(SchemaModel):
    """One forwarder."""

    name: Annotated[str, Field(max_length=253)] = Field(description="Name of the forwarder.")
    topics: Count = Field(description="Topics that it was the last to forward.")


class QueueSummary(SchemaModel):
    """The columns of kubectl get."""

    waiting: ByteCount | None = Field(
        default=None, description="Messages of all delays that were not sent on yet."
    )
    oldest_late_seconds: Count | None = Field(
        default=None, description="How long the oldest of them has been due."
    )


class DelayQueueStatus(SchemaModel):
    """What the last look found."""

    observed_generation: Generation | None = Field(
        default=None, description="The generation that this status was computed from."
    )
    conditions: tuple[Condition, ...] | None = Field(
        default=None,
        max_length=8,
        description="Ready: messages are sent on when they are due. Stalled: a person must act.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    topic_prefix: Annotated[str, Field(max_length=249)] | None = Field(
        default=None, description="First part of the names of its topics."
    )
    delays: tuple[DelayStatus, ...] | None = Field(
        default=None,
        max_length=2 * MAX_DELAYS,
        description="Every delay that has topics, also those that are drained.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    forwarders: tuple[ForwarderStatus, ...] | None = Field(
        default=None,
        max_length=MAX_SHOWN_FORWARDERS,
        description="The forwarders, with the number of topics of each.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    dead: ByteCount | None = Field(
        default=None,
        description="Messages in the topic PREFIX.dead: their target was refused or missing. With "
        "ExactlyOnce, an upper bound: ends of transactions are counted as well.",
    )
    summary: QueueSummary | None = Field(default=None, description="The columns of kubectl get.")
