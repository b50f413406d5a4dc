"""The statuses: what the last pass found and did, without numbers that change every second.

`summary` has the counts of `kubectl get`, because JSONPath cannot count.
"""

from typing import Annotated, Literal

from pydantic import Field

from tidegate.resources.policy import BrokerId
from tidegate.resources.rates import ExactRate
from tidegate.resources.schema import SchemaModel
from tidegate.resources.tiers import MAX_MEMBERS, TierLevel

# Conditions, in the shape of the Kubernetes API conventions. The status of each kind lists its own.


ConditionStatus = Literal["True", "False", "Unknown"]
Timestamp = Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"})]
Generation = Annotated[int, Field(ge=0, le=2**53 - 1, json_schema_extra={"format": "int64"})]
CamelCaseWord = Annotated[
    str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z][A-Za-z0-9]*$")
]
StatusText = Annotated[str, Field(max_length=1024)]
MAX_SHOWN_MEMBERS = 100
MAX_SHOWN_LEAVING = 100


class Condition(SchemaModel):
    """One aspect of an object's state."""

    type: CamelCaseWord = Field(description="What the condition is about, such as Ready.")
    status: ConditionStatus = Field(description="True, False or Unknown.")
    observed_generation: Generation | None = Field(
        default=None, description="metadata.generation of the spec that this speaks of."
    )
    last_transition_time: Timestamp = Field(description="When status last changed.")
    reason: CamelCaseWord = Field(description="Why, in one stable CamelCase word.")
    message: Annotated[str, Field(max_length=32768)] = Field(
        description="Why, in a sentence for people."
    )


BrokerPressure = Literal["Over", "Within", "Unknown"]
LevelState = Literal["Contract", "Stepping", "Throttled", "Relaxing"]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
ByteCount = Annotated[int, Field(ge=0, le=2**53 - 1, json_schema_extra={"format": "int64"})]
Skew = Annotated[str, Field(max_length=16, pattern=r"^[0-9]+\.[0-9]{2}$")]


class BrokerStatus(SchemaModel):
    """One broker against its limits."""

    id: BrokerId = Field(description="The broker's id.")
    egress_limit: ExactRate | None = Field(
        default=None, description="Limit out of the broker in force, in bytes per second."
    )
    ingress_limit: ExactRate | None = Field(
        default=None, description="Limit into the broker in force, in bytes per second."
    )
    pressure: BrokerPressure = Field(
        description="Over or Within its limits, or Unknown without a fresh reading."
    )
    since: Timestamp | None = Field(default=None, description="Since when.")


class LevelStatus(SchemaModel):
    """The state of all tiers of one level."""

    level: TierLevel = Field(description="The level.")
    state: LevelState = Field(
        description="Contract: everybody at their contract. Stepping: a contract was lowered and "
        "quotas follow in safe steps. Throttled: below the contract, because a broker is over its "
        "limit. Relaxing: on the way back to the contract."
    )
    since: Timestamp | None = Field(default=None, description="Since when.")
    because: StatusText | None = Field(
        default=None,
        description="What began it and since when, and what these brokers carry now; numbers alone "
        "are renewed once a minute.",
    )


class QuotaCounts(SchemaModel):
    """The quotas that this policy manages."""

    managed: Count = Field(description="Entities with a quota of ours.")
    in_sync: Count = Field(description="Of those, entities whose quota is what it should end at.")
    contended: Count = Field(
        description="Entities left alone, because another writer keeps changing them."
    )
    largest_leader_skew: Skew | None = Field(
        default=None,
        description="The worst ratio of permitted total to contract; 1.00 where leaders are even. "
        "Unset where no leader is known.",
    )


