"""What `tidegate import` prints: members with proposed levels, in BusinessTiers of like rates."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from textwrap import indent
from typing import Any

from tidegate.errors import InvalidResource
from tidegate_logic.model import Entity, Level

# Work that can wait, by the words that people name it with; all other clients are proposed for L2.
_CAN_WAIT = re.compile(
    r"(?:^|[^a-z])(?:ad-?hoc|analytics|archive|back-?fill|batch|bench|crawler|dump|etl|export|"
    r"import|load-?test|migrat\w*|mirror\w*|nightly|replay|report\w*|spark|test)(?:[^a-z]|$)"
)


def matches_any(entity: Entity, patterns: Sequence[str] | None) -> bool:
    """Whether it is like one of the patterns; without any, all are."""
    return not patterns or any(fits(entity, pattern) for pattern in patterns)


def fits(entity: Entity, pattern: str) -> bool:
    """Whether its user or its client id is like the pattern."""
    names = (entity.user, entity.client_id)
    return any(isinstance(name, str) and fnmatchcase(name, pattern) for name in names)


def level_rule(text: str) -> tuple[str, Level]:
    """The pattern and the level of one --level-of. Raises InvalidResource."""
    pattern, _, level = text.rpartition("=")
    if not pattern or level not in [one.value for one in Level]:
        raise InvalidResource(
            f"--level-of {text!r} cannot be read. Write it as PATTERN=LEVEL, for example "
            "'checkout*=L0'."
        )
    return pattern, Level(level)


@dataclass(frozen=True, slots=True)
class Proposal:
    """One member with its level; `rates` are bytes per second on each broker, by direction.

    `comments` are lines that are printed above it: where the contract comes from.
    """

    level: Level
    document: Mapping[str, Any]
    rates: Mapping[str, int]
    comments: tuple[str, ...] = ()

    @property
    def magnitude(self) -> int:
        """The power of ten of its smallest rate: members of a tier have the same."""
        return len(str(min(self.rates.values()))) - 1


@dataclass(slots=True)
class Proposals:
    """The members, and a sentence for each entity that becomes none. No two have one name."""

    members: list[Proposal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def add(
        self,
        entity: Entity,
        contract: Mapping[str, Any],
        rates: Mapping[str, int],
        *,
        levels: Sequence[tuple[str, Level]],
        comments: tuple[str, ...] = (),
    ) -> str | None:
        """Add a member with this contract; why it fits none, where it does not.

        The first of `levels` that fits the entity is its own.
        """
        from pydantic import ValidationError

        from tidegate.resources.tiers import TierMember

        name = _member_name(entity, self.names)
        parts = {"user": entity.user, "clientId": entity.client_id}
        document = {
            "name": name,
            **{field_name: part for field_name, part in parts.items() if part is not None},
            "contract": contract,
        }
        try:
            TierMember.model_validate(document)
        except ValidationError as error:
            return "; ".join(
                details["msg"].removeprefix("Value error, ") for details in error.errors()
            )
        self.names.add(name)
        self.members.append(Proposal(level_of(entity, levels), document, rates, comments))
        return None


def level_of(entity: Entity, levels: Sequence[tuple[str, Level]]) -> Level:
    """The level of the first rule that fits, else the one proposed by name."""
    for pattern, level in levels:
        if fits(entity, pattern):
            return level
    spelled = " ".join(str(part).lower() for part in (entity.user, entity.client_id) if part)
    return Level.L3 if _CAN_WAIT.search(spelled) else Level.L2


def _member_name(entity: Entity, taken: set[str]) -> str:
    """A name by user and client id that no other member has."""
    spelled = "-".join(str(part) for part in (entity.user, entity.client_id) if part)
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", spelled).strip("._-")[:120] or "member"
    name, number = plain, 1
    while name in taken:
        number += 1
        name = f"{plain}-{number}"
    return name


DIRECTIONS = ("fetch", "produce")
_UNITS = (("G", 10**9), ("M", 10**6), ("k", 10**3))
_BINARY_UNITS = (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def quantity(bytes_per_second: int) -> str:
    """The exact rate as people write it: 50M, 10Mi, or the number where no unit divides it."""
    for unit, size in (*_UNITS, *_BINARY_UNITS):
        if bytes_per_second % size == 0:
            return f"{bytes_per_second // size}{unit}"
    return str(bytes_per_second)


Tiers = list[tuple[dict[str, Any], list[Proposal]]]


def tiers_of(
    members: Iterable[Proposal], policy_key: str, *, throttled_percent: int, prefix: str
) -> Tiers:
    """BusinessTiers of members of one level whose rates are alike, the most important first.

    Their names begin with `prefix`.
    """
    from tidegate.resources.tiers import MAX_MEMBERS

    groups: dict[tuple[Level, int], list[Proposal]] = {}
    for one in members:
        groups.setdefault((one.level, one.magnitude), []).append(one)
    tiers: Tiers = []
    for (level, magnitude), group in sorted(groups.items()):
        for part, first in enumerate(range(0, len(group), MAX_MEMBERS)):
            some = group[first : first + MAX_MEMBERS]
            name = f"{prefix}-{level.value.lower()}-{quantity(10**magnitude).lower()}"
            name += f"-{part + 1}" if part else ""
            tier = _tier(name, level, some, policy_key, throttled_percent=throttled_percent)
            tiers.append((tier, some))
    return tiers


def text_of(tiers: Tiers) -> str:
    """The tiers as YAML documents, each member below its comments."""
    return "---\n".join(_document(manifest, members) for manifest, members in tiers)


def _document(manifest: Mapping[str, Any], members: Sequence[Proposal]) -> str:
    from tidegate.yaml_text import yaml_text

    if not any(one.comments for one in members):
        return yaml_text(manifest)
    # the members are the last field of the last object
    spec = {name: one for name, one in manifest["spec"].items() if name != "members"}
    lines = [yaml_text({**manifest, "spec": spec}), "  members:\n"]
    for one in members:
        lines += [f"  # {comment}\n" for comment in one.comments]
        lines.append(indent(yaml_text([dict(one.document)]), "  "))
    return "".join(lines)


def _tier(
    name: str,
    level: Level,
    members: Sequence[Proposal],
    policy_key: str,
    *,
    throttled_percent: int,
) -> dict[str, Any]:
    from tidegate.resources.kinds import API_VERSION, parse_object
    from tidegate.resources.rates import FLOOR_BYTES_PER_SECOND

    namespace, _, policy = policy_key.partition("/")
    spec: dict[str, Any] = {"policyRef": {"name": policy}, "level": level.value}
    if level is not Level.L0:
        smallest = {
            way: min(one.rates[way] for one in members if way in one.rates)
            for way in DIRECTIONS
            if any(way in one.rates for one in members)
        }
        spec["throttledRates"] = {
            "perBroker": {
                way: quantity(
                    max(FLOOR_BYTES_PER_SECOND, _rounded_down(rate * throttled_percent // 100))
                )
                for way, rate in smallest.items()
            }
        }
    spec["members"] = [dict(one.document) for one in members]
    manifest = {
        "apiVersion": API_VERSION,
        "kind": "BusinessTier",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
    parse_object(manifest, strict=True)
    return manifest


def _rounded_down(rate: int) -> int:
    """Two digits of it, which people can read."""
    size: int = 10 ** max(0, len(str(rate)) - 2)
    return rate // size * size
