"""The base of every part of a custom resource: camelCase outside, frozen inside, its rules beside its fields.

A part knows what it may hold and nothing of Kafka, Kubernetes clients or the control pass. What is left out of a
resource stays None; a documented default is offered by a property ending in `_or_default` and never written back.
"""

from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from tidegate.resources.rules import Rule, enforce


class SchemaModel(BaseModel):
    """A part of a resource. Unknown fields are dropped when read, so that an older operator survives a newer CRD.

    `rules` are checked after all fields are valid; they also go into the CRD as CEL. A part that has the same name in
    several places repeats its rules in each.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        strict=True,
        allow_inf_nan=False,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        enforce(self.rules, self)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Put the rules into the generated schema, where the translator finds them."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        if rules := [rule.as_schema() for rule in cls.rules if rule.cel]:
            schema["x-kubernetes-validations"] = rules
        return schema

    def as_document(self) -> dict[str, Any]:
        """The part as it is written to Kubernetes: camelCase keys, what is None left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
