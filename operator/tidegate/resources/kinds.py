"""The kinds that Tidegate serves: their names, columns and models.

The CRDs and the reference page are made from these.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from tidegate.errors import InvalidResource
from tidegate.queues.names import QueueNames
from tidegate.resources import rates
from tidegate.resources.budget import BudgetSpec, BudgetStatus
from tidegate.resources.delay_queue import (
    MAX_QUEUE_NAME_LENGTH,
    DelayQueueSpec,
    DelayQueueStatus,
)
from tidegate.resources.policy import PolicySpec
from tidegate.resources.rates import rate_hint
from tidegate.resources.schema import BrokenRule, Rule, SchemaModel, enforce
from tidegate.resources.simulation import SIMULATION_API_VERSION, SIMULATION_KIND, SimulationSpec
from tidegate.resources.status import OverrideStatus, PolicyStatus, TierStatus
from tidegate.resources.tiers import OverrideSpec, TierSpec

# Whole custom resources as they are read: metadata and spec, without the status.


class ObjectMeta(BaseModel):
    """Name and namespace of a resource.

    Other metadata is read from the raw object where it is needed.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    name: str = Field(min_length=1, max_length=253)
    namespace: str = Field(default="default", min_length=1, max_length=253)

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class BrokerBandwidthPolicy:
    """One Kafka cluster and the bandwidth of its brokers."""

    metadata: ObjectMeta
    spec: PolicySpec


@dataclass(frozen=True, slots=True)
class BusinessTier:
    """A group of businesses: their importance, their contract and their throttled rates."""

    metadata: ObjectMeta
    spec: TierSpec

    @property
    def policy_key(self) -> str:
        """namespace/name of the policy."""
        reference = self.spec.policy_ref
        return f"{reference.namespace or self.metadata.namespace}/{reference.name}"


@dataclass(frozen=True, slots=True)
class QuotaOverride:
    """A temporary override for one member or one level, which ends automatically."""

    metadata: ObjectMeta
    spec: OverrideSpec

    @property
    def policy_key(self) -> str:
        """namespace/name of the policy, which lives in the same namespace."""
        return f"{self.metadata.namespace}/{self.spec.policy_ref.name}"


@dataclass(frozen=True, slots=True)
class DelayQueue:
    """A queue of messages that wait."""

    metadata: ObjectMeta
    spec: DelayQueueSpec

    @property
    def policy_key(self) -> str:
        """namespace/name of the policy."""
        reference = self.spec.policy_ref
        return f"{reference.namespace or self.metadata.namespace}/{reference.name}"

    @property
    def prefix(self) -> str:
        """First part of the names of its topics."""
        return self.spec.topic_prefix or f"{self.metadata.namespace}.{self.metadata.name}"


@dataclass(frozen=True, slots=True)
class BandwidthBudget:
    """One limit for many members."""

    metadata: ObjectMeta
    spec: BudgetSpec

    @property
    def policy_key(self) -> str:
        """namespace/name of the policy, which lives in the same namespace."""
        return f"{self.metadata.namespace}/{self.spec.policy_ref.name}"


CustomResource = BrokerBandwidthPolicy | BusinessTier | QuotaOverride | DelayQueue | BandwidthBudget


GROUP = "tidegate.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
# Not `kafka`: kubectl expands a category before it looks for a kind, so beside Strimzi `kubectl get
# kafka` and `kubectl delete kafka --all` would be about our kinds and not about Strimzi's.
CATEGORY = "tidegate"

