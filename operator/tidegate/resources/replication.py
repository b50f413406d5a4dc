"""spec.replication and spec.background: what brokers may move of their own beside the clients."""

from typing import Literal

from pydantic import Field

from tidegate.resources.rates import ByteRate, cel_at_most
from tidegate.resources.schema import Rule, SchemaModel

ReassignmentMode = Literal["Follow", "Fixed", "Off"]
RecoveryMode = Literal["Follow", "Off"]
ReplicationPriority = Literal["BelowL3", "L3", "L2", "L1"]
DEFAULT_MINIMUM_RATE = 1024 * 1024

_MINIMUM = Field(
    default=None,
    description="Bytes per second that replication may always use, even over the limit. Must "
    "exceed the rate at which the partitions receive new data, or they never catch "
    "up. Unset means 1Mi.",
)


class ReassignmentRates(SchemaModel):
    """Bounds of the rate of reassignments, per broker and direction."""

    min: ByteRate | None = _MINIMUM
    max: ByteRate | None = Field(
        default=None,
        description="Upper bound in bytes per second for the replicas being filled. With mode "
        "Fixed, it is Kafka's rate itself, which also counts in-sync replicas. "
        "Unset means no bound except the broker's limit.",
    )

    rules = (
        Rule(
            cel=f"!has(self.min) || !has(self.max) || {cel_at_most('self.min', 'self.max')}",
            message="min must not be above max",
            field_path=".min",
            holds=lambda rate: rate.min is None or rate.max is None or rate.min <= rate.max,
        ),
    )


class RecoveryRates(SchemaModel):
    """Bounds of the rate of recovery, per broker and direction."""

    min: ByteRate | None = _MINIMUM


_PRIORITY_NEEDS_FOLLOW = Rule(
    cel="!has(self.priority) || self.mode == 'Follow'",
    message="priority is used with mode Follow only: other modes ignore the load",
    reason="FieldValueForbidden",
    field_path=".priority",
    holds=lambda given: given.priority is None or given.mode == "Follow",
)


class Reassignments(SchemaModel):
    """How fast partitions are moved, no matter who moves them."""

    mode: ReassignmentMode = Field(
        description="Follow: use what clients leave of each broker's limit. Fixed: always "
        "rate.max. Off: Tidegate sets no throttle. Required; there is no default."
    )
    priority: ReplicationPriority | None = Field(
        default=None,
        description="Which clients are throttled for it. BelowL3: none, and while any level is "
        "throttled it gets rate.min. L3, L2, L1: levels below this one are "
        "throttled first, and it gets rate.min only while a level above this one "
        "is throttled. Unset means BelowL3.",
    )
    rate: ReassignmentRates | None = Field(
        default=None, description="Bounds of the rate. Unset means the defaults of its fields."
    )

    rules = (
        _PRIORITY_NEEDS_FOLLOW,
        Rule(
            cel="self.mode != 'Fixed' || (has(self.rate) && has(self.rate.max))",
            message="rate.max is required with mode Fixed: it is the rate",
            reason="FieldValueRequired",
            field_path=".rate",
            holds=lambda given: (
                given.mode != "Fixed" or (given.rate is not None and given.rate.max is not None)
            ),
        ),
    )


class Recovery(SchemaModel):
    """How fast brokers catch up that come back."""

    mode: RecoveryMode = Field(
        description="Follow: use what clients of this priority and above leave of each "
        "broker's limit. Off: Tidegate sets no throttle. Required; there is no "
        "default."
    )
    priority: ReplicationPriority | None = Field(
        default=None,
        description="Which clients are throttled for it, as for reassignments. Unset means L1: "
        "L3 and L2 are throttled first, because under-replicated partitions matter "
        "more.",
    )
    rate: RecoveryRates | None = Field(
        default=None, description="Bounds of the rate. Unset means the defaults of its fields."
    )

    rules = (_PRIORITY_NEEDS_FOLLOW,)


class BackgroundRates(SchemaModel):
    """Bounds of the rate of tiered storage, per broker."""

    min: ByteRate | None = Field(
        default=None,
        description="Bytes per second that it may always use, even over the limit. Kafka counts "
        "each segment at once, so it holds no rate below a segment in "
        "remote.log.manager.copy.quota.window.num seconds. Unset means 1Mi.",
    )
    max: ByteRate | None = Field(
        default=None,
        description="Upper bound in bytes per second; with mode Fixed the rate itself. Unset "
        "means no bound except the broker's limit.",
    )

    rules = ReassignmentRates.rules


