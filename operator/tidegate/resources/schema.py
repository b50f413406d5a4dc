"""The base of every part of a custom resource: camelCase outside, frozen inside.

A part has its rules beside its fields. A part depends on nothing of Kafka, Kubernetes clients or
the control pass. What is left out of a spec has its default in the model and in the description,
not in the CRD: no one writes it into the object. None = there is no default.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

# Rules that a JSON schema cannot express, each declared once as CEL and as Python.
#
# The API server evaluates the CEL expression at admission, the model the Python predicate when it
# reads an object or a file. Both refuse the same with the same words. A rule is about one object.


# FieldValueDuplicate exists too, but the API server leaves the message out with it
RuleReason = Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on a value.

    `message` says what must hold; `message_cel` may compute a better one that names the culprit
    (where that fails, `message` is used). `field_path` (as `.throttledRates`) points at the field
    below the value that is to blame. `holds` is the same rule in Python; it gets the validated
    value. An empty `cel` means that the schema says it in another way (a list type, a pattern).
    """

    cel: str
    message: str
    holds: Callable[[Any], bool]
    reason: RuleReason = "FieldValueInvalid"
    field_path: str = ""
    message_cel: str = ""

    def as_schema(self) -> dict[str, str]:
        """The rule as an entry of `x-kubernetes-validations`, without what the API server assumes.

        A rule for rates stands at twenty fields, and client-side apply keeps all of it once more.
        """
        entry = {"rule": self.cel}
        if self.message not in self.message_cel:
            entry["message"] = self.message
        if self.reason != "FieldValueInvalid":  # the default
            entry["reason"] = self.reason
        if self.message_cel:
            entry["messageExpression"] = self.message_cel
        if self.field_path:
            entry["fieldPath"] = self.field_path
        return entry


class BrokenRule(ValueError):
    """A value breaks a rule.

    `field_path` (as `.throttledRates`, or empty) is relative to the value.
    """

    def __init__(self, message: str, field_path: str) -> None:
        super().__init__(message)
        self.field_path = field_path


def enforce(rules: tuple[Rule, ...], value: Any) -> None:
    """Raise BrokenRule for the first rule that `value` breaks."""
    for rule in rules:
        if not rule.holds(value):
            raise BrokenRule(rule.message, rule.field_path)


class SchemaModel(BaseModel):
    """A part of a resource.

    Unknown fields are dropped when read, so that an older operator works with a newer CRD.

    `rules` are checked after all fields are valid; they also go into the CRD as CEL. A part that
    has the same name in several places repeats its rules in each.
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
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Put the rules into the generated schema, where the translator finds them."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        if rules := [rule.as_schema() for rule in cls.rules if rule.cel]:
            schema["x-kubernetes-validations"] = rules
        return schema

    def as_document(self) -> dict[str, Any]:
        """The part as it is written to Kubernetes: camelCase keys, what is None left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