class LedgerStatus(SchemaModel):
    """The ledger that the policy has begun: what there must be, or it counts as lost."""

    cluster_id: Annotated[str, Field(max_length=128)] = Field(
        description="Id of the Kafka cluster that has it."
    )
    topic: Annotated[str, Field(max_length=249)] | None = Field(
        default=None, description="The topic that it is in. Unset where it is in ZooKeeper."
    )
    epoch: Annotated[int, Field(ge=1, le=2**53 - 1, json_schema_extra={"format": "int64"})] = Field(
        description="Epoch of the policy's claim in it. A ledger whose claim has a lower one, or "
        "that has none, counts as lost."
    )
    records: Count = Field(description="The ledger has at least so many records of this policy.")
    managed: Count | None = Field(
        default=None,
        description="quotas.managed when the records were counted. Where it differs now, an "
        "earlier version of Tidegate has reported since, and the count is not used.",
    )


class LeavingQuota(SchemaModel):
    """An entity with a quota that no contract names any more."""

    entity: StatusText = Field(description="User and client id that the quota is for.")
    restored_at: Timestamp = Field(
        description="When the quota from before Tidegate is restored, unless a member names the "
        "entity again before."
    )


class PolicySummary(SchemaModel):
    """The columns of kubectl get."""

    brokers: Count | None = Field(default=None, description="Live brokers.")
    over: Count | None = Field(
        default=None, description="Brokers over their limit. Unset where load is not measured."
    )
    over_shown: Annotated[str, Field(max_length=16)] | None = Field(
        default=None,
        description="The same for people: `?` stands for brokers whose load is not known.",
    )
    throttled: Count | None = Field(
        default=None, description="Levels below their contract now; the list levels has them."
    )
    unreadable_tiers: Count | None = Field(
        default=None,
        description="Tiers of this policy that cannot be read. Their quotas stay as they are, and "
        "their own condition Ready names the fault. Unset where there are none.",
    )


class RollupStatus(SchemaModel):
    """How far the usage tables are."""

    published_until: Timestamp | None = Field(
        default=None,
        description="Every window that ended by then is in the tables, unless Prometheus has "
        "nothing of it.",
    )
    waiting: Count = Field(description="Windows that are over and not in the tables yet.")
    failed: Count = Field(description="Of those, windows whose Job failed; each is tried again.")


class MovingStatus(SchemaModel):
    """Replicas that are being filled for one reason."""

    partitions: Count = Field(description="Partitions with such a replica.")
    bytes_left: ByteCount | None = Field(
        default=None,
        description="Bytes that are left, renewed once a minute. Unset while a size is not known.",
    )
    eta_seconds: Count | None = Field(
        default=None,
        description="Seconds that it still takes as things are, renewed once a minute. Unset "
        "while that is not known, or it never ends.",
    )
    bottleneck: StatusText | None = Field(
        default=None, description="The side of a broker's NIC that decides how long it takes."
    )


class ReplicationStatus(SchemaModel):
    """Replication under the same limit."""

    moving: MovingStatus | None = Field(
        default=None, description="Reassignments. Unset while nothing is reassigned."
    )
    recovering: MovingStatus | None = Field(
        default=None,
        description="Replicas that catch up without a reassignment. Unset while there are none, "
        "or recovery is Off.",
    )
    stalls: tuple[StatusText, ...] | None = Field(
        default=None,
        max_length=16,
        description="Sides of NICs whose rate never lets the moving partitions catch up: what it "
        "is, what it would have to be, and what of that Kafka counts for replicas in sync.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    leftovers: tuple[StatusText, ...] | None = Field(
        default=None,
        max_length=64,
        description="Throttles that somebody else left behind while nothing is reassigned.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    others: tuple[StatusText, ...] | None = Field(
        default=None,
        max_length=64,
        description="Throttles of somebody else where Tidegate would set its own; they stay.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    waiting_for: tuple[StatusText, ...] | None = Field(
        default=None,
        max_length=64,
        description="Brokers that are down and have a rate of Tidegate's still to be taken away.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    problem: StatusText | None = Field(
        default=None, description="Why throttles are not as they should be."
    )


