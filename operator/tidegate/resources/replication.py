"""spec.replication: what replication may use of every NIC beside the clients."""

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
    description="Bytes per second that replication may always use, even over the limit. It has to "
    "be above what the partitions receive meanwhile, or they never catch up. Unset means 1Mi.",
)


class ReassignmentRates(SchemaModel):
    """Bounds of the rate of reassignments, per broker and direction."""

    min: ByteRate | None = _MINIMUM
    max: ByteRate | None = Field(
        default=None,
        description="Bytes per second that the replicas being filled never use more of; with mode "
        "Fixed Kafka's rate itself, in which it counts replicas in sync too. Unset means no bound, "
        "but the limit.",
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
    message="priority is used with mode Follow only: another mode does not look at the load",
    reason="FieldValueForbidden",
    field_path=".priority",
    holds=lambda given: given.priority is None or given.mode == "Follow",
)


class Reassignments(SchemaModel):
    """How fast partitions are moved, whoever moves them."""

    mode: ReassignmentMode = Field(
        description="Follow: what clients leave of each broker's limit. Fixed: always rate.max. "
        "Off: Tidegate sets no throttle. There is no default; choose."
    )
    priority: ReplicationPriority | None = Field(
        default=None,
        description="Which clients give way to it. BelowL3: none, and while a level is throttled "
        "it has rate.min. L3, L2, L1: levels below this one are throttled first, and it has "
        "rate.min only while a level above this one is throttled. Unset means BelowL3.",
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
        description="Follow: what clients of this priority and above leave of each broker's limit. "
        "Off: Tidegate sets no throttle. There is no default; choose."
    )
    priority: ReplicationPriority | None = Field(
        default=None,
        description="Which clients give way to it, as for reassignments. Unset means L1: L3 and L2 "
        "are throttled first, because partitions with too few replicas come before them.",
    )
    rate: RecoveryRates | None = Field(
        default=None, description="Bounds of the rate. Unset means the defaults of its fields."
    )

    rules = (_PRIORITY_NEEDS_FOLLOW,)


class Replication(SchemaModel):
    """Replication throttles that Tidegate sets on brokers and topics, and takes away again."""

    reassignments: Reassignments | None = Field(
        default=None,
        description="Partitions that kafka-reassign-partitions, Cruise Control or Strimzi move. "
        "Unset means mode Off.",
    )
    recovery: Recovery | None = Field(
        default=None,
        description="Replicas out of sync that nobody moves. Unset means mode Off.",
    )
    clean_up_leftovers: bool | None = Field(
        default=None,
        description="true: throttles that somebody else left behind are removed when no partition "
        "has been reassigned for five minutes; a list with * stays. Unset: false, and they are "
        "only shown.",
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
