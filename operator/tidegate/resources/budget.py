"""The spec and status of BandwidthBudget: one limit for many members.

The operator, not the schema, checks what needs other objects: whether there are such members, and
whether the parent exists and is not below the budget itself.
"""

from typing import Annotated

from pydantic import Field

from tidegate.resources.fields import Labels, ObjectName, PolicyRef
from tidegate.resources.rates import ByteRate
from tidegate.resources.schema import Rule, SchemaModel
from tidegate.resources.status import (
    MAX_SHOWN_MEMBERS,
    Condition,
    Count,
    Generation,
    LimitedBy,
    TotalRates,
)
from tidegate.resources.tiers import TierLevel

MAX_TIERS = 100
MINIMUM_PERCENT = 5
WEIGHT = 1


class BudgetTotal(SchemaModel):
    """What all members may have together, over the whole cluster."""

    fetch: ByteRate | None = Field(
        default=None,
        description="Bytes per second that may be fetched, such as 120M. Unset means no limit.",
    )
    produce: ByteRate | None = Field(
        default=None,
        description="Bytes per second that may be produced, such as 60M. Unset means no limit.",
    )

    rules = (
        Rule(
            cel="has(self.fetch) || has(self.produce)",
            message="must have at least one of fetch and produce",
            holds=lambda total: total.fetch is not None or total.produce is not None,
        ),
    )


class BudgetSelector(SchemaModel):
    """Members by the labels of their tiers."""

    match_labels: Labels = Field(
        description="Labels that a member must have, all of them: its own and those of its tier "
        "(spec.labels)."
    )


class BudgetMembers(SchemaModel):
    """Who shares the budget."""

    selector: BudgetSelector | None = Field(
        default=None, description="Every member with these labels, of any tier of the policy."
    )
    tiers: tuple[ObjectName, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_TIERS,
        description="All members of these BusinessTiers in the namespace of this object.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )

    rules = (
        Rule(
            cel="has(self.selector) || has(self.tiers)",
            message="must have a selector, tiers or both",
            reason="FieldValueRequired",
            holds=lambda members: members.selector is not None or members.tiers is not None,
        ),
        Rule(
            cel="",
            message="every tier may appear once only",
            field_path=".tiers",
            holds=lambda members: (
                members.tiers is None or len(set(members.tiers)) == len(members.tiers)
            ),
        ),
    )


class BudgetParent(SchemaModel):
    """Another budget of the same policy."""

    name: ObjectName = Field(
        description="Name of a BandwidthBudget in the namespace of this object."
    )


class BudgetShare(SchemaModel):
    """How the budget is shared while there is less than members want."""

    minimum_percent: Annotated[int, Field(ge=0, le=100)] | None = Field(
        default=None,
        description="What each member can have at least, in percent of the total; less if the "
        f"minimums of all members add up to more than 100. Unset means {MINIMUM_PERCENT}.",
    )
    weight: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        default=None,
        description="How much this budget gets of what its parent divides, compared with other "
        f"budgets of that parent. Unset means {WEIGHT}.",
    )


class BudgetSpec(SchemaModel):
    """The desired state of one budget."""

    policy_ref: PolicyRef = Field(
        description="The policy, and so the Kafka cluster, that the budget is for. It may be "
        "created later."
    )
    total: BudgetTotal = Field(description="What all members may have together.")
    members: BudgetMembers | None = Field(
        default=None,
        description="Who shares it. Unset means only the members of the budgets that name this "
        "one as their parent. A member that is in two budgets counts for the older one.",
    )
    parent: BudgetParent | None = Field(
        default=None,
        description="The budget that this one is part of: what members use counts for both totals.",
    )
    share: BudgetShare | None = Field(
        default=None, description="How it is shared while there is less than members want."
    )


class BudgetMemberStatus(SchemaModel):
    """One member and its part of the budget."""

    tier: Annotated[str, Field(max_length=512)] = Field(
        description="The tier of the member, as namespace/name."
    )
    member: Annotated[str, Field(max_length=256)] = Field(
        description="Name of the member within the tier."
    )
    level: TierLevel = Field(description="Level of the tier.")
    measured: TotalRates | None = Field(
        default=None,
        description="What it uses, as of the last time that this changed by more than 10 % of the "
        "budget.",
    )
    allowed: TotalRates | None = Field(
        default=None, description="What the budget allows it now. Unset means no limit."
    )
    permitted: TotalRates | None = Field(
        default=None,
        description="What its quota permits: its value times the number of brokers that lead.",
    )
    limited_by: LimitedBy | None = Field(
        default=None,
        description="What sets its quota: its contract, this budget, a broker's limit, the "
        "policy's calendar, an override or a share group. Unset means that nothing limits it.",
    )


class BudgetStatusSummary(SchemaModel):
    """The columns of kubectl get."""

    members: Count | None = Field(default=None, description="Members of the budget itself.")
    fetch: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="Measured fetch rate of the total, such as '40 of 120 MB/s'."
    )
    produce: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="Measured produce rate of the total."
    )


class BudgetStatus(SchemaModel):
    """The operator's report on a budget."""

    observed_generation: Generation | None = Field(
        default=None, description="The generation that this status was computed from."
    )
    conditions: tuple[Condition, ...] | None = Field(
        default=None,
        max_length=16,
        description="Ready: whether the budget is divided by what members use. Stalled: whether a "
        "person must act.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    measured: TotalRates | None = Field(
        default=None,
        description="What its members use in total, those of the budgets below it included, as of "
        "the last time that this changed by more than 10 % of the budget.",
    )
    permitted: TotalRates | None = Field(
        default=None,
        description="What the quotas of its own members permit in total. It is above the sum of "
        "what they are allowed where leaders are uneven (leaderScaling).",
    )
    members: tuple[BudgetMemberStatus, ...] | None = Field(
        default=None,
        max_length=MAX_SHOWN_MEMBERS,
        description=f"Its own members, the first {MAX_SHOWN_MEMBERS} of them.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    children: tuple[Annotated[str, Field(max_length=512)], ...] | None = Field(
        default=None,
        max_length=MAX_SHOWN_MEMBERS,
        description="The budgets that name this one as their parent, as namespace/name.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    summary: BudgetStatusSummary | None = Field(
        default=None, description="The columns of kubectl get."
    )