class PolicyStatus(SchemaModel):
    """The operator's report on a policy. Rates are metrics, not status."""

    observed_generation: Generation | None = Field(
        default=None, description="metadata.generation of the spec that this status speaks of."
    )
    cluster_id: Annotated[str, Field(max_length=128)] | None = Field(
        default=None, description="Id of the Kafka cluster that answered."
    )
    conditions: tuple[Condition, ...] | None = Field(
        default=None,
        max_length=16,
        description="Ready on top, then Stalled (a person must act), ClusterReachable, "
        "MetricsFresh, QuotasInSync, Throttling and, where asked for, ReplicationCurrent and "
        "RollupsCurrent.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    brokers: tuple[BrokerStatus, ...] | None = Field(
        default=None,
        max_length=1000,
        description="Every live broker.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"]},
    )
    levels: tuple[LevelStatus, ...] | None = Field(
        default=None,
        max_length=4,
        description="Every level that has tiers.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["level"],
        },
    )
    quotas: QuotaCounts | None = Field(
        default=None, description="The quotas that this policy manages."
    )
    ledger: LedgerStatus | None = Field(
        default=None, description="The ledger that this policy has begun."
    )
    leaving: tuple[LeavingQuota, ...] | None = Field(
        default=None,
        max_length=MAX_SHOWN_LEAVING,
        description=f"Quotas that no contract names any more, those that are restored first on "
        f"top, {MAX_SHOWN_LEAVING} at most. Unset where there are none.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    rollup: RollupStatus | None = Field(
        default=None, description="How far the usage tables are, where the policy asks for them."
    )
    replication: ReplicationStatus | None = Field(
        default=None, description="Replication, where the policy asks for it."
    )
    summary: PolicySummary | None = Field(default=None, description="The columns of kubectl get.")


# The status of BusinessTier: each member's quota now, per broker and in total, and why.


class QuotaInForce(SchemaModel):
    """A native quota on each broker; a key that is absent is not managed."""

    fetch: ExactRate | None = Field(
        default=None, description="Bytes per second fetched from one broker."
    )
    produce: ExactRate | None = Field(
        default=None, description="Bytes per second produced to one broker."
    )
    request_percentage: ExactRate | None = Field(
        default=None, description="Share of one broker thread's time in percent."
    )
    controller_mutations_per_second: ExactRate | None = Field(
        default=None, description="Partition mutations per second."
    )


class TotalRates(SchemaModel):
    """Rates over the whole cluster."""

    fetch: ExactRate | None = Field(
        default=None, description="Bytes per second fetched from all brokers together."
    )
    produce: ExactRate | None = Field(
        default=None, description="Bytes per second produced to all brokers together."
    )


class AppliedRates(SchemaModel):
    """What replaces a contract, in the contract's own form."""

    fetch: ExactRate | None = Field(
        default=None, description="Bytes per second fetched, counted as the contract counts them."
    )
    produce: ExactRate | None = Field(
        default=None, description="Bytes per second produced, counted as the contract counts them."
    )


class Recommendation(SchemaModel):
    """The contract that fits a member's usage."""

    fetch: ExactRate | None = Field(
        default=None, description="Recommended rate in the contract's own form; unset = none."
    )
    produce: ExactRate | None = Field(
        default=None, description="Recommended rate in the contract's own form; unset = none."
    )
    applied: AppliedRates | None = Field(
        default=None,
        description="The part of it that replaces the contract, in the contract's own form, where "
        "the policy allows it.",
    )
    reason: CamelCaseWord = Field(description="Why it is recommended, or why nothing is.")
    message: StatusText | None = Field(
        default=None, description="The same with numbers, in a sentence for people."
    )


