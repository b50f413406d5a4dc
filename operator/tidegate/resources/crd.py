"""Builds the CustomResourceDefinition of a kind as a document; `generate.py` writes it."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from tidegate.resources.kinds import CATEGORY, GROUP, VERSION, Column, Kind
from tidegate.resources.schema import SchemaModel

# Translation of a pydantic model's JSON schema into a structural CRD schema.
#
# A keyword that the API server would drop, ignore or misread is an error here. So is a text, list
# or number without bounds, because the server estimates the cost of a CEL rule from them. The
# integration tests apply the result to a real API server.


Schema = dict[str, Any]

# A default stays in the model and in the description. From the CRD, the API server would write it
# into every stored object: GitOps tools would report items of lists as changed, and a later version
# could not act on a better default, because it could not distinguish the old one from a person's
# choice.
_DROPPED = frozenset({"title", "examples", "default"})
_PASSED = frozenset(
    {
        "description",
        "format",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "pattern",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-validations",
    }
)
_FORMATS = frozenset({"int32", "int64", "date-time"})
_LARGEST_EXACT_BOUND = 2**53 - 1
_NOT_RE2 = re.compile(r"\(\?[=!]|\(\?<[=!]|\\[1-9]|\(\?P=")


class UnknownSchema(ValueError):
    """The schema holds something that has no faithful structural form; `path` says where."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path or '(root)'}: {problem}")
        self.path = path


def structural_schema(json_schema: Mapping[str, Any]) -> Schema:
    """The structural schema of a model's JSON schema (`model_json_schema(by_alias=True)`).

    References are inlined, null branches and their defaults dropped, `const` becomes a one-value
    enum, exclusive bounds of integers become inclusive. Raises UnknownSchema for recursion, unions,
    defaults, unbounded values, properties without a description, formats that the API server
    ignores, patterns that RE2 lacks and every keyword not named here.
    """
    return _Translation(json_schema.get("$defs", {})).node(
        {k: v for k, v in json_schema.items() if k != "$defs"}, "", ()
    )


