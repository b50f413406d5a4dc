"""The status of BrokerBandwidthPolicy: what the last pass found and did, without numbers that change every second.

`summary` repeats in single words what `kubectl get` shows and JSONPath cannot count.
"""

from typing import Annotated, Literal

from pydantic import Field

from tidegate.resources.byte_rate import ExactRate
from tidegate.resources.conditions import Condition, Generation, StatusText, Timestamp
from tidegate.resources.metrics_source import BrokerId
from tidegate.resources.schema import SchemaModel
from tidegate.resources.tiers import TierLevel

BrokerPressure = Literal["Over", "Within", "Unknown"]
TierState = Literal["Contract", "Stepping", "Throttled", "Relaxing"]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Skew = Annotated[str, Field(max_length=16, pattern=r"^[0-9]+\.[0-9]{2}$")]


class BrokerStatus(SchemaModel):
    """One broker against its limits."""

    id: BrokerId = Field(description="The broker's id.")
    egress_limit: ExactRate | None = Field(default=None, description="Limit out of the broker in force, in bytes per second.")
    ingress_limit: ExactRate | None = Field(default=None, description="Limit into the broker in force, in bytes per second.")
    pressure: BrokerPressure = Field(description="Over or Within its limits, or Unknown where no fresh reading says.")
    since: Timestamp | None = Field(default=None, description="Since when.")


class TierSummary(SchemaModel):
    """The state of all tiers of one level."""

    level: TierLevel = Field(description="The level.")
    state: TierState = Field(
        description="Contract: everybody at their contract. Stepping: a contract was lowered and quotas follow in safe steps. "
        "Throttled: below the contract, because a broker is over its limit. Relaxing: on the way back to the contract."
    )
    since: Timestamp | None = Field(default=None, description="Since when.")
    because: StatusText | None = Field(default=None, description="What caused it, with numbers.")


class QuotaCounts(SchemaModel):
    """The quotas that this policy manages."""

    managed: Count = Field(description="Entities with a quota of ours.")
    in_sync: Count = Field(description="Of those, entities whose quota is what it should end at.")
    contended: Count = Field(description="Entities left alone, because another writer keeps changing them.")
    largest_leader_skew: Skew | None = Field(
        default=None,
        description="The worst ratio of permitted total to contract; 1.00 where leaders are even. Unset where no leader is known.",
    )


class PolicySummary(SchemaModel):
    """What kubectl get shows."""

    brokers: Count | None = Field(default=None, description="Live brokers.")
    over: Count | None = Field(default=None, description="Brokers over their limit. Unset where load is not measured.")
    throttled: Annotated[str, Field(max_length=32)] | None = Field(
        default=None, description="Levels that are below their contract now, such as 'L2,L3'; 'none' where all are at it."
    )
    quotas: Annotated[str, Field(max_length=32)] | None = Field(
        default=None, description="Quotas in sync of quotas managed, such as '118/120'."
    )


class RollupStatus(SchemaModel):
    """How far the usage tables are."""

    published_until: Timestamp | None = Field(
        default=None, description="Every window that ended by then is in the tables, unless Prometheus has nothing of it."
    )
    waiting: Count = Field(description="Windows that are over and not in the tables yet.")
    failed: Count = Field(description="Of those, windows whose Job failed; each is tried again.")


class PolicyStatus(SchemaModel):
    """What the operator says of a policy. Rates are metrics, not status."""

    observed_generation: Generation | None = Field(default=None, description="metadata.generation of the spec that this status speaks of.")
    cluster_id: Annotated[str, Field(max_length=128)] | None = Field(default=None, description="Id of the Kafka cluster that answered.")
    conditions: tuple[Condition, ...] | None = Field(
        default=None,
        max_length=16,
        description="Ready on top, then ClusterReachable, MetricsFresh, QuotasInSync, Throttling and, where asked for, RollupsCurrent.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    brokers: tuple[BrokerStatus, ...] | None = Field(
        default=None,
        max_length=1000,
        description="Every live broker.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"]},
    )
    tiers: tuple[TierSummary, ...] | None = Field(
        default=None,
        max_length=4,
        description="Every level that has tiers.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["level"]},
    )
    quotas: QuotaCounts | None = Field(default=None, description="The quotas that this policy manages.")
    rollup: RollupStatus | None = Field(default=None, description="How far the usage tables are, where the policy asks for them.")
    summary: PolicySummary | None = Field(default=None, description="The columns of kubectl get.")
