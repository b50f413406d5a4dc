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

    type: CamelCaseWord = Field(description="Type of the condition, such as Ready.")
    status: ConditionStatus = Field(description="True, False or Unknown.")
    observed_generation: Generation | None = Field(
        default=None, description="The generation that this condition was computed from."
    )
    last_transition_time: Timestamp = Field(description="When status last changed.")
    reason: CamelCaseWord = Field(description="The reason, as one stable CamelCase word.")
    message: Annotated[str, Field(max_length=32768)] = Field(
        description="The reason, as a sentence for people."
    )


BrokerPressure = Literal["Over", "Within", "Unknown"]
LevelState = Literal["Contract", "Stepping", "Throttled", "Relaxing"]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
ByteCount = Annotated[int, Field(ge=0, le=2**53 - 1, json_schema_extra={"format": "int64"})]
FetchBy = Literal["Leaders", "Racks", "Measured"]
Skew = Annotated[str, Field(max_length=16, pattern=r"^[0-9]+\.[0-9]{2}$")]


class BrokerStatus(SchemaModel):
    """One broker against its limits."""

    id: BrokerId = Field(description="The broker's id.")
    egress_limit: ExactRate | None = Field(
        default=None,
        description="Limit in force for traffic leaving the broker, in bytes per second.",
    )
    ingress_limit: ExactRate | None = Field(
        default=None,
        description="Limit in force for traffic entering the broker, in bytes per second.",
    )
    combined_limit: ExactRate | None = Field(
        default=None,
        description="Limit in force for traffic in both directions together, in bytes per second.",
    )
    pressure: BrokerPressure = Field(
        description="Over or Within its limits, or Unknown without a fresh reading."
    )
    since: Timestamp | None = Field(default=None, description="Since when.")
    interfaces: tuple[Annotated[str, Field(max_length=64)], ...] | None = Field(
        default=None,
        max_length=32,
        description="The network interfaces that make up its NIC. Unset if the source of "
        "readings has none, or if it is unknown which of them are physical.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    direct_since: Timestamp | None = Field(
        default=None,
        description="Since when it is read directly from its exporter, as metrics.direct says. "
        "Unset if Prometheus alone is read.",
    )


class LevelStatus(SchemaModel):
    """The state of all tiers of one level."""

    level: TierLevel = Field(description="The level.")
    state: LevelState = Field(
        description="Contract: all members are at their contracted rates. Stepping: a contract "
        "was lowered, and quotas follow in safe steps. Throttled: below the "
        "contract, because a broker is over its limit. Relaxing: recovering, raised "
        "step by step to the contract."
    )
    since: Timestamp | None = Field(default=None, description="Since when.")
    because: StatusText | None = Field(
        default=None,
        description="What started it and when, and the current load of these brokers; numbers "
        "alone are refreshed once a minute.",
    )


PercentOfContract = Annotated[int, Field(ge=1, le=100)]


class CalendarStatus(SchemaModel):
    """What the policy's calendar says of one level."""

    level: TierLevel = Field(description="The level.")
    percent: PercentOfContract = Field(
        description="Percent of their contracts that members may use now; 100 outside all entries."
    )
    until: Timestamp | None = Field(
        default=None, description="When that changes. Unset if it does not within a week."
    )
    next_percent: PercentOfContract | None = Field(default=None, description="What it changes to.")


class LimitsInForce(SchemaModel):
    """Limits of all brokers that have none of their own, in bytes per second."""

    schedule: Count | None = Field(
        default=None,
        description="Position in spec.brokers.schedules, the first being 0. Unset: the limits at "
        "times of no schedule.",
    )
    egress: ExactRate | None = Field(
        default=None, description="Limit for traffic leaving a broker."
    )
    ingress: ExactRate | None = Field(
        default=None, description="Limit for traffic entering a broker."
    )
    combined: ExactRate | None = Field(
        default=None, description="Limit for traffic in both directions together."
    )


