"""What a policy lets its tiers do: which namespaces they may live in, which entities they may name.

The operator, not the schema, checks both: they need other objects.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from tidegate.resources.fields import (
    CONTROL_CHARACTERS,
    MAX_KAFKA_NAME_LENGTH,
    matching,
    ruled,
)
from tidegate.resources.schema import Rule, SchemaModel

MAX_RULES = 32
MAX_PATTERNS = 64
MAX_NAMESPACES = 64

# a rule for every pattern would cost the API server too much: only a pattern of its own
_PATTERN = r"^[^*\x00-\x1f\x7f]*[*]?$"
_pattern_check, _pattern_schema = ruled(
    Rule(
        cel="",
        message="must be a whole name, or a prefix followed by one '*'; control characters and "
        "any other '*' are refused",
        holds=lambda text: "*" not in text[:-1] and re.search(CONTROL_CHARACTERS, text) is None,
    ),
)
EntityPattern = Annotated[
    str,
    Field(min_length=1, max_length=MAX_KAFKA_NAME_LENGTH, json_schema_extra={"pattern": _PATTERN}),
    _pattern_check,
    _pattern_schema,
]
"""A user or client id, or a prefix ending in `*`, as in Kafka's own ACLs; `*` alone is all."""

_NAMESPACE = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_namespace_check, _namespace_schema = ruled(
    matching(
        _NAMESPACE,
        "must be a namespace's name: lower case letters, digits and '-', at most 63",
    )
)
NamespaceName = Annotated[
    str, Field(min_length=1, max_length=63), _namespace_check, _namespace_schema
]
_AS_SET = {"x-kubernetes-list-type": "set"}
Patterns = Annotated[
    tuple[EntityPattern, ...],
    Field(min_length=1, max_length=MAX_PATTERNS, json_schema_extra=_AS_SET),
]


class AllowedEntities(SchemaModel):
    """Users and client ids that tiers may name: whole names, or prefixes ending in `*`."""

    users: Patterns | None = Field(
        default=None,
        description="Users that members may name, alone or with a client id. Such a quota "
        "affects clients of that user only. Unset means none.",
    )
    client_ids: Patterns | None = Field(
        default=None,
        description="Client ids that members without a user may name. Such a quota affects "
        "clients of every user. Unset means none.",
    )
    namespaces: (
        Annotated[
            tuple[NamespaceName, ...],
            Field(min_length=1, max_length=MAX_NAMESPACES, json_schema_extra=_AS_SET),
        ]
        | None
    ) = Field(
        default=None,
        description="The rule applies only to tiers in these namespaces. Unset means tiers in "
        "every namespace that allowedTiers admits.",
    )

    rules = (
        Rule(
            cel="has(self.users) || has(self.clientIds)",
            message="must have users, clientIds or both",
            reason="FieldValueRequired",
            holds=lambda allowed: allowed.users is not None or allowed.client_ids is not None,
        ),
    )


class LabelExpression(SchemaModel):
    """One requirement of a label selector."""

    key: Annotated[str, Field(min_length=1, max_length=317)] = Field(
        description="The label's name."
    )
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="In, NotIn: whether the label's value is among values. Exists, "
        "DoesNotExist: whether the label is there."
    )
    values: tuple[Annotated[str, Field(max_length=63)], ...] | None = Field(
        default=None,
        max_length=MAX_NAMESPACES,
        description="Values for In and NotIn.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )

    rules = (
        Rule(
            cel="(self.operator in ['In', 'NotIn']) == (has(self.values) && "
            "self.values.size() > 0)",
            message="values are required with In and NotIn, and refused with Exists and "
            "DoesNotExist",
            field_path=".values",
            holds=lambda one: (one.operator in ("In", "NotIn")) == bool(one.values),
        ),
    )

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet it, as Kubernetes does: NotIn also without the label."""
        if self.operator in ("Exists", "DoesNotExist"):
            return (self.key in labels) == (self.operator == "Exists")
        return (labels.get(self.key) in (self.values or ())) == (self.operator == "In")


class LabelSelector(SchemaModel):
    """A label selector as Kubernetes has it; without any requirement it selects everything."""

    match_labels: (
        Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=MAX_NAMESPACES)]
        | None
    ) = Field(default=None, description="Labels that must have exactly these values.")
    match_expressions: tuple[LabelExpression, ...] | None = Field(
        default=None,
        max_length=16,
        description="More requirements; all of them must hold.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet every requirement."""
        return all(
            labels.get(name) == value for name, value in (self.match_labels or {}).items()
        ) and all(one.matches(labels) for one in self.match_expressions or ())


class AllowedTiers(SchemaModel):
    """In which namespaces tiers of the policy may live, as a Gateway says it of its routes."""

    namespaces: Literal["Same", "Selector"] = Field(
        default="Same",
        description="Same: only in the policy's own namespace. Selector: also in namespaces "
        "whose labels match selector. Unset means Same.",
    )
    selector: LabelSelector | None = Field(
        default=None,
        description="Selects the other namespaces by label; required with Selector. Every "
        "namespace has the label kubernetes.io/metadata.name.",
    )

    rules = (
        Rule(
            cel="(has(self.namespaces) && self.namespaces == 'Selector') == has(self.selector)",
            message="selector is required with namespaces Selector, and refused with Same",
            field_path=".selector",
            holds=lambda allowed: (
                (allowed.namespaces == "Selector") == (allowed.selector is not None)
            ),
        ),
    )

    def lets_in(self, labels: Mapping[str, str]) -> bool:
        """Whether tiers of another namespace with these labels are the policy's."""
        return self.selector is not None and self.selector.matches(labels)
