"""The translator keeps what has a faithful structural form and refuses the rest, so that nothing
surprises at the API server.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from tidegate.resources.crd import Schema, UnknownSchema, structural_schema

NAME: Schema = {"type": "string", "maxLength": 8, "description": "A name."}


def an_object(field: Schema, **more: Any) -> Schema:
    return {"type": "object", "properties": {"field": field}, **more}


def translated(field: Schema, **more: Any) -> Any:
    return structural_schema(an_object(field, **more))["properties"]["field"]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        pytest.param(
            {**NAME, "title": "Field", "examples": ["x"]},
            NAME,
            id="titles and examples are dropped",
        ),
        pytest.param(
            {**NAME, "default": "x"},
            NAME,
            id="a default stays with the model: the server would write it into specs",
        ),
        pytest.param(
            {
                "anyOf": [{"type": "string", "maxLength": 8}, {"type": "null"}],
                "default": None,
                "description": "A name.",
            },
            NAME,
            id="optional",
        ),
        pytest.param(
            {"const": "x", "type": "string", "description": "A."},
            {"enum": ["x"], "type": "string", "description": "A."},
            id="const is a one-value enum",
        ),
        pytest.param(
            {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 9, "description": "N."},
            {"type": "integer", "minimum": 1, "maximum": 8, "description": "N."},
            id="exclusive bounds of integers become inclusive",
        ),
        pytest.param({**NAME, "description": "A \n  name."}, NAME, id="descriptions are one line"),
        pytest.param(
            {
                "type": "object",
                "properties": {"n": NAME},
                "additionalProperties": False,
                "description": "O.",
            },
            {"type": "object", "properties": {"n": NAME}, "description": "O."},
            id="extra=forbid is the server's own business",
        ),
    ],
)
def test_what_pydantic_emits_becomes_structural(field: Schema, expected: Schema) -> None:
    assert translated(field) == expected


def test_references_are_inlined_and_what_stands_beside_wins() -> None:
    definitions = {"Name": {"type": "string", "maxLength": 8, "description": "Of the type."}}
    assert (
        translated({"$ref": "#/$defs/Name", "description": "A name."}, **{"$defs": definitions})
        == NAME
    )


@pytest.mark.parametrize(
    "field",
    [
        pytest.param({**NAME, "readOnly": True}, id="keyword 'readOnly'"),
        pytest.param({"type": "number", "description": "N."}, id="type 'number'"),
        pytest.param({"description": "Anything."}, id="has no type"),
        pytest.param(
            {"anyOf": [{"type": "integer"}, {"type": "string"}], "description": "U."},
            id="union of types",
        ),
        pytest.param({"oneOf": [NAME], "description": "U."}, id="keyword 'oneOf'"),
        pytest.param({"type": "string", "description": "T."}, id="needs maxLength"),
        pytest.param({"type": "integer", "minimum": 0, "description": "N."}, id="needs maximum"),
        pytest.param(
            {"type": "integer", "minimum": 0, "maximum": 2**63 - 1, "description": "N."},
            id="beyond 2^53-1",
        ),
        pytest.param({"type": "array", "items": NAME, "description": "L."}, id="needs maxItems"),
        pytest.param(
            {"type": "object", "additionalProperties": NAME, "description": "M."},
            id="needs maxProperties",
        ),
        pytest.param(
            {"type": "object", "additionalProperties": True, "description": "M."},
            id="schema for its values",
        ),
        pytest.param({"type": "object", "description": "O."}, id="needs properties"),
        pytest.param(
            {"x-kubernetes-int-or-string": True, "description": "R."},
            id="keyword 'x-kubernetes-int-or-string'",
        ),
        pytest.param({"type": "string", "maxLength": 8}, id="no description"),
        pytest.param({**NAME, "format": "duration"}, id="format 'duration'"),
        pytest.param({**NAME, "pattern": "^(?!x)"}, id="a look ahead"),
        pytest.param({**NAME, "pattern": r"(a)\1"}, id="a reference back"),
        pytest.param(
            {
                "type": "array",
                "items": NAME,
                "maxItems": 2,
                "uniqueItems": True,
                "description": "S.",
            },
            id="keyword 'uniqueItems'",
        ),
        pytest.param(
            {"type": "array", "prefixItems": [NAME], "maxItems": 1, "description": "T."},
            id="keyword 'prefixItems'",
        ),
        pytest.param(
            {
                "type": "array",
                "maxItems": 2,
                "items": {"type": "object", "properties": {"n": NAME}},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["n"],
                "description": "L.",
            },
            id="list map key 'n'",
        ),
        pytest.param(
            {"type": "string", "maxLength": 8, "exclusiveMinimum": 1, "description": "T."},
            id="integers only",
        ),
        pytest.param({"$ref": "#/$defs/Gone", "description": "G."}, id="Gone"),
    ],
)
def test_what_has_no_structural_form_is_refused_with_its_path(
    field: Schema, golden: Callable[[str], None]
) -> None:
    with pytest.raises(UnknownSchema) as refusal:
        translated(field)
    assert refusal.value.path == "field"
    golden(str(refusal.value))


def test_recursion_is_refused() -> None:
    class Folder(BaseModel):
        folders: Annotated[list["Folder"], Field(max_length=3, description="Inner folders.")]

    with pytest.raises(UnknownSchema):
        structural_schema(Folder.model_json_schema())


def test_a_whole_model_is_translated() -> None:
    class Sized(BaseModel):
        size: Annotated[int, Field(gt=0, lt=10, description="The size.")]
        kind: Literal["Small", "Large"] | None = Field(default=None, description="The kind.")

    assert structural_schema(Sized.model_json_schema()) == {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 9, "description": "The size."},
            "kind": {"type": "string", "enum": ["Small", "Large"], "description": "The kind."},
        },
    }
