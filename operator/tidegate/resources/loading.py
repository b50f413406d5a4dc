"""Turns documents into custom resources, or into one sentence that says which field of which object is wrong.

Objects from the API server are read leniently: a field that this version does not know is dropped, so that an older
operator survives a newer CRD. Files that a person hands us are read strictly: an unknown field is a spelling mistake.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from tidegate.errors import InvalidResource
from tidegate.resources.kinds import API_VERSION, KINDS, OVERRIDE, POLICY, TIER, Kind
from tidegate.resources.objects import BrokerBandwidthPolicy, BusinessTier, CustomResource, ObjectMeta, QuotaOverride
from tidegate.resources.override import OverrideSpec
from tidegate.resources.policy import PolicySpec
from tidegate.resources.rules import BrokenRule, enforce
from tidegate.resources.tiers import TierSpec

_SHOWN_PROBLEMS = 5
_SHOWN_VALUE_LENGTH = 80

Model = TypeVar("Model", bound=BaseModel)


def parse_object(document: Mapping[str, Any], *, strict: bool) -> CustomResource:
    """The custom resource in a document of any kind of ours; status is ignored.

    Raises InvalidResource with the object's name, the path of each wrong field and what must hold there. `strict` also
    refuses fields that the kind does not have.
    """
    kind = next((kind for kind in KINDS if kind.kind == document.get("kind")), None)
    if kind is None or document.get("apiVersion") != API_VERSION:
        found = f"{document.get('apiVersion')}, kind {document.get('kind')}"
        raise InvalidResource(f"Not an object of Tidegate: {found}. Known are {' and '.join(k.kind for k in KINDS)} of {API_VERSION}.")
    if kind is POLICY:
        return parse_policy(document, strict=strict)
    return parse_tier(document, strict=strict) if kind is TIER else parse_override(document, strict=strict)


def parse_policy(document: Mapping[str, Any], *, strict: bool) -> BrokerBandwidthPolicy:
    """The policy in a document whose kind is known already. Raises InvalidResource as `parse_object` does."""
    metadata = _metadata(document, POLICY)
    return BrokerBandwidthPolicy(metadata, _spec(document, PolicySpec, name=_name(POLICY, metadata.key), strict=strict))


def parse_tier(document: Mapping[str, Any], *, strict: bool) -> BusinessTier:
    """The tier in a document whose kind is known already. Raises InvalidResource as `parse_object` does."""
    metadata = _metadata(document, TIER)
    return BusinessTier(metadata, _spec(document, TierSpec, name=_name(TIER, metadata.key), strict=strict))


def parse_override(document: Mapping[str, Any], *, strict: bool) -> QuotaOverride:
    """The override in a document whose kind is known already. Raises InvalidResource as `parse_object` does."""
    metadata = _metadata(document, OVERRIDE)
    return QuotaOverride(metadata, _spec(document, OverrideSpec, name=_name(OVERRIDE, metadata.key), strict=strict))


def _metadata(document: Mapping[str, Any], kind: Kind) -> ObjectMeta:
    raw = document.get("metadata") or {}
    shown = str(raw.get("name", "without a name")) if isinstance(raw, Mapping) else "without metadata"
    metadata = _validated(ObjectMeta, raw, path="metadata", name=_name(kind, shown), extra="ignore")
    try:
        enforce(kind.rules, metadata)
    except BrokenRule as broken:
        raise _invalid(_name(kind, metadata.key), [str(broken)]) from None
    return metadata


def _spec(document: Mapping[str, Any], model: type[Model], *, name: str, strict: bool) -> Model:
    unknown = sorted(set(document) - {"apiVersion", "kind", "metadata", "spec", "status"}) if strict else []
    if unknown:
        raise _invalid(name, [f"{field} is not a field of this kind; check its spelling" for field in unknown])
    return _validated(model, document.get("spec"), path="spec", name=name, extra="forbid" if strict else "ignore")


def _validated(model: type[Model], raw: object, *, path: str, name: str, extra: Literal["ignore", "forbid"]) -> Model:
    if not isinstance(raw, Mapping):
        raise _invalid(name, [f"{path} is required and must be an object"])
    try:
        # as JSON, because that is what the API server sees: no coercion, and lists are lists
        return model.model_validate_json(json.dumps(raw, default=str), extra=extra, by_alias=True, by_name=False)
    except ValidationError as error:
        raise _invalid(name, [_problem(path, details) for details in error.errors(include_url=False) if not _is_echo(details)]) from None


def _name(kind: Kind, key: str) -> str:
    return f"{kind.kind} {key}"


def _invalid(name: str, problems: list[str]) -> InvalidResource:
    more = len(problems) - _SHOWN_PROBLEMS
    shown = problems[:_SHOWN_PROBLEMS] + ([f"and {more} more"] if more > 0 else [])
    return InvalidResource(f"{name} is not valid and changes nothing until it is mended: {'; '.join(shown)}.")


def _problem(path: str, details: Any) -> str:
    cause = details.get("ctx", {}).get("error")
    field = path + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in details["loc"])
    field += cause.field_path if isinstance(cause, BrokenRule) else ""
    return f"{field}: {_must(details)}{_shown(details)}"


def _is_echo(details: Any) -> bool:
    """Whether a list is called too short only because its wrong items were left out; those are reported themselves."""
    return bool(details["type"] == "too_short" and len(details["input"]) >= details["ctx"]["min_length"])


def _must(details: Any) -> str:
    if details["type"] == "missing":
        return "is required"
    if details["type"] == "extra_forbidden":
        return "is not a field of this kind; check its spelling"
    return re.sub(r"^(Value error, |(Input|String|Tuple) (?=should))", "", str(details["msg"])).replace("should ", "must ", 1)


def _shown(details: Any) -> str:
    value = details.get("input")
    if details["type"] == "missing" or not isinstance(value, str | int | float):
        return ""
    text = json.dumps(value)
    return f" (found {text if len(text) <= _SHOWN_VALUE_LENGTH else text[:_SHOWN_VALUE_LENGTH] + '...'})"