class RemoteTraffic(SchemaModel):
    """How fast brokers with tiered storage exchange segments with it."""

    mode: ReassignmentMode = Field(
        description="Follow: use what clients and replication leave of each broker's limit. "
        "Fixed: always rate.max. Off: Tidegate sets no rate, and puts back the one from before. "
        "Required; there is no default."
    )
    priority: ReplicationPriority | None = Field(
        default=None,
        description="Which clients are throttled for it, as for reassignments. Unset means "
        "BelowL3.",
    )
    rate: BackgroundRates | None = Field(
        default=None, description="Bounds of the rate. Unset means the defaults of its fields."
    )

    rules = Reassignments.rules


class LogDirsRate(SchemaModel):
    """The rate of moves between the log directories of one broker."""

    max: ByteRate = Field(description="Bytes per second.")


class LogDirs(SchemaModel):
    """How fast replicas move from one log directory of a broker to another."""

    mode: Literal["Fixed", "Off"] = Field(
        description="Fixed: always rate.max. Off: Tidegate sets no rate, and puts back the one "
        "from before. There is no Follow, because these bytes pass no NIC. Required; there is no "
        "default."
    )
    rate: LogDirsRate | None = Field(
        default=None, description="The rate. Required with mode Fixed, and unset otherwise."
    )

    rules = (
        Rule(
            cel="(self.mode == 'Fixed') == has(self.rate)",
            message="rate is required with mode Fixed, and belongs to no other mode",
            reason="FieldValueRequired",
            field_path=".rate",
            holds=lambda given: (given.mode == "Fixed") == (given.rate is not None),
        ),
    )


class Background(SchemaModel):
    """Rates of brokers' own traffic that Tidegate sets, and puts back as they were."""

    remote_copy: RemoteTraffic | None = Field(
        default=None,
        description="What brokers copy to tiered storage. Unset means mode Off.",
    )
    remote_fetch: RemoteTraffic | None = Field(
        default=None,
        description="What brokers fetch from tiered storage. Unset means mode Off.",
    )
    log_dirs: LogDirs | None = Field(
        default=None,
        description="Moves between the log directories of a broker. Unset means mode Off.",
    )

    rules = (
        Rule(
            cel="has(self.remoteCopy) || has(self.remoteFetch) || has(self.logDirs)",
            message="must have at least one of remoteCopy, remoteFetch and logDirs",
            holds=lambda given: (
                given.remote_copy is not None
                or given.remote_fetch is not None
                or given.log_dirs is not None
            ),
        ),
    )

    @property
    def follows(self) -> bool:
        """Whether any of it depends on load and limits."""
        return any(
            one is not None and one.mode == "Follow"
            for one in (self.remote_copy, self.remote_fetch)
        )

    @property
    def is_remote(self) -> bool:
        """Whether any rate is one of tiered storage, so that its bytes show whether it holds."""
        return any(
            one is not None and one.mode != "Off" for one in (self.remote_copy, self.remote_fetch)
        )


class Replication(SchemaModel):
    """Replication throttles that Tidegate sets on brokers and topics, and takes away again."""

    reassignments: Reassignments | None = Field(
        default=None,
        description="Partitions moved by kafka-reassign-partitions, Cruise Control or Strimzi. "
        "Unset means mode Off.",
    )
    recovery: Recovery | None = Field(
        default=None,
        description="Out-of-sync replicas that catch up without a reassignment. Unset means "
        "mode Off.",
    )
    clean_up_leftovers: bool | None = Field(
        default=None,
        description="true: remove throttles that another tool left behind once no partition "
        "has been reassigned for five minutes; lists with * stay. Unset means "
        "false, and they are only reported.",
    )

    rules = (
        Rule(
            cel="has(self.reassignments) || has(self.recovery) || has(self.cleanUpLeftovers)",
            message="must have at least one of reassignments, recovery and cleanUpLeftovers",
            holds=lambda given: (
                given.reassignments is not None
                or given.recovery is not None
                or given.clean_up_leftovers is not None
            ),
        ),
    )

    @property
    def follows(self) -> bool:
        """Whether any of it depends on load and limits."""
        return any(
            one is not None and one.mode == "Follow" for one in (self.reassignments, self.recovery)
        )
