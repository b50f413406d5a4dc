"""Reads what `tidegate simulate` plays: policy, tiers and one Simulation, from YAML files.

Every mistake is named by its file, document and field, with what to do; several are named at once.
The operator's own `observe.declared` interprets policy and tiers.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from tidegate.commands.inputs import (
    DEFAULT_NAMESPACE,
    STANDARD_INPUT,
    SUFFIXES,
    PolicySource,
    texts_of,
    with_namespace,
    yaml_documents,
)
from tidegate.errors import InvalidResource
from tidegate.observe.declared import Declared, belongs_to, declare, object_key
from tidegate.observe.metrics_watch import SHORTEST_INTERVAL_SECONDS
from tidegate.resources.fields import parse_moment
from tidegate.resources.kinds import (
    BUDGET,
    GROUP,
    KINDS,
    OVERRIDE,
    POLICY,
    TIER,
    Kind,
    parse_object,
    parse_simulation,
)
from tidegate.resources.simulation import (
    SIMULATION_API_VERSION,
    SIMULATION_GROUP,
    SIMULATION_KIND,
    SimulatedLoad,
    SimulationSpec,
)
from tidegate.simulation.cluster import Background, Demand
from tidegate.simulation.play import Scenario
from tidegate_logic.contracts.leader_scaling import Leaders
from tidegate_logic.model import Direction, Entity, Member, TopicLeaders, Topology

_SHOWN_PROBLEMS = 6
_MOST_BUSY_SECONDS = 1_000_000  # measured: two minutes of one processor, and 0.8 GB
_SHOWN_NAMES = 6
_KNOWN_KINDS = (*(kind.kind for kind in KINDS), SIMULATION_KIND)
_NOTHING = "Nothing was simulated."


@dataclass(frozen=True, slots=True)
class SimulationInput:
    """What to play, its name, and what a reader of the result should know of the input.

    `policy` and `tiers` are the objects as they were written, each with a namespace.
    """

    name: str
    scenario: Scenario
    warnings: tuple[str, ...] = ()
    policy: Mapping[str, Any] = field(default_factory=dict)
    tiers: tuple[Mapping[str, Any], ...] = ()


def read_simulation(
    sources: Sequence[str], *, policy: str | None, standard_input: TextIO
) -> SimulationInput:
    """Read the files. `policy` names one where they hold several.

    Raises NotFound for a file that cannot be read, InvalidResource for everything else.
    """
    found = list(_documents(sources, standard_input))
    place, name, spec = _simulation(found, sources)
    chosen = _policy(found, policy)
    tiers = _objects(found, TIER)
    ours = [one for one in tiers if belongs_to(one.body, chosen.body)]
    if not ours:
        raise InvalidResource(
            f"There is no {TIER.kind} of policy {object_key(chosen.body)} in the given files, and "
            f"{len(tiers)} of other policies. Add the tiers that you apply with it. {_NOTHING}"
        )
    overrides = [one.body for one in _objects(found, OVERRIDE) if belongs_to(one.body, chosen.body)]
    budgets = [one.body for one in _objects(found, BUDGET) if belongs_to(one.body, chosen.body)]
    declared = declare(
        chosen.body,
        [one.body for one in ours],
        overrides=overrides if spec.starts_at is not None else (),
        budgets=budgets,
    )
    _refuse(_policy_problems(chosen.place, declared, spec))
    reading = _Reading(f"{place}: {SIMULATION_KIND} {name}", declared, spec)
    _refuse(reading.problems())
    scenario = reading.scenario()
    _refuse(_too_much(reading.who, scenario))
    warnings = [*PolicySource(declared).remarks(), *_left_out(declared, overrides, spec)]
    warnings += [
        f"{one.place}: {TIER.kind} {object_key(one.body)} belongs to another policy and is left "
        "out."
        for one in tiers
        if one not in ours
    ]
    return SimulationInput(
        name, scenario, tuple(warnings), chosen.body, tuple(one.body for one in ours)
    )


def _too_much(who: str, scenario: Scenario) -> Iterator[str]:
    if scenario.busy_seconds > _MOST_BUSY_SECONDS:
        yield (
            f"{who}: spec.load has {scenario.busy_seconds:,} seconds of members on brokers, and "
            f"more than {_MOST_BUSY_SECONDS:,} would take too long and too much memory. Leave out "
            "brokers and members that are alike, or make the load shorter: a member on 20 brokers "
            "for an hour counts as 72,000."
        )


def _left_out(
    declared: Declared, overrides: Sequence[object], spec: SimulationSpec
) -> Iterator[str]:
    if spec.starts_at is not None:
        return
    unknown = "spec.startsAt of the Simulation does not say what time it is at 0s."
    if overrides:
        yield (
            f"{len(overrides)} QuotaOverrides are left out: they end at a time of day, and "
            f"{unknown}"
        )
    for name, is_set in (
        ("spec.brokers.schedules", declared.policy.schedules),
        ("spec.escalation.calendar", declared.policy.calendar),
    ):
        if is_set:
            yield f"{name} of the policy is left out, because {unknown}"


def _refuse(problems: Iterable[str]) -> None:
    """Raise one InvalidResource for all problems, if there are any."""
    found = list(problems)
    if not found:
        return
    more = len(found) - _SHOWN_PROBLEMS
    shown = [*found[:_SHOWN_PROBLEMS], *([f"And {more} more."] if more > 0 else [])]
    raise InvalidResource("\n".join([*shown, _NOTHING]))


# Documents, each with its place in the files


@dataclass(frozen=True, slots=True)
class _Document:
    place: str
    body: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.body.get("kind"))


def _documents(sources: Sequence[str], standard_input: TextIO) -> Iterator[_Document]:
    """All objects of ours, valid and each with a namespace; foreign ones are skipped."""
    seen: dict[tuple[str, str], str] = {}
    for one in _all_documents(sources, standard_input):
        if not _is_ours(one):
            continue
        document = _Document(one.place, with_namespace(one.body, DEFAULT_NAMESPACE))
        _check(document)
        key = (document.kind, object_key(document.body))
        if key in seen:
            raise InvalidResource(
                f"{document.place}: {key[0]} {key[1]} is defined twice, first in {seen[key]}. "
                f"Remove one. {_NOTHING}"
            )
        seen[key] = document.place
        yield document


def _all_documents(sources: Sequence[str], standard_input: TextIO) -> Iterator[_Document]:
    for name, text in texts_of(sources, standard_input):
        for number, body in enumerate(yaml_documents(name, text), 1):
            place = f"{name}, document {number}"
            if body is None:
                continue
            if not isinstance(body, dict):
                raise InvalidResource(
                    f"{place} is not an object with apiVersion, kind and metadata. {_NOTHING}"
                )
            items = body.get("items")
            if body.get("kind") == "List" and isinstance(items, list):
                yield from (
                    _Document(f"{place}, items[{index}]", item)
                    for index, item in enumerate(items)
                    if isinstance(item, dict)
                )
            else:
                yield _Document(place, body)


def _is_ours(document: _Document) -> bool:
    group = str(document.body.get("apiVersion", "")).partition("/")[0]
    return group in (GROUP, SIMULATION_GROUP) or document.kind in _KNOWN_KINDS


def _check(document: _Document) -> None:
    """Raise InvalidResource, with the place, for a document that breaks its schema."""
    group = str(document.body.get("apiVersion", "")).partition("/")[0]
    if document.kind not in _KNOWN_KINDS:
        raise InvalidResource(
            f"{document.place}: there is no kind {document.kind} of Tidegate. Known are "
            f"{', '.join(_KNOWN_KINDS)}; {SIMULATION_KIND} is of {SIMULATION_API_VERSION}. "
            f"{_NOTHING}"
        )
    try:
        if document.kind == SIMULATION_KIND or group == SIMULATION_GROUP:
            parse_simulation(document.body)
        else:
            parse_object(document.body, strict=True)
    except InvalidResource as error:
        raise InvalidResource(f"{document.place}: {error.message} {_NOTHING}") from None


def _objects(found: Iterable[_Document], kind: Kind) -> list[_Document]:
    return [one for one in found if one.kind == kind.kind]


def _simulation(
    found: Sequence[_Document], sources: Sequence[str]
) -> tuple[str, str, SimulationSpec]:
    """Place, name and spec of the only Simulation."""
    loads = [one for one in found if one.kind == SIMULATION_KIND]
    if len(loads) != 1:
        held = ", ".join(sorted({one.kind for one in found})) or "nothing of Tidegate"
        what = (
            f"There is no {SIMULATION_KIND} in the given files (they hold {held}). "
            f"{_where_one_is(sources)}"
            if not loads
            else f"There are several {SIMULATION_KIND}s in the given files: "
            f"{'; '.join(one.place for one in loads)}. Give one at a time."
        )
        raise InvalidResource(f"{what} {_NOTHING}")
    name, spec = parse_simulation(loads[0].body)
    return loads[0].place, name, spec


def _where_one_is(sources: Sequence[str]) -> str:
    """The command for a Simulation in a folder right below the given ones, or how to write one."""
    folders = [Path(source) for source in sources if source != STANDARD_INPUT]
    files = (path for folder in folders for path in sorted(folder.glob("*/*")))
    below = [path for path in files if path.suffix in SUFFIXES and _has_simulation(path)]
    if below:
        return f"Directories are not searched deeper: `tidegate simulate {below[0]}` finds it."
    return (
        f"Add a document of apiVersion {SIMULATION_API_VERSION} and kind {SIMULATION_KIND} with "
        "the load over time, as in examples/simulate/."
    )


def _has_simulation(path: Path) -> bool:
    try:
        return f"\nkind: {SIMULATION_KIND}\n" in path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def _policy(found: Sequence[_Document], named: str | None) -> _Document:
    policies = _objects(found, POLICY)
    known = ", ".join(object_key(one.body) for one in policies) or "none"
    chosen = [
        one
        for one in policies
        if named in (None, one.body["metadata"]["name"], object_key(one.body))
    ]
    if not chosen:
        asked = f" {named}" if named else ""
        raise InvalidResource(
            f"There is no {POLICY.kind}{asked} in the given files (known: {known}). Give the "
            f"policy's file too. {_NOTHING}"
        )
    if len(chosen) > 1:
        raise InvalidResource(
            f"There are several policies in the given files ({known}). Name one with --policy. "
            f"{_NOTHING}"
        )
    return chosen[0]


def _policy_problems(place: str, declared: Declared, spec: SimulationSpec) -> Iterator[str]:
    policy, who = declared.policy, f"{place}: {POLICY.kind} {declared.policy.key}"
    if declared.spec.metrics is None:
        yield (
            f"{who}: spec.metrics is unset, so no load is ever measured and nothing is throttled. "
            "Add where the brokers are measured."
        )
    if not any(
        limits.of(broker).limit(way) is not None
        for limits in policy.limits_of_all_times
        for broker in spec.brokers
        for way in Direction
    ):
        yield (
            f"{who}: spec.brokers sets no limit for any of the brokers {_listed(spec.brokers)}, so "
            "none is ever over it. Set spec.brokers.egress.limit, ingress.limit or combined.limit."
        )


# The Simulation, against the policy and its tiers


class _Reading:
    """One Simulation with what it is about. `who` begins every problem."""

    def __init__(self, who: str, declared: Declared, spec: SimulationSpec) -> None:
        self.who, self._declared, self._spec = who, declared, spec
        self._members: dict[Entity, tuple[str, Member]] = {}
        for tier in declared.tiers or ():
            for member in tier.members:
                self._members.setdefault(member.entity, (tier.key, member))
        topics = {name: TopicLeaders(leaders) for name, leaders in spec.topics.items()}
        self._topology = Topology(0.0, frozenset(spec.brokers), topics)
        self._leaders = Leaders(self._topology)

    def scenario(self) -> Scenario:
        """What is played. Only for a Simulation without problems."""
        spec, declared, metrics = self._spec, self._declared, self._declared.spec.metrics
        starts = {} if spec.starts_at is None else {"epoch_seconds": parse_moment(spec.starts_at)}
        # nothing that knows the clock can be in force without a time of day
        timeless = replace(declared.policy, schedules=(), calendar=())
        policy = declared.policy if starts else timeless
        return Scenario(
            policy,
            declared.tiers or (),
            self._topology,
            tuple(demand for load in spec.load for demand in self._demands(load)),
            tuple(self._background()),
            declared.overrides or (),
            scrape_seconds=15 if metrics is None else metrics.scrape_interval_seconds,
            shortest_reading_seconds=SHORTEST_INTERVAL_SECONDS,
            seconds=spec.duration,
            budgets=declared.budgets or (),
            **starts,
        )

    def problems(self) -> Iterator[str]:
        """Everything that the schema cannot know, each with its field and what to do."""
        spec = self._spec
        for topic, leaders in spec.topics.items():
            yield from self._unknown_brokers(f"spec.topics.{topic}", leaders)
        for index, load in enumerate(spec.load):
            field = f"spec.load[{index}]"
            yield from self._unknown_brokers(f"{field}.brokers", load.brokers or ())
            yield from self._endless(field, load.begin, load.end)
            yield from self._of_member(field, load)
        for index, other in enumerate(spec.background):
            field = f"spec.background[{index}]"
            yield from self._unknown_brokers(f"{field}.brokers", other.brokers or ())
            yield from self._endless(field, other.begin, other.end)

    def _unknown_brokers(self, field: str, brokers: Iterable[int]) -> Iterator[str]:
        unknown = sorted(set(brokers) - set(self._spec.brokers))
        if unknown:
            yield (
                f"{self.who}: {field} names broker {_listed(unknown)}, which is not in "
                f"spec.brokers ({_listed(self._spec.brokers)}). Correct one of the two."
            )

    def _endless(self, field: str, begin: int, end: int | None) -> Iterator[str]:
        duration = self._spec.duration
        if duration is None and end is None:
            yield (
                f"{self.who}: {field} has no `to`, and spec.duration is unset, so it never ends. "
                "Set one of the two."
            )
        if duration is not None and begin >= duration:
            yield (
                f"{self.who}: {field}.from is {begin} s, and spec.duration is {duration} s, so it "
                "never begins. Correct one of the two."
            )

    def _of_member(self, field: str, load: SimulatedLoad) -> Iterator[str]:
        entity = Entity(load.user, load.client_id)
        if entity not in self._members:
            yield (
                f"{self.who}: {field} is for {entity}, which is in no tier of policy "
                f"{self._declared.policy.key} (members: {self._nearest(entity)}). Name user and "
                "clientId exactly as a member has them; what others move belongs into "
                "spec.background."
            )
            return
        tier_key, member = self._members[entity]
        spread = self._leaders.spread(member.topics)
        called = f"member {member.name} of tier {tier_key}"
        if spread.missing:
            example = ", ".join(f"{broker}: 1" for broker in sorted(self._spec.brokers)[:3])
            yield (
                f"{self.who}: spec.topics has no leaders of {', '.join(spread.missing)}, which "
                f"{called} names ({field}). Say how many partitions each broker leads: "
                f"{spread.missing[0]}: {{{example}}}."
            )
        elif member.topics and not spread.leaders:
            yield (
                f"{self.who}: no broker leads a partition of {', '.join(member.topics)}, which "
                f"{called} names ({field}), so it has no broker to talk to. Set spec.topics."
            )
        elif member.topics:
            named = set(load.brokers or ()) & set(self._spec.brokers)
            idle = sorted(named - spread.led.keys())
            if idle:
                yield (
                    f"{self.who}: {field}.brokers names broker {_listed(idle)}, which leads no "
                    f"partition of {', '.join(member.topics)} ({called}). Its clients talk to "
                    f"leaders only: {_listed(sorted(spread.led))}."
                )

    def _nearest(self, entity: Entity) -> str:
        """Some members, those first that have a part of its name."""
        parts = {part for part in entity if part is not None}
        ordered = sorted(self._members, key=lambda one: (parts.isdisjoint(set(one)), one.sort_key))
        more = len(ordered) - _SHOWN_NAMES
        return ", ".join(map(str, ordered[:_SHOWN_NAMES])) + (f" and {more} more" * (more > 0))

    def _demands(self, load: SimulatedLoad) -> Iterator[Demand]:
        """What it wants of each broker: by its leaders there, all alike without topics."""
        entity = Entity(load.user, load.client_id)
        _, member = self._members[entity]
        led: Mapping[int, int] = self._leaders.spread(member.topics).led
        weights = led if member.topics else dict.fromkeys(self._spec.brokers, 1)
        if load.brokers is not None:
            weights = {broker: weights[broker] for broker in load.brokers}
        total = sum(weights.values())
        for way, rate in ((Direction.EGRESS, load.fetch), (Direction.INGRESS, load.produce)):
            for broker, weight in weights.items():
                if rate is not None:
                    share = weight / total
                    fastest = None if load.catch_up is None else load.catch_up * share
                    yield Demand(entity, way, broker, rate * share, load.begin, load.end, fastest)

    def _background(self) -> Iterator[Background]:
        for one in self._spec.background:
            for way, rate in ((Direction.EGRESS, one.egress), (Direction.INGRESS, one.ingress)):
                for broker in one.brokers or self._spec.brokers:
                    if rate is not None:
                        yield Background(broker, way, float(rate), one.begin, one.end)


def _listed(brokers: Collection[int]) -> str:
    return ", ".join(map(str, brokers))