class ScheduledLimits(LimitsInForce):
    """The limits in force by spec.brokers.schedules, and what comes next."""

    until: Timestamp | None = Field(
        default=None,
        description="When the schedule changes. Before that, limits may already be those of next, "
        "where these are lower and ready is Before. Unset if it does not within a week.",
    )
    next: LimitsInForce | None = Field(default=None, description="The limits from then on.")


class QuotaCounts(SchemaModel):
    """The quotas that this policy manages."""

    managed: Count = Field(description="Entities with a quota that Tidegate manages.")
    in_sync: Count = Field(description="How many of those quotas have their final value.")
    contended: Count = Field(
        description="Entities left alone because another writer keeps changing them."
    )
    largest_leader_skew: Skew | None = Field(
        default=None,
        description="Largest ratio of permitted total to contract; 1.00 if leaders are even. "
        "Unset if no leader is known.",
    )


class LedgerStatus(SchemaModel):
    """The ledger that the policy has begun: what there must be, or it counts as lost."""

    cluster_id: Annotated[str, Field(max_length=128)] = Field(
        description="Id of the Kafka cluster that has it."
    )
    topic: Annotated[str, Field(max_length=249)] | None = Field(
        default=None, description="The topic that holds it. Unset if it is in ZooKeeper."
    )
    epoch: Annotated[int, Field(ge=1, le=2**53 - 1, json_schema_extra={"format": "int64"})] = Field(
        description="Epoch of the policy's claim in it. A ledger whose claim has a lower "
        "epoch, or that has no claim, counts as lost."
    )
    records: Count = Field(description="The ledger has at least this many records of this policy.")
    managed: Count | None = Field(
        default=None,
        description="quotas.managed when the records were counted. If it differs now, an "
        "earlier version of Tidegate has reported in between, and the count is not "
        "used.",
    )


class LeavingQuota(SchemaModel):
    """An entity with a quota that no contract names any longer."""

    entity: StatusText = Field(description="User and client id that the quota is for.")
    restored_at: Timestamp = Field(
        description="When the quota from before Tidegate is restored, unless a member names "
        "the entity again first."
    )


class PolicySummary(SchemaModel):
    """The columns of kubectl get."""

    brokers: Count | None = Field(default=None, description="Live brokers.")
    over: Count | None = Field(
        default=None, description="Brokers over their limit. Unset if load is not measured."
    )
    over_shown: Annotated[str, Field(max_length=16)] | None = Field(
        default=None,
        description="The same for people: `?` stands for brokers whose load is unknown.",
    )
    throttled: Count | None = Field(
        default=None, description="Levels below their contract now; see the list levels."
    )
    unreadable_tiers: Count | None = Field(
        default=None,
        description="Tiers of this policy that cannot be read. Their quotas stay as they are, "
        "and their own Ready condition says what is wrong. Unset if there are "
        "none.",
    )


class RollupStatus(SchemaModel):
    """How far the usage tables are."""

    published_until: Timestamp | None = Field(
        default=None,
        description="Every window that ended by then is in the tables, except where Prometheus "
        "has no data for it.",
    )
    waiting: Count = Field(description="Windows that have ended and are not in the tables yet.")
    failed: Count = Field(description="How many of those have a failed Job; each is retried.")


