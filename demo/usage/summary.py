"""The demo's usage as JSON for programs: what the tables say and what the witnesses say, in bytes and seconds."""

from dataclasses import asdict
from typing import Any

from demo.usage.outcome import UsageOutcome
from demo.usage.witnesses import Witnesses
from demo.usage_outcome import StoredUsage


def usage_summary(usage: UsageOutcome) -> dict[str, Any]:
    """Plain data; null where a command failed."""
    return {
        "commands": [{"command": done.words, "exit_code": done.exit_code, "seconds": round(done.seconds, 1)} for done in usage.commands],
        "tables": None if usage.stored is None else _tables(usage.stored),
        "witnesses": None if usage.witnesses is None else _witnesses(usage.witnesses),
    }


def _tables(stored: StoredUsage) -> dict[str, Any]:
    return {
        "end_unix_ms": stored.end_ms,
        "users": [asdict(user) for user in stored.users],
        "episodes": [asdict(episodes) for episodes in stored.episodes],
        "client_bytes_by_broker": [
            {"broker": broker, "direction": direction, "bytes": moved} for (broker, direction), moved in sorted(stored.by_broker.items())
        ],
    }


def _witnesses(seen: Witnesses) -> dict[str, Any]:
    return {
        "counted_by_brokers": [
            {"broker": broker, "direction": direction, "bytes": moved} for (broker, direction), moved in sorted(seen.counted.items())
        ],
        "arrived_bytes_by_user": {user: round(arrived) for user, arrived in seen.arrived.items()},
        "held_back_bytes_by_level": {level: round(held) for level, held in seen.held_back.items()},
    }