class _Translation:
    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions

    def node(self, source: Mapping[str, Any], path: str, inside: tuple[str, ...]) -> Schema:
        source, inside = self._resolved(source, path, inside)
        target: Schema = {}
        for keyword, value in source.items():
            target.update(self._keyword(keyword, value, path, inside))
        _inclusive_bounds(target, path)
        _check(target, path)
        return target

    def _resolved(
        self, source: Mapping[str, Any], path: str, inside: tuple[str, ...]
    ) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Follow references and unwrap `anyOf [X, null]`; keywords beside a reference win."""
        while "$ref" in source or "anyOf" in source:
            if "anyOf" in source:
                behind = _only_branch(source, path)
            else:
                name = str(source["$ref"]).removeprefix("#/$defs/")
                if name in inside or name not in self._definitions:
                    raise UnknownSchema(path, f"reference to {name} is recursive or leads nowhere")
                behind, inside = self._definitions[name], (*inside, name)
            source = {**behind, **{k: v for k, v in source.items() if k not in ("$ref", "anyOf")}}
        return source, inside

    def _keyword(self, keyword: str, value: Any, path: str, inside: tuple[str, ...]) -> Schema:
        if keyword in _DROPPED:
            return {}
        if keyword in _PASSED:
            return {keyword: _trimmed(value) if keyword == "description" else value}
        translate = self._translators().get(keyword)
        if translate is None:
            raise UnknownSchema(path, f"keyword {keyword!r} has no structural form here")
        return translate(value, path, inside)

    def _translators(self) -> Mapping[str, Callable[[Any, str, tuple[str, ...]], Schema]]:
        return {
            "type": _type,
            "const": lambda value, _path, _inside: {"enum": [value]},
            "enum": lambda value, _path, _inside: {"enum": list(value)},
            "required": lambda value, _path, _inside: {"required": list(value)},
            "exclusiveMinimum": lambda value, _path, _inside: {"exclusiveMinimum": value},
            "exclusiveMaximum": lambda value, _path, _inside: {"exclusiveMaximum": value},
            "items": lambda value, path, inside: {"items": self.node(value, f"{path}[]", inside)},
            "properties": self._properties,
            "additionalProperties": self._additional_properties,
        }

    def _properties(self, value: Mapping[str, Any], path: str, inside: tuple[str, ...]) -> Schema:
        properties = {
            name: self.node(schema, f"{path}.{name}".removeprefix("."), inside)
            for name, schema in value.items()
        }
        for name, schema in properties.items():
            if not schema.get("description"):
                raise UnknownSchema(
                    f"{path}.{name}".removeprefix("."), "has no description for kubectl explain"
                )
        return {"properties": properties}

    def _additional_properties(self, value: Any, path: str, inside: tuple[str, ...]) -> Schema:
        if (
            value is False
        ):  # extra="forbid": the API server prunes or refuses unknown fields by itself
            return {}
        if not isinstance(value, Mapping):
            raise UnknownSchema(path, "a map needs a schema for its values")
        return {"additionalProperties": self.node(value, f"{path}{{}}", inside)}


def _only_branch(source: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    branches = [branch for branch in source["anyOf"] if branch.get("type") != "null"]
    if len(branches) != 1:
        raise UnknownSchema(
            path, "a union of types has no structural form; use a discriminating field"
        )
    only: Mapping[str, Any] = branches[0]
    return only


def _type(value: Any, path: str, _inside: tuple[str, ...]) -> Schema:
    if value not in ("object", "array", "string", "integer", "boolean"):
        raise UnknownSchema(path, f"type {value!r} is refused (no floats and no null in a spec)")
    return {"type": value}


def _inclusive_bounds(target: Schema, path: str) -> None:
    for exclusive, inclusive, step in (
        ("exclusiveMinimum", "minimum", 1),
        ("exclusiveMaximum", "maximum", -1),
    ):
        if exclusive in target:
            bound = target.pop(exclusive)
            if (
                target.get("type") != "integer"
                or isinstance(bound, bool)
                or not isinstance(bound, int)
            ):
                raise UnknownSchema(path, f"{exclusive} is understood for integers only")
            target[inclusive] = bound + step


def _check(target: Schema, path: str) -> None:
    kind = target.get("type")
    if kind is None:
        raise UnknownSchema(path, "has no type")
    if missing := [name for name in _needed_bounds(kind, target) if name not in target]:
        raise UnknownSchema(
            path, f"needs {' and '.join(missing)}: the cost of rules is estimated from bounds"
        )
    if "format" in target and target["format"] not in _FORMATS:
        raise UnknownSchema(path, f"format {target['format']!r} would be ignored by the API server")
    _check_exact(target, path)
    if _NOT_RE2.search(target.get("pattern", "")):
        raise UnknownSchema(
            path,
            f"pattern {target['pattern']!r} needs look-around or back-references, which RE2 lacks",
        )
    if target.get("x-kubernetes-list-type") == "map":
        _check_map_keys(target, path)


def _check_exact(target: Schema, path: str) -> None:
    """Refuse a bound beyond 2^53-1, because the API server keeps bounds as floats.

    There 2^63-1 becomes 2^63, overflows to a negative limit, and refuses every value.
    """
    for bound in (target.get("minimum", 0), target.get("maximum", 0)):
        if abs(bound) > _LARGEST_EXACT_BOUND:
            raise UnknownSchema(
                path,
                (
                    f"bound {bound} is beyond 2^53-1, above which the API server does not compare "
                    f"exactly"
                ),
            )


def _needed_bounds(kind: Any, target: Schema) -> tuple[str, ...]:
    if "enum" in target:
        return ()
    if kind == "object":
        return ("maxProperties",) if "additionalProperties" in target else ("properties",)
    needed: Mapping[Any, tuple[str, ...]] = {
        "array": ("items", "maxItems"),
        "string": ("maxLength",),
        "integer": ("minimum", "maximum"),
    }
    return needed.get(kind, ())


def _check_map_keys(target: Schema, path: str) -> None:
    required = target["items"].get("required", [])
    if optional := [
        key for key in target.get("x-kubernetes-list-map-keys", [""]) if key not in required
    ]:
        raise UnknownSchema(
            path, f"list map key {optional[0]!r} must be a required field of its items"
        )


def _trimmed(description: str) -> str:
    return " ".join(description.split())


def crd_document(kind: Kind) -> dict[str, Any]:
    """The CRD of a kind: one served and stored version, status as a subresource, no conversion.

    Raises UnknownSchema.
    """
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
            "apiVersion": {
                "type": "string",
                "description": "Version of the schema of this object.",
            },
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