class MemberStatus(SchemaModel):
    """One member: its leaders, its quota, and how far that is from its promise."""

    name: Annotated[str, Field(min_length=1, max_length=128)] = Field(
        description="Name of the member in the spec."
    )
    leaders: Count | None = Field(
        default=None,
        description="Partitions of its topics that have a leader. Unset for a member without "
        "topics.",
    )
    leader_skew: Skew | None = Field(
        default=None,
        description="Permitted total over contract under method Max; 1.00 where every leading "
        "broker leads equally many.",
    )
    quota: QuotaInForce | None = Field(default=None, description="Quota in force on each broker.")
    target: QuotaInForce | None = Field(
        default=None, description="Quota it is on its way to, where that differs."
    )
    contract_total: TotalRates | None = Field(
        default=None, description="What the contract promises over the whole cluster."
    )
    permitted_total: TotalRates | None = Field(
        default=None,
        description="What the target (the quota, where no target is shown) permits over the whole "
        "cluster: it times the brokers that lead.",
    )
    state: CamelCaseWord = Field(
        description="Contract, Stepping, Throttled, Relaxing, or what keeps the member from it, "
        "such as TopicNotFound."
    )
    override: Annotated[str, Field(max_length=512)] | None = Field(
        default=None,
        description="The QuotaOverride that replaces its contract or keeps it from being "
        "throttled: namespace/name.",
    )
    message: StatusText | None = Field(default=None, description="Why, in a sentence for people.")
    contended_until: Timestamp | None = Field(
        default=None,
        description="Until when its quota is left alone, because another writer keeps changing it. "
        "Set while the state is Contended.",
    )
    recommended: Recommendation | None = Field(
        default=None,
        description="The contract that fits its usage. Unset where there are no usage tables of "
        "it.",
    )


class TierStatusSummary(SchemaModel):
    """The columns of kubectl get."""

    members: Count | None = Field(
        default=None, description="Members of the spec that the last pass saw."
    )
    state: CamelCaseWord | None = Field(
        default=None,
        description="The state that most needs attention among the members; Contract where all "
        "are at their contract.",
    )


class TierStatus(SchemaModel):
    """The operator's report on a tier. Measured rates are metrics, not status."""

    observed_generation: Generation | None = Field(
        default=None, description="metadata.generation of the spec that this status speaks of."
    )
    conditions: tuple[Condition, ...] | None = Field(
        default=None,
        max_length=16,
        description="Ready on top, then Stalled (a person must act) and Conflict.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    members: tuple[MemberStatus, ...] | None = Field(
        default=None,
        max_length=MAX_MEMBERS,
        description="Every member of the spec.",
        # One writer writes the list as a whole. A map would have the server track the owner of
        # every field of every member: a third of the object's size and of the time of each write.
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    summary: TierStatusSummary | None = Field(
        default=None, description="The columns of kubectl get."
    )


# The status of QuotaOverride: whether it is in force, for whom, since when and until when.


OverrideState = Literal["Pending", "Active", "Expired"]
_ObjectKey = Annotated[str, Field(max_length=512)]
_Name = Annotated[str, Field(max_length=256)]


class OverriddenMember(SchemaModel):
    """One member that an override is in force for."""

    tier: _ObjectKey = Field(description="The tier of the member, as namespace/name.")
    member: _Name = Field(description="Name of the member within the tier.")
    user: _Name | None = Field(default=None, description="User of the member.")
    client_id: _Name | None = Field(default=None, description="Client id of the member.")


class OverrideStatusSummary(SchemaModel):
    """The columns of kubectl get."""

    target: Annotated[str, Field(max_length=1024)] | None = Field(
        default=None, description="Whom it is for, such as 'user=reports' or 'L2'."
    )
    members: Count | None = Field(default=None, description="How many members it is in force for.")


class OverrideStatus(SchemaModel):
    """The operator's report on an override."""

    observed_generation: Generation | None = Field(
        default=None, description="metadata.generation of the spec that this status speaks of."
    )
    conditions: tuple[Condition, ...] | None = Field(
        default=None,
        max_length=16,
        description="Ready: whether it is in force for everybody it names. Stalled: whether a "
        "person must act.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    state: OverrideState | None = Field(
        default=None,
        description="Pending: not in force, and Ready says why. Active: in force for at least one "
        "member. Expired: over.",
    )
    members: tuple[OverriddenMember, ...] | None = Field(
        default=None,
        max_length=MAX_SHOWN_MEMBERS,
        description=f"The members that it is in force for, the first {MAX_SHOWN_MEMBERS} of them.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    since: Timestamp | None = Field(
        default=None, description="Since when it has been in force; stays when it is over."
    )
    until: Timestamp | None = Field(default=None, description="When it ends, in UTC.")
    summary: OverrideStatusSummary | None = Field(
        default=None, description="The columns of kubectl get."
    )
