"""Which audit lines one viewer may read: those about the policy, and tiers that they may list.

A trail has the lines of every tier of a policy, also of namespaces in which the viewer may list
nothing. Pure. Lines that may concern others are left out, and counted.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidegate.control.audit.lines import AuditLine

_OF_THE_POLICY: Final = frozenset({"hold", "lost"})
_PARTS: Final = ("actions", "notDone", "entities")  # of a round, an effect, an override
_NAMES_SOMEBODY: Final = re.compile(r"\b(user|client-id)=")
_DEFAULTS_ALONE: Final = frozenset(
    {"user=<default>", "client-id=<default>", "user=<default>, client-id=<default>"}
)  # only policies name them


@dataclass(frozen=True, slots=True)
class Sight:
    """What a viewer may list: `entities` are those of their own tiers, as lines write them."""

    entities: frozenset[str]
    tiers_in: Callable[[str], bool]
    overrides_in: Callable[[str], bool]


def readable(lines: Iterable[AuditLine], sight: Sight) -> tuple[list[AuditLine], int]:
    """The lines that the viewer may read, newest first as given; how many lack something or all."""
    given = list(lines)
    tier_of: dict[str, str] = {}
    for line in given:
        if line.get("kind") == "write" and line.get("tier"):
            tier_of.setdefault(str(line["entity"]), str(line["tier"]))

    def is_own(entity: str) -> bool:
        if entity in _DEFAULTS_ALONE or entity in sight.entities:
            return True
        tier = tier_of.get(entity)  # of a member that is gone by now
        return tier is not None and sight.tiers_in(_namespace(tier))

    shown = [_shown(line, sight, is_own) for line in given]
    left_out = sum(one is not line for one, line in zip(shown, given, strict=True))
    return [line for line in shown if line is not None], left_out


def _shown(line: AuditLine, sight: Sight, is_own: Callable[[str], bool]) -> AuditLine | None:
    """The line itself, what is left of it, or None."""
    kind = line.get("kind")
    if kind in _OF_THE_POLICY:
        return line
    if kind == "write":
        tier = line.get("tier")
        is_readable = (
            sight.tiers_in(_namespace(str(tier))) if tier else is_own(str(line.get("entity")))
        )
        return line if is_readable else None
    if kind == "override" and not sight.overrides_in(_namespace(str(line.get("override")))):
        return None
    if kind in ("round", "effect", "override"):
        left = _without_others(line, is_own)
        return None if kind == "override" and not left.get("entities") else left
    return None


def _without_others(line: AuditLine, is_own: Callable[[str], bool]) -> AuditLine:
    """The line without what is about others; the line itself where nothing is."""
    changed: dict[str, Sequence[Any]] = {}
    for name in _PARTS:
        parts = line.get(name) or ()
        own = [part for part in parts if is_own(_entity(part))]
        if len(own) < len(parts):
            changed[name] = own
    findings = line.get("conditions") or ()
    about_all = [one for one in findings if not _NAMES_SOMEBODY.search(str(one.get("message")))]
    if len(about_all) < len(findings):
        changed["conditions"] = about_all
    return {**line, **changed} if changed else line


def _entity(part: object) -> str:
    return str(part.get("entity")) if isinstance(part, Mapping) else str(part)


def _namespace(key: str) -> str:
    return key.partition("/")[0]
