"""The run as JSON for programs: the same figures as the report, rates in bytes per second, times in seconds."""

from dataclasses import asdict
from typing import Any

from demo.outcome import Outcome, PhaseResult
from demo.tide.summary import tide_summary
from demo.usage.summary import usage_summary
from demo.verdict import Check


def summary(outcome: Outcome) -> dict[str, Any]:
    """Plain data; what could not be measured is null."""
    return {
        "passed": outcome.passed,
        "contract_bytes_per_second_per_partition": outcome.scale.contract_bytes_per_second,
        "offered_bytes_per_second_per_partition": outcome.scale.offered_bytes_per_second,
        "scale_reason": outcome.scale.reason,
        "windows": asdict(outcome.windows),
        "phases": [_phase(result, outcome) for result in outcome.results],
        "reaction": {
            "seconds_from_kill_to_new_leader": outcome.reaction.seconds_to_election,
            "seconds_from_new_leader_to_corrected_quota": outcome.reaction.seconds_after_election,
        },
        "tide": None if outcome.tide is None else tide_summary(outcome.tide),
        "usage": None if outcome.usage is None else usage_summary(outcome.usage),
        "checks": [_check(check) for check in outcome.checks()],
        "surroundings": dict(outcome.surroundings),
        "setup_seconds": dict(outcome.setup_seconds),
    }


def _phase(result: PhaseResult, outcome: Outcome) -> dict[str, Any]:
    return {
        "phase": result.phase.key,
        "title": result.phase.title,
        "quota_bytes_per_second": result.quota,
        "leaders": {str(partition): broker for partition, broker in result.leaders.items()},
        "bytes_per_second_by_partition": {str(partition): round(rate) for partition, rate in result.by_partition.items()},
        "bytes_per_second_by_broker": {str(broker): round(rate) for broker, rate in result.by_broker.items()},
        "expected_by_broker": {str(broker): rate for broker, rate in outcome.expected_by_broker(result.phase).items()},
        "total_bytes_per_second": round(result.total),
        "processor": asdict(result.processor),
        "counted_by_brokers_bytes_per_second": None if result.counted_by_brokers is None else round(result.counted_by_brokers),
    }


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