class BackgroundStatus(SchemaModel):
    """Tiered storage, and moves between log directories."""

    rates: tuple[StatusText, ...] | None = Field(
        default=None,
        max_length=64,
        description="The rates in force, refreshed once a minute.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    others: tuple[StatusText, ...] | None = Field(
        default=None,
        max_length=64,
        description="Rates that somebody set after Tidegate; they stay.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


class MovingStatus(SchemaModel):
    """Replicas that are being filled for one reason."""

    partitions: Count = Field(description="Partitions with such a replica.")
    bytes_left: ByteCount | None = Field(
        default=None,
        description="Bytes left, refreshed once a minute. Unset while a size is unknown.",
    )
    eta_seconds: Count | None = Field(
        default=None,
        description="Estimated seconds left, refreshed once a minute. Unset while unknown, or "
        "if it would never end.",
    )
    bottleneck: StatusText | None = Field(
        default=None,
        description="The direction of a broker's NIC that determines how long it takes.",
    )


class ReplicationStatus(SchemaModel):
    """Replication under the same limit."""

    moving: MovingStatus | None = Field(
        default=None, description="Reassignments. Unset if there are none."
    )
    recovering: MovingStatus | None = Field(
        default=None,
        description="Replicas that catch up without a reassignment. Unset if there are none, "
        "or if recovery is Off.",
    )
    stalls: tuple[StatusText, ...] | None = Field(
        default=None,
        max_length=16,
        description="Directions of NICs whose rate never lets the moving partitions catch up: "
        "the rate, the rate needed, and how much of it Kafka counts for in-sync "
        "replicas.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    leftovers: tuple[StatusText, ...] | None = Field(
        default=None,
        max_length=64,
        description="Throttles that another tool left behind while nothing is being reassigned.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    others: tuple[StatusText, ...] | None = Field(
        default=None,
        max_length=64,
        description="Throttles of another tool where Tidegate would set its own; they stay.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    waiting_for: tuple[StatusText, ...] | None = Field(
        default=None,
        max_length=64,
        description="Brokers that are down and still have a rate of Tidegate's to be removed.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    problem: StatusText | None = Field(
        default=None, description="Why throttles are not as they should be."
    )


class PolicyStatus(SchemaModel):
    """The operator's report on a policy. Rates are metrics, not status."""

    observed_generation: Generation | None = Field(
        default=None, description="The generation that this status was computed from."
    )
    cluster_id: Annotated[str, Field(max_length=128)] | None = Field(
        default=None, description="Id of the Kafka cluster that answered."
    )
    conditions: tuple[Condition, ...] | None = Field(
        default=None,
        max_length=16,
        description="Ready first, then Stalled (a person must act), ClusterReachable, "
        "MetricsFresh, QuotasInSync, Throttling and, if configured, "
        "ReplicationCurrent and RollupsCurrent; FollowerFetch if brokers let consumers with a "
        "fetch contract read from followers.",
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
    calendar: tuple[CalendarStatus, ...] | None = Field(
        default=None,
        max_length=3,
        description="Every level that escalation.calendar names. Unset without a calendar.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["level"],
        },
    )
    limits: ScheduledLimits | None = Field(
        default=None,
        description="What spec.brokers.schedules say now. Unset without schedules.",
    )
    quotas: QuotaCounts | None = Field(
        default=None, description="The quotas that this policy manages."
    )
    ledger: LedgerStatus | None = Field(
        default=None, description="The ledger that this policy has started."
    )
    budgets: Count | None = Field(
        default=None,
        description="BandwidthBudgets of this policy. If there are any and they cannot be listed, "
        "every quota stays as it is. Unset where there are none.",
    )
    leaving: tuple[LeavingQuota, ...] | None = Field(
        default=None,
        max_length=MAX_SHOWN_LEAVING,
        description=f"Quotas that no contract names any longer, those that are restored first on "
        f"top, {MAX_SHOWN_LEAVING} at most. Unset where there are none.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    rollup: RollupStatus | None = Field(
        default=None, description="How far the usage tables have got, if the policy asks for them."
    )
    replication: ReplicationStatus | None = Field(
        default=None, description="Replication, if the policy asks for it."
    )
    background: BackgroundStatus | None = Field(
        default=None, description="Background traffic, if the policy asks for it."
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
        default=None, description="Bytes per second fetched from all brokers in total."
    )
    produce: ExactRate | None = Field(
        default=None, description="Bytes per second produced to all brokers in total."
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
        default=None,
        description="Recommended rate in the contract's own form. Unset if there is none.",
    )
    produce: ExactRate | None = Field(
        default=None,
        description="Recommended rate in the contract's own form. Unset if there is none.",
    )
    applied: AppliedRates | None = Field(
        default=None,
        description="The part of it that replaces the contract, in the contract's own form, if "
        "the policy allows it.",
    )
    reason: CamelCaseWord = Field(description="Why it is recommended, or why nothing is.")
    message: StatusText | None = Field(
        default=None, description="The same with figures, as a sentence for people."
    )


LimitedBy = Literal["Contract", "Budget", "BrokerLimit", "Calendar", "Override", "ShareGroup"]


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
        description="Permitted total divided by contract under method Max; 1.00 if every "
        "leading broker leads the same number of partitions.",
    )
    fetch_skew: Skew | None = Field(
        default=None,
        description="The same for fetch, by the brokers that serve it, if consumers may read from "
        "followers. fetchBy says how those are known.",
    )
    fetch_by: FetchBy | None = Field(
        default=None,
        description="What scales fetch if consumers may read from followers. Leaders: until reads "
        "are measured. Racks: those that the member declares. Measured: bytes by broker.",
    )
    quota: QuotaInForce | None = Field(default=None, description="Quota in force on each broker.")
    target: QuotaInForce | None = Field(
        default=None, description="Quota that it is moving to, if different."
    )
    contract_total: TotalRates | None = Field(
        default=None, description="What the contract promises over the whole cluster."
    )
    permitted_total: TotalRates | None = Field(
        default=None,
        description="What the target (or the quota, if no target is shown) permits over the "
        "whole cluster: its value times the number of brokers that lead.",
    )
    state: CamelCaseWord = Field(
        description="Contract, Stepping, Throttled, Relaxing, or what keeps the member from "
        "its contract, such as TopicNotFound."
    )
    override: Annotated[str, Field(max_length=512)] | None = Field(
        default=None,
        description="The QuotaOverride that replaces its contract or exempts it from "
        "throttling: namespace/name.",
    )
    limited_by: LimitedBy | None = Field(
        default=None,
        description="What sets its quota, if that is not its contract: a budget, a broker's "
        "limit, the policy's calendar, an override or a share group.",
    )
    message: StatusText | None = Field(
        default=None, description="The reason, as a sentence for people."
    )
    contended_until: Timestamp | None = Field(
        default=None,
        description="Until when its quota is left alone because another writer keeps changing "
        "it. Set while the state is Contended.",
    )
    recommended: Recommendation | None = Field(
        default=None,
        description="The contract that fits its usage. Unset if there are no usage tables of it.",
    )


