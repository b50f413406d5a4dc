"""Builds the CustomResourceDefinition of a kind as a plain document; writing it anywhere is `generate.py`'s business."""

from typing import Any

from tidegate.resources.kinds import CATEGORY, GROUP, VERSION, Column, Kind
from tidegate.resources.schema import SchemaModel
from tidegate.resources.structural_schema import Schema, structural_schema


def crd_document(kind: Kind) -> dict[str, Any]:
    """The CRD of a kind: one served and stored version, status as a subresource, no conversion. Raises UnknownSchema."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.crd_name},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
                "shortNames": [kind.short_name],
                "categories": [CATEGORY],
            },
            "scope": "Namespaced",
            "versions": [_version(kind)],
        },
    }


def object_schema(kind: Kind) -> Schema:
    """The structural schema of a whole object of the kind."""
    schema: Schema = {
        "type": "object",
        "description": kind.summary,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of the schema of this object."},
            "kind": {"type": "string", "description": "Kind of this object."},
            "metadata": {"type": "object"},
            "spec": part_schema(kind.spec),
            "status": part_schema(kind.status),
        },
    }
    if kind.rules:
        schema["x-kubernetes-validations"] = [rule.as_schema() for rule in kind.rules]
    return schema


def part_schema(model: type[SchemaModel]) -> Schema:
    """The structural schema of one model, spec or status."""
    return structural_schema(model.model_json_schema(by_alias=True))


def _version(kind: Kind) -> dict[str, Any]:
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_column(column) for column in kind.columns],
        "schema": {"openAPIV3Schema": object_schema(kind)},
        "subresources": {"status": {}},
    }
    if kind.selectable_fields:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.selectable_fields]
    return version


def _column(column: Column) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.json_path,
        "description": column.description,
    }
    if column.priority:
        document["priority"] = column.priority
    return document