MAX_POLICY_NAME_LENGTH = 63


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`; `priority` above zero hides it from the narrow output."""

    name: str
    json_path: str
    description: str
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of custom resource.

    `rules` see the whole object, of which CEL shows only spec, status and the name.
    """

    kind: str
    plural: str
    short_name: str
    summary: str
    spec: type[SchemaModel]
    status: type[SchemaModel]
    columns: tuple[Column, ...]
    rules: tuple[Rule, ...] = ()
    selectable_fields: tuple[str, ...] = ()

    @property
    def crd_name(self) -> str:
        """Name of the CustomResourceDefinition."""
        return f"{self.plural}.{GROUP}"


def _ready(path: str = "status") -> str:
    return f'.status.conditions[?(@.type=="Ready")].{path}'


_AGE = Column(
    name="Age",
    json_path=".metadata.creationTimestamp",
    description="Time since the object was created.",
    type="date",
)
_READY = Column(
    name="Ready", json_path=_ready(), description="Whether the object's spec is fully in effect."
)
_REASON = Column(
    name="Reason", json_path=_ready("reason"), description="Why it is ready or not.", priority=1
)

POLICY = Kind(
    kind="BrokerBandwidthPolicy",
    plural="brokerbandwidthpolicies",
    short_name="bbp",
    summary="One Kafka cluster and the bandwidth of its brokers.",
    spec=PolicySpec,
    status=PolicyStatus,
    columns=(
        Column(name="Mode", json_path=".spec.mode", description="Observe or Enforce."),
        Column(
            name="Brokers",
            json_path=".status.summary.brokers",
            description="Live brokers.",
            type="integer",
        ),
        Column(
            name="Over",
            json_path=".status.summary.overShown",
            description="Brokers over their limit; `?` for those whose load is unknown. Empty "
            "if load is not measured.",
        ),
        Column(
            name="Throttled",
            json_path=".status.summary.throttled",
            description="Levels below their contract now.",
            type="integer",
        ),
        Column(
            name="Quotas",
            json_path=".status.quotas.managed",
            description="Entities with a quota that Tidegate manages.",
            type="integer",
        ),
        Column(
            name="InSync",
            json_path=".status.quotas.inSync",
            description="How many of those quotas are as decided.",
            type="integer",
        ),
        Column(
            name="Cluster",
            json_path=".status.clusterId",
            description="Id of the Kafka cluster.",
            priority=1,
        ),
        _READY,
        _REASON,
        _AGE,
    ),
    rules=(
        Rule(
            cel=f"self.metadata.name.size() <= {MAX_POLICY_NAME_LENGTH}",
            message=f"metadata.name must have at most {MAX_POLICY_NAME_LENGTH} characters: it "
            f"becomes a label and part of a Lease's name",
            holds=lambda metadata: len(metadata.name) <= MAX_POLICY_NAME_LENGTH,
        ),
    ),
)

TIER = Kind(
    kind="BusinessTier",
    plural="businesstiers",
    short_name="bt",
    summary="A group of businesses: how important they are, what they are promised and what they "
    "drop to.",
    spec=TierSpec,
    status=TierStatus,
    columns=(
        Column(
            name="Level",
            json_path=".spec.level",
            description="L0 is never throttled; L3 is throttled first.",
        ),
        Column(
            name="Policy",
            json_path=".spec.policyRef.name",
            description="The policy that the tier belongs to.",
        ),
        Column(
            name="Members",
            json_path=".status.summary.members",
            description="Members of the tier.",
            type="integer",
        ),
        Column(
            name="State",
            json_path=".status.summary.state",
            description="The member state that most needs attention.",
        ),
        _READY,
        _REASON,
        _AGE,
    ),
    selectable_fields=(".spec.policyRef.name",),
)

OVERRIDE = Kind(
    kind="QuotaOverride",
    plural="quotaoverrides",
    short_name="qo",
    summary="A temporary override for one member or one level, which ends automatically.",
    spec=OverrideSpec,
    status=OverrideStatus,
    columns=(
        Column(
            name="Policy",
            json_path=".spec.policyRef.name",
            description="The policy that the override belongs to.",
        ),
        Column(
            name="Target",
            json_path=".status.summary.target",
            description="The member or level that it applies to.",
        ),
        Column(
            name="State",
            json_path=".status.state",
            description="Pending, Scheduled, Active or Expired.",
        ),
        Column(
            name="Starts",
            json_path=".status.startsAt",
            description="When it next begins.",
            priority=1,
        ),
        Column(name="Until", json_path=".status.until", description="When it ends."),
        Column(
            name="Ready",
            json_path=_ready(),
            description="Whether it is in force for every member that it names.",
        ),
        _REASON,
        _AGE,
    ),
    selectable_fields=(".spec.policyRef.name",),
)

QUEUE = Kind(
    kind="DelayQueue",
    plural="delayqueues",
    short_name="dq",
    summary="A queue of messages that are sent on to their target after a delay.",
    spec=DelayQueueSpec,
    status=DelayQueueStatus,
    columns=(
        Column(
            name="Policy",
            json_path=".spec.policyRef.name",
            description="The policy that the queue belongs to.",
        ),
        Column(
            name="Guarantee",
            json_path=".spec.guarantee",
            description="AtLeastOnce or ExactlyOnce.",
        ),
        Column(
            name="Waiting",
            json_path=".status.summary.waiting",
            description="Messages that were not sent on yet.",
            type="integer",
        ),
        Column(
            name="Late",
            json_path=".status.summary.oldestLateSeconds",
            description="Seconds that the oldest of them has been due.",
            type="integer",
        ),
        Column(
            name="Dead",
            json_path=".status.dead",
            description="Messages that could not be sent on.",
            type="integer",
        ),
        _READY,
        _REASON,
        _AGE,
    ),
    rules=(
        Rule(
            cel=f"self.metadata.name.size() <= {MAX_QUEUE_NAME_LENGTH}",
            message=f"metadata.name must have at most {MAX_QUEUE_NAME_LENGTH} characters: it "
            f"becomes a label and part of topics' names",
            holds=lambda metadata: len(metadata.name) <= MAX_QUEUE_NAME_LENGTH,
        ),
    ),
    selectable_fields=(".spec.policyRef.name",),
)

BUDGET = Kind(
    kind="BandwidthBudget",
    plural="bandwidthbudgets",
    short_name="bb",
    summary="One limit for many members, divided among them by what they use.",
    spec=BudgetSpec,
    status=BudgetStatus,
    columns=(
        Column(
            name="Policy",
            json_path=".spec.policyRef.name",
            description="The policy that the budget belongs to.",
        ),
        Column(name="Parent", json_path=".spec.parent.name", description="The budget above it."),
        Column(
            name="Members",
            json_path=".status.summary.members",
            description="Members of the budget itself.",
            type="integer",
        ),
        Column(
            name="Fetch",
            json_path=".status.summary.fetch",
            description="Measured fetch rate of the total.",
        ),
        Column(
            name="Produce",
            json_path=".status.summary.produce",
            description="Measured produce rate of the total.",
        ),
        Column(
            name="Ready",
            json_path=_ready(),
            description="Whether it is divided by what members use.",
        ),
        _REASON,
        _AGE,
    ),
    selectable_fields=(".spec.policyRef.name",),
)

KINDS = (POLICY, TIER, OVERRIDE, QUEUE, BUDGET)


# Documents to custom resources, or an error that names the object and its wrong fields.
#
# Objects from the API server are read leniently: an unknown field is dropped, so that an older
# operator works with a newer CRD. Files of a person are read strictly: an unknown field is a
# misspelt one.


_SHOWN_PROBLEMS = 5
_SHOWN_VALUE_LENGTH = 80
_UNKNOWN_FIELD = "is not a field of this kind; check its spelling"

Model = TypeVar("Model", bound=BaseModel)


def parse_object(document: Mapping[str, Any], *, strict: bool) -> CustomResource:
    """The custom resource in a document of any kind of ours; status is ignored.

    Raises InvalidResource with the object's name, the path of each wrong field and what must hold
    there. `strict` also refuses fields that the kind does not have.
    """
    kind = next((kind for kind in KINDS if kind.kind == document.get("kind")), None)
    if kind is None or document.get("apiVersion") != API_VERSION:
        found = f"{document.get('apiVersion')}, kind {document.get('kind')}"
        raise InvalidResource(
            f"Not an object of Tidegate: {found}. Known are {' and '.join(k.kind for k in KINDS)} "
            f"of {API_VERSION}."
        )
    if kind is POLICY:
        return parse_policy(document, strict=strict)
    if kind is QUEUE:
        return parse_queue(document, strict=strict)
    if kind is BUDGET:
        return parse_budget(document, strict=strict)
    return (
        parse_tier(document, strict=strict)
        if kind is TIER
        else parse_override(document, strict=strict)
    )


def parse_policy(document: Mapping[str, Any], *, strict: bool) -> BrokerBandwidthPolicy:
    """The policy in a document of that kind.

    Raises InvalidResource as `parse_object` does.
    """
    metadata = _metadata(document, POLICY)
    return BrokerBandwidthPolicy(
        metadata, _spec(document, PolicySpec, name=_name(POLICY, metadata.key), strict=strict)
    )


def parse_tier(document: Mapping[str, Any], *, strict: bool) -> BusinessTier:
    """The tier in a document of that kind.

    Raises InvalidResource as `parse_object` does.
    """
    metadata = _metadata(document, TIER)
    return BusinessTier(
        metadata, _spec(document, TierSpec, name=_name(TIER, metadata.key), strict=strict)
    )


def parse_override(document: Mapping[str, Any], *, strict: bool) -> QuotaOverride:
    """The override in a document of that kind.

    Raises InvalidResource as `parse_object` does.
    """
    metadata = _metadata(document, OVERRIDE)
    return QuotaOverride(
        metadata, _spec(document, OverrideSpec, name=_name(OVERRIDE, metadata.key), strict=strict)
    )


def parse_budget(document: Mapping[str, Any], *, strict: bool) -> BandwidthBudget:
    """The budget in a document of that kind.

    Raises InvalidResource as `parse_object` does.
    """
    metadata = _metadata(document, BUDGET)
    return BandwidthBudget(
        metadata, _spec(document, BudgetSpec, name=_name(BUDGET, metadata.key), strict=strict)
    )


def parse_queue(document: Mapping[str, Any], *, strict: bool) -> DelayQueue:
    """The queue in a document of that kind.

    Raises InvalidResource as `parse_object` does, and for a default target that is a topic of the
    queue itself: the schema cannot see the namespace.
    """
    metadata = _metadata(document, QUEUE)
    name = _name(QUEUE, metadata.key)
    queue = DelayQueue(metadata, _spec(document, DelayQueueSpec, name=name, strict=strict))
    if QueueNames(queue.prefix).is_own(queue.spec.target.default):
        problem = _Problem("spec.target", "target.default must not be a topic of the queue itself")
        raise _invalid(name, [problem])
    return queue


def parse_simulation(document: Mapping[str, Any]) -> tuple[str, SimulationSpec]:
    """Name and spec of the load in a document of that kind, which is only ever read from a file.

    Raises InvalidResource as `parse_object` does.
    """
    if document.get("apiVersion") != SIMULATION_API_VERSION:
        raise InvalidResource(
            f"A {SIMULATION_KIND} of {document.get('apiVersion') or 'no apiVersion'}; this version "
            f"knows {SIMULATION_API_VERSION}."
        )
    raw = document.get("metadata") or {}
    shown = f"{SIMULATION_KIND} {raw.get('name', '') if isinstance(raw, Mapping) else ''}".rstrip()
    metadata = _validated(ObjectMeta, raw, path="metadata", name=shown, extra="ignore")
    name = f"{SIMULATION_KIND} {metadata.name}"
    return metadata.name, _spec(document, SimulationSpec, name=name, strict=True)


def _metadata(document: Mapping[str, Any], kind: Kind) -> ObjectMeta:
    raw = document.get("metadata") or {}
    shown = (
        str(raw.get("name", "without a name")) if isinstance(raw, Mapping) else "without metadata"
    )
    metadata = _validated(ObjectMeta, raw, path="metadata", name=_name(kind, shown), extra="ignore")
    try:
        enforce(kind.rules, metadata)
    except BrokenRule as broken:
        raise _invalid(_name(kind, metadata.key), [_Problem("", str(broken))]) from None
    return metadata


def _spec(document: Mapping[str, Any], model: type[Model], *, name: str, strict: bool) -> Model:
    unknown = (
        sorted(set(document) - {"apiVersion", "kind", "metadata", "spec", "status"})
        if strict
        else []
    )
    if unknown:
        raise _invalid(name, [_Problem(field, _UNKNOWN_FIELD) for field in unknown])
    return _validated(
        model, document.get("spec"), path="spec", name=name, extra="forbid" if strict else "ignore"
    )


def _validated(
    model: type[Model], raw: object, *, path: str, name: str, extra: Literal["ignore", "forbid"]
) -> Model:
    if not isinstance(raw, Mapping):
        raise _invalid(name, [_Problem(path, "is required and must be an object")])
    try:
        # as JSON, because that is what the API server sees: no coercion, and lists are lists
        text = json.dumps(raw, default=_plain)
        if "null" in text:  # few have one, and a copy of 500 members takes as long as the rest
            text = json.dumps(_without_nulls(raw), default=_plain)
        return model.model_validate_json(text, extra=extra, by_alias=True, by_name=False)
    except ValidationError as error:
        raise _invalid(
            name,
            [
                _problem(path, details, model)
                for details in error.errors(include_url=False)
                if not _is_echo(details)
            ],
        ) from None


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _without_nulls(value: Any) -> Any:
    """Leave out every field with the value null, as the API server does before it validates."""
    if isinstance(value, Mapping):
        return {name: _without_nulls(below) for name, below in value.items() if below is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _name(kind: Kind, key: str) -> str:
    return f"{kind.kind} {key}"


@dataclass(frozen=True, slots=True)
class _Problem:
    """One wrong field, what must hold there, and the value that was found, if it can be shown."""

    field: str
    must: str
    found: str = ""
    hint: str = ""

    def __str__(self) -> str:
        """The field with what to write, where that is sure, or else with all that must hold."""
        words = self.hint or f"{self.must}{self.found}"
        return f"{self.field}: {words}" if self.field else self.must


def _invalid(name: str, problems: list[_Problem]) -> InvalidResource:
    more = len(problems) - _SHOWN_PROBLEMS
    shown = [*map(str, problems[:_SHOWN_PROBLEMS]), *([f"and {more} more"] if more > 0 else [])]
    return InvalidResource(
        f"{name} is not valid and changes nothing until it is corrected: {'; '.join(shown)}.",
        problems=tuple((problem.field, problem.must) for problem in problems),
    )


def _problem(path: str, details: Any, model: type[BaseModel]) -> _Problem:
    cause = details.get("ctx", {}).get("error")
    field = path + "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in details["loc"]
    )
    field += cause.field_path if isinstance(cause, BrokenRule) else ""
    return _Problem(field, _must(details), _shown(details), _hint(details, model))


def _hint(details: Any, model: type[BaseModel]) -> str:
    """What was probably meant; empty where that is not sure."""
    value = details.get("input")
    if details["type"] == "extra_forbidden":
        meant = get_close_matches(str(details["loc"][-1]), _names_at(model, details["loc"][:-1]), 1)
        return f"is not a field of this kind (did you mean {meant[0]}?)" if meant else ""
    return rate_hint(value) if isinstance(value, str) and rates.MESSAGE in details["msg"] else ""


def _names_at(model: Any, place: Sequence[str | int]) -> list[str]:
    """The fields that the part of a spec at this place has; none where it is not found."""
    for name in place:
        if isinstance(name, int):
            continue
        models = _models(field.annotation for field in _fields(model) if field.alias == name)
        if len(models) != 1:
            return []
        model = models[0]
    return [field.alias or "" for field in _fields(model)]


def _fields(model: type[BaseModel]) -> Iterable[FieldInfo]:
    return model.model_fields.values()


def _models(annotations: Iterable[Any]) -> list[type[BaseModel]]:
    """The parts that an annotation is of: itself, or what is optional or listed in it."""
    found: list[type[BaseModel]] = []
    for annotation in annotations:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            found.append(annotation)
        else:
            found += _models(get_args(annotation))
    return found


def _is_echo(details: Any) -> bool:
    """Whether a list is too short only because its wrong items, reported anyway, were left out."""
    return bool(
        details["type"] == "too_short" and len(details["input"]) >= details["ctx"]["min_length"]
    )


# of lists and maps
_BOUNDS = {"too_short": ("least", "min_length"), "too_long": ("most", "max_length")}


def _must(details: Any) -> str:
    if details["type"] == "missing":
        return "is required"
    if details["type"] == "extra_forbidden":
        return _UNKNOWN_FIELD
    if details["type"] in _BOUNDS:
        bound, name = _BOUNDS[details["type"]]
        count = details["ctx"][name]
        return f"must have at {bound} {count} {'item' if count == 1 else 'items'}"
    return re.sub(r"^(Value error, |(Input|String) (?=should))", "", str(details["msg"])).replace(
        "should ", "must ", 1
    )


def _shown(details: Any) -> str:
    value = details.get("input")
    if details["type"] == "missing" or not isinstance(value, str | int | float):
        return ""
    text = json.dumps(value, ensure_ascii=False)
    return (
        " (found "
        f"{text if len(text) <= _SHOWN_VALUE_LENGTH else text[:_SHOWN_VALUE_LENGTH] + '...'})"
    )
