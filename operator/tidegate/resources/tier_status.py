"""The status of BusinessTier: what each member may do now, per broker and in total, and why.

`summary` repeats in single words what `kubectl get` shows and JSONPath cannot count.
"""

from typing import Annotated

from pydantic import Field

from tidegate.resources.byte_rate import ExactRate
from tidegate.resources.conditions import CamelCaseWord, Condition, Generation, StatusText
from tidegate.resources.schema import SchemaModel
from tidegate.resources.status import Count, Skew
from tidegate.resources.tiers import MAX_MEMBERS


class QuotaInForce(SchemaModel):
    """A native quota on each broker; a key that is absent is not managed."""

    fetch: ExactRate | None = Field(default=None, description="Bytes per second fetched from one broker.")
    produce: ExactRate | None = Field(default=None, description="Bytes per second produced to one broker.")
    request_percentage: ExactRate | None = Field(default=None, description="Share of one broker thread's time in percent.")
    controller_mutations_per_second: ExactRate | None = Field(default=None, description="Partition mutations per second.")


class TotalRates(SchemaModel):
    """Rates over the whole cluster."""

    fetch: ExactRate | None = Field(default=None, description="Bytes per second fetched from all brokers together.")
    produce: ExactRate | None = Field(default=None, description="Bytes per second produced to all brokers together.")


class Recommendation(SchemaModel):
    """What usage says of a member's contract."""

    fetch: ExactRate | None = Field(default=None, description="Recommended rate in the contract's own form; unset = none.")
    produce: ExactRate | None = Field(default=None, description="Recommended rate in the contract's own form; unset = none.")
    applied: TotalRates | None = Field(
        default=None, description="What of it stands in place of the contract, in the contract's own form, where the policy allows it."
    )
    reason: CamelCaseWord = Field(description="Why it is recommended, or why nothing is.")
    message: StatusText | None = Field(default=None, description="The same with numbers, in a sentence for people.")


class MemberStatus(SchemaModel):
    """One member: its leaders, its quota, and how far that is from its promise."""

    name: Annotated[str, Field(min_length=1, max_length=128)] = Field(description="Name of the member in the spec.")
    leaders: Count | None = Field(
        default=None, description="Partitions of its topics that have a leader. Unset for a member without topics."
    )
    leader_skew: Skew | None = Field(
        default=None, description="Permitted total over contract under method Max; 1.00 where every leading broker leads equally many."
    )
    quota: QuotaInForce | None = Field(default=None, description="Quota in force on each broker.")
    target: QuotaInForce | None = Field(default=None, description="Quota it is on its way to, where that differs.")
    contract_total: TotalRates | None = Field(default=None, description="What the contract promises over the whole cluster.")
    permitted_total: TotalRates | None = Field(
        default=None,
        description="What the target (the quota, where no target is shown) permits over the whole cluster: it times the brokers that lead.",
    )
    state: CamelCaseWord = Field(
        description="Contract, Stepping, Throttled, Relaxing, or what keeps the member from it, such as TopicNotFound."
    )
    override: Annotated[str, Field(max_length=512)] | None = Field(
        default=None, description="The QuotaOverride that stands in place of its contract or keeps it from being throttled: namespace/name."
    )
    message: StatusText | None = Field(default=None, description="Why, in a sentence for people.")
    recommended: Recommendation | None = Field(
        default=None, description="What usage says of the contract. Unset where no usage tables tell anything."
    )


class TierStatusSummary(SchemaModel):
    """What kubectl get shows."""

    members: Count | None = Field(default=None, description="Members of the spec that the last pass saw.")
    state: CamelCaseWord | None = Field(
        default=None, description="The state that most needs attention among the members; Contract where all are at their contract."
    )


class TierStatus(SchemaModel):
    """What the operator says of a tier. Rates measured are metrics, not status."""

    observed_generation: Generation | None = Field(default=None, description="metadata.generation of the spec that this status speaks of.")
    conditions: tuple[Condition, ...] | None = Field(
        default=None,
        max_length=16,
        description="Ready on top, then Conflict.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    members: tuple[MemberStatus, ...] | None = Field(
        default=None,
        max_length=MAX_MEMBERS,
        description="Every member of the spec.",
        # One writer writes the list as a whole. A map would have the server track the owner of every field of every member: a third
        # of the object's size and of the time of each write.
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    summary: TierStatusSummary | None = Field(default=None, description="The columns of kubectl get.")