class TierStatusSummary(SchemaModel):
    """The columns of kubectl get."""

    members: Count | None = Field(
        default=None, description="Members of the spec that the last pass saw."
    )
    state: CamelCaseWord | None = Field(
        default=None,
        description="The member state that most needs attention; Contract if all members are "
        "at their contracted rates.",
    )


class TierStatus(SchemaModel):
    """The operator's report on a tier. Measured rates are metrics, not status."""

    observed_generation: Generation | None = Field(
        default=None, description="The generation that this status was computed from."
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


OverrideState = Literal["Pending", "Scheduled", "Active", "Expired"]
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
        default=None,
        description="The member or level that it applies to, such as 'user=reports' or 'L2'.",
    )
    members: Count | None = Field(default=None, description="How many members it is in force for.")


class OverrideStatus(SchemaModel):
    """The operator's report on an override."""

    observed_generation: Generation | None = Field(
        default=None, description="The generation that this status was computed from."
    )
    conditions: tuple[Condition, ...] | None = Field(
        default=None,
        max_length=16,
        description="Ready: whether it is in force for every member that it names. Stalled: "
        "whether a person must act.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    state: OverrideState | None = Field(
        default=None,
        description="Pending: not in force; Ready says why. Scheduled: not in force until "
        "startsAt. Active: in force for at least one member. Expired: over.",
    )
    members: tuple[OverriddenMember, ...] | None = Field(
        default=None,
        max_length=MAX_SHOWN_MEMBERS,
        description=f"The members that it is in force for, the first {MAX_SHOWN_MEMBERS} of them.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    since: Timestamp | None = Field(
        default=None, description="When it came into force; kept after it has ended."
    )
    starts_at: Timestamp | None = Field(
        default=None, description="When it next begins, in UTC. Set while the state is Scheduled."
    )
    until: Timestamp | None = Field(
        default=None,
        description="When it ends, in UTC. One that comes back: when this time of it ends, or the "
        "next one.",
    )
    summary: OverrideStatusSummary | None = Field(
        default=None, description="The columns of kubectl get."
    )
