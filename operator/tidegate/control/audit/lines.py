"""Reads an audit trail back: a file that grows, maybe inside a log, maybe torn by a crash.

A line that cannot be read is counted and named, never an error: the lines around it are as good as
before.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tidegate.control.audit.sink import EVENT, LOST
from tidegate.errors import NotFound
from tidegate.tracing import PASS_FIELD
from tidegate_logic.reasons import Reason

AuditLine = Mapping[str, Any]

_MARK = f'"event":"{EVENT}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which lines are asked for; None and empty = all.

    An entity matches by its words (`user=etl`) or by one of its names (`etl`). A gap is of every
    policy, pass, entity and level: the missing lines may have been.
    """

    policy: str | None = None
    pass_id: str | None = None
    entity: str | None = None
    level: str | None = None
    kinds: frozenset[str] = frozenset()
    since_seconds: float | None = None
    until_seconds: float | None = None

    def takes(self, line: AuditLine) -> bool:
        at_seconds = seconds_of(line)
        in_time = (self.since_seconds or 0.0) <= at_seconds <= (self.until_seconds or float("inf"))
        if line.get("kind") == LOST:
            return in_time and (not self.kinds or LOST in self.kinds)
        return in_time and self._takes_kind(line) and self._takes_subject(line)

    def _takes_kind(self, line: AuditLine) -> bool:
        policy = str(line.get("policy"))
        named = self.policy in (None, policy, policy.partition("/")[2])
        of_pass = self.pass_id in (None, line.get(PASS_FIELD))
        return named and of_pass and (not self.kinds or line.get("kind") in self.kinds)

    def _takes_subject(self, line: AuditLine) -> bool:
        """Whether the line has the entity and level; a round has those it moved or left alone."""
        if self.entity is None and self.level is None:
            return True
        return any(self._is_meant(*subject) for subject in _subjects(line))

    def _is_meant(self, entity: str, level: str | None) -> bool:
        return (self.entity is None or self.entity in {entity, *_names(entity)}) and self.level in (
            None,
            level,
        )


@dataclass(slots=True)
class AuditLines:
    """Lines of a trail. `others` are lines of a log that are none of ours.

    `unreadable` are the numbers of torn audit lines, `FILE:NUMBER` where there are several files.
    `is_torn` = the last line has no end: it is still being written, or the process died in it.
    """

    lines: list[AuditLine] = field(default_factory=list)
    others: int = 0
    unreadable: list[int | str] = field(default_factory=list)
    is_torn: bool = False


def read_lines(texts: Iterable[str], wanted: Wanted) -> AuditLines:
    """Every line that is wanted, in the order in which they were written."""
    trail = AuditLines()
    for number, text in enumerate(texts, start=1):
        line = _line(text)
        if line is not None:
            if wanted.takes(line):
                trail.lines.append(line)
        elif not text.endswith("\n"):
            trail.is_torn = True
        elif _MARK in text:
            trail.unreadable.append(number)
        elif text.strip():
            trail.others += 1
    return trail


TRAIL_SUFFIX = ".jsonl"


def trail_files(place: Path) -> list[Path]:
    """The file, or every trail in the folder: each Pod writes its own. Raises OSError."""
    if not place.is_dir():
        return [place]
    return sorted(one for one in place.iterdir() if one.suffix == TRAIL_SUFFIX and one.is_file())


def in_order(trails: Mapping[str, AuditLines]) -> AuditLines:
    """The trails of several files as one: lines by time, those of one moment by file."""
    if len(trails) == 1:
        return next(iter(trails.values()))
    whole = AuditLines()
    for name, trail in trails.items():
        whole.lines += trail.lines
        whole.others += trail.others
        whole.unreadable += [f"{name}:{number}" for number in trail.unreadable]
        whole.is_torn |= trail.is_torn
    whole.lines.sort(key=seconds_of)
    return whole


def lines_in(file: Path) -> Sequence[AuditLine]:
    """All lines of the file that someone named. Raises NotFound if it cannot be read."""
    try:
        with file.open(encoding="utf-8", errors="replace") as stream:
            return read_lines(stream, Wanted()).lines
    except OSError as error:
        raise NotFound(
            Reason.INVALID_SPEC,
            f"File {file} cannot be read ({error.strerror}); nothing was written.",
        ) from error


def _line(text: str) -> AuditLine | None:
    """The line, or None if it is none of ours or cannot be read."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("event") != EVENT:
        return None
    try:
        seconds_of(found)
    except (KeyError, ValueError, TypeError):
        return None
    return found


def seconds_of(line: AuditLine) -> float:
    """Seconds since the epoch. Raises KeyError, TypeError or ValueError for one without a time."""
    return datetime.fromisoformat(line["t"]).timestamp()


def _subjects(line: AuditLine) -> Iterator[tuple[str, str | None]]:
    """The entities of the line, with the level where it has one."""
    if "entity" in line:
        yield str(line["entity"]), line.get("level")
    for part in (*line.get("actions", ()), *line.get("notDone", ()), *line.get("entities", ())):
        if isinstance(part, Mapping):
            yield str(part.get("entity")), part.get("tier")
        else:
            yield str(part), None


def _names(entity: str) -> Iterator[str]:
    """`etl` and `app` of `user=etl, client-id=app`."""
    user, _, client = entity.partition(", client-id=")
    yield from (name.partition("=")[2] for name in (user,) if "=" in name)
    if client:
        yield client
