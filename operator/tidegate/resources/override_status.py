"""The status of QuotaOverride: whether it is in force, for whom, since when and until when."""

from typing import Annotated, Literal

from pydantic import Field

from tidegate.resources.conditions import Condition, Generation, Timestamp
from tidegate.resources.schema import SchemaModel
from tidegate.resources.status import Count

OverrideState = Literal["Pending", "Active", "Expired"]
MAX_SHOWN_MEMBERS = 100
_ObjectKey = Annotated[str, Field(max_length=512)]
_Name = Annotated[str, Field(max_length=256)]


class OverriddenMember(SchemaModel):
    """One member that an override is in force for."""

    tier: _ObjectKey = Field(description="The tier of the member, as namespace/name.")
    member: _Name = Field(description="Name of the member within the tier.")
    user: _Name | None = Field(default=None, description="User of the member.")
    client_id: _Name | None = Field(default=None, description="Client id of the member.")


class OverrideStatusSummary(SchemaModel):
    """What kubectl get shows."""

    target: Annotated[str, Field(max_length=1024)] | None = Field(
        default=None, description="Whom it is for, such as 'user=reports' or 'L2'."
    )
    members: Count | None = Field(default=None, description="How many members it is in force for.")


class OverrideStatus(SchemaModel):
    """What the operator says of an override."""

    observed_generation: Generation | None = Field(default=None, description="metadata.generation of the spec that this status speaks of.")
    conditions: tuple[Condition, ...] | None = Field(
        default=None,
        max_length=16,
        description="Ready: whether it is in force for everybody it names.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    state: OverrideState | None = Field(
        default=None,
        description="Pending: not in force, and Ready says why. Active: in force for at least one member. Expired: over.",
    )
    members: tuple[OverriddenMember, ...] | None = Field(
        default=None,
        max_length=MAX_SHOWN_MEMBERS,
        description=f"The members that it is in force for, the first {MAX_SHOWN_MEMBERS} of them.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    since: Timestamp | None = Field(default=None, description="Since when it has been in force; stays when it is over.")
    until: Timestamp | None = Field(default=None, description="When it ends, in UTC.")
    summary: OverrideStatusSummary | None = Field(default=None, description="The columns of kubectl get.")
