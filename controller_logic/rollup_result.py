"""What a rollup Job writes down for the operator, as text and as values: which windows are published, and the figures of usage.

Both sides use this module, so that neither can write what the other does not read. The text has to fit into a ConfigMap (1 MiB): figures of
the entities that move least are left out when it would not. Times are milliseconds since the epoch.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from controller_logic.model import DirectionUsage, Entity, QuotaKey, Usage
from controller_logic.rollup_schedule import Window, merged

SCHEMA_VERSION = 1
RESULT_KEY = "result.json"
MOST_BYTES = 900_000
_WAYS = {"fetch": QuotaKey.CONSUMER_BYTE_RATE, "produce": QuotaKey.PRODUCER_BYTE_RATE}


@dataclass(frozen=True, slots=True)
class RollupResult:
    """All that one policy's Jobs have found. Figures count until `valid_until_ms`; `usage` None = there are none yet.

    `empty` is time of which Prometheus had nothing when there was no hope of more; what of it is `published` later is empty no more.
    """

    policy_uid: str
    computed_at_ms: int
    valid_until_ms: int
    published: tuple[Window, ...] = ()
    usage: Usage | None = None
    empty: tuple[Window, ...] = ()


def result_name(policy_name: str) -> str:
    """Name of the ConfigMap, beside the policy."""
    return f"{policy_name}-rollup"


def encode(result: RollupResult, *, most_bytes: int = MOST_BYTES) -> str:
    """The result as the text of `RESULT_KEY`, of at most `most_bytes`."""
    document: dict[str, Any] = {
        "schemaVersion": SCHEMA_VERSION,
        "policyUid": result.policy_uid,
        "computedAtMs": result.computed_at_ms,
        "validUntilMs": result.valid_until_ms,
        "publishedMs": _pairs(result.published),
        "emptyMs": _pairs(result.empty),
    }
    if result.usage is None:
        return _text(document)
    usage = {"days": result.usage.days, "untilMs": round(result.usage.until_seconds * 1000)}
    room = most_bytes - len(_text(document | {"usage": usage | {"entities": [], "omitted": 10**9}}))
    rows = _fitting(_rows(result.usage), room)
    omitted = len({entity for entity, _ in result.usage.figures}) - len(rows)
    return _text(document | {"usage": usage | {"entities": rows, "omitted": omitted}})


def decode(text: str) -> RollupResult:
    """The result in a text. Raises ValueError, with a sentence, for anything that is none of ours or of another schema version."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is no JSON: {error}") from None
    if not isinstance(document, Mapping) or document.get("schemaVersion") != SCHEMA_VERSION:
        found = document.get("schemaVersion") if isinstance(document, Mapping) else None
        raise ValueError(f"its schemaVersion is {found!r}, and this version of Tidegate reads {SCHEMA_VERSION}")
    try:
        return RollupResult(
            policy_uid=str(document["policyUid"]),
            computed_at_ms=int(document["computedAtMs"]),
            valid_until_ms=int(document["validUntilMs"]),
            published=merged(_window(*pair) for pair in document["publishedMs"]),
            usage=_usage(document["usage"]) if "usage" in document else None,
            empty=merged(_window(*pair) for pair in document.get("emptyMs", ())),
        )
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"a part of it is missing or of another kind: {type(error).__name__} {error}") from None


def _pairs(windows: Iterable[Window]) -> list[list[int]]:
    return [[window.start_ms, window.end_ms] for window in merged(windows)]


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def _rows(usage: Usage) -> list[dict[str, Any]]:
    """One row an entity, the one that moves most first."""
    rows: dict[Entity, dict[str, Any]] = {}
    for (entity, key), figures in usage.figures.items():
        row = rows.setdefault(entity, {"user": entity.user or "", "clientId": entity.client_id or ""})
        way = next(name for name, known in _WAYS.items() if known is key)
        row[way] = [
            round(figures.p99_total),
            round(figures.p99_busiest),
            figures.brokers,
            round(figures.coverage, 4),
            round(figures.throttled_share, 4),
        ]
    return sorted(rows.values(), key=lambda row: (-sum(row[way][0] for way in _WAYS if way in row), row["user"], row["clientId"]))


def _fitting(rows: Iterable[dict[str, Any]], room: int) -> list[dict[str, Any]]:
    kept = []
    for row in rows:
        room -= len(_text(row)) + 1
        if room < 0:
            break
        kept.append(row)
    return kept


def _usage(document: Mapping[str, Any]) -> Usage:
    figures = {
        (Entity(row["user"] or None, row["clientId"] or None), key): _figures(row[way])
        for row in document["entities"]
        for way, key in _WAYS.items()
        if way in row
    }
    return Usage(int(document["days"]), document["untilMs"] / 1000, figures)


def _figures(values: Any) -> DirectionUsage:
    total, busiest, brokers, coverage, throttled = values
    if not all(isfinite(number) and number >= 0 for number in (total, busiest, brokers, coverage, throttled)):
        raise ValueError(f"a figure is no amount: {values}")
    return DirectionUsage(float(total), float(busiest), int(brokers), float(coverage), float(throttled))


def _window(start_ms: Any, end_ms: Any) -> Window:
    if not isinstance(start_ms, int) or not isinstance(end_ms, int) or end_ms <= start_ms:
        raise ValueError(f"{start_ms} to {end_ms} is no window")
    return Window(start_ms, end_ms)
