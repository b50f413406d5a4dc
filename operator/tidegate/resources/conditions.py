"""Conditions as every Kubernetes tool expects them, in the shape of the API conventions.

Which conditions a kind has is said by its status; how they change over time is the status writer's business.
"""

from typing import Annotated, Literal

from pydantic import Field

from tidegate.resources.schema import SchemaModel

ConditionStatus = Literal["True", "False", "Unknown"]
Timestamp = Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"})]
Generation = Annotated[int, Field(ge=0, le=2**53 - 1, json_schema_extra={"format": "int64"})]
CamelCaseWord = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z][A-Za-z0-9]*$")]
StatusText = Annotated[str, Field(max_length=1024)]


class Condition(SchemaModel):
    """One aspect of an object's state."""

    type: CamelCaseWord = Field(description="What the condition is about, such as Ready.")
    status: ConditionStatus = Field(description="True, False or Unknown.")
    observed_generation: Generation | None = Field(default=None, description="metadata.generation of the spec that this speaks of.")
    last_transition_time: Timestamp = Field(description="When status last changed.")
    reason: CamelCaseWord = Field(description="Why, in one stable CamelCase word.")
    message: Annotated[str, Field(max_length=32768)] = Field(description="Why, in a sentence for people.")
