"""The run as JSON for programs: all that was recorded, rates in bytes/s, times in seconds since the
epoch, and every bound with what was measured.

The last run on each Kafka is kept, so that a report shows the others' figures beside its own.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

from demo.episode import throttling_checks
from demo.outcome import Outcome
from demo.words import Check
from lab.rates import ByteSeries


def summary(outcome: Outcome) -> dict[str, Any]:
    """Plain data; what was not played or could not be measured is null."""
    cliff = None if outcome.throttling is None else outcome.throttling.cliff
    return {
        "passed": outcome.passed,
        "day": datetime.fromtimestamp(outcome.results[0].begin_seconds, UTC).date().isoformat(),
        "checks": [_check(check) for check in outcome.checks()],
        "published_way": [_check(check) for check in (throttling_checks(cliff) if cliff else ())],
        **_plain(outcome),
    }


def _plain(value: Any) -> Any:
    """As JSON has it, without what moved second by second, which the report draws."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        found = {one.name: getattr(value, one.name) for one in fields(value)}
        return {name: _plain(each) for name, each in found.items() if not _is_curve(each)}
    if isinstance(value, Mapping):
        return {_name(key): _plain(each) for key, each in value.items() if not _is_curve(each)}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(each) for each in value]
    return value


def _is_curve(value: object) -> bool:
    return isinstance(value, ByteSeries)


def _name(key: object) -> str:
    return ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _check(check: Check) -> dict[str, Any]:
    return {
        "about": check.about,
        "name": check.name,
        "unit": check.unit,
        "expected": check.expected,
        "measured": check.measured,
        "tolerance": check.tolerance,
        "kept": check.kept,
    }


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """What was measured on another Kafka: its name, the day, and a text for each bound."""

    kafka: str
    day: str
    figures: Mapping[tuple[str, str], str]

    def figure(self, check: Check) -> str:
        """What this bound's figure was then."""
        return self.figures.get((check.about, check.name), "not played")


def keep_run(folder: Path, kafka: str, outcome: Outcome) -> None:
    """Keep the figures of a run on the Kafka of this name, instead of the last one's."""
    _kept(folder, kafka).write_text(json.dumps(summary(outcome), indent=2) + "\n", encoding="utf-8")


def earlier_runs(folder: Path, kafka: str) -> list[EarlierRun]:
    """The last run on each other Kafka; what cannot be read is left out."""
    own = _kept(folder, kafka)
    runs = (_earlier(path) for path in sorted(folder.glob("summary-*.json")) if path != own)
    return [run for run in runs if run is not None]


def _kept(folder: Path, kafka: str) -> Path:
    return folder / f"summary-{kafka}.json"


def _earlier(path: Path) -> EarlierRun | None:
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
        return EarlierRun(
            str(run["surroundings"]["Kafka"]).partition(",")[0],
            str(run["day"]),
            {(one["about"], one["name"]): _words(one) for one in run["checks"]},
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _words(check: Mapping[str, Any]) -> str:
    """`9.31 of 9 MB/s`, for a time without what was expected."""
    unit, measured = check["unit"], check["measured"]
    found = "not seen" if measured is None else f"{measured:.2f}"
    of = "" if unit == "s" else f" of {check['expected']:g}"
    return f"{found}{of} {unit}{'' if check['kept'] else ', missed'}"
