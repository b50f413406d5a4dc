"""The run as JSON for programs: the report's figures, rates in bytes/s, times in seconds.

The last run on each Kafka is kept, so that a report shows the others' figures beside its own.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from demo.episode import Playing, ThrottlingOutcome
from demo.move_outcome import FOLLOWER_RATE, LEADER_RATE, Move, MoveOutcome
from demo.outcome import Outcome, PhaseResult
from demo.script import BROKER, BUSINESSES, CONTRACT, LIMIT, MOVED_TO, NIC, NIC_LIMIT, READER
from demo.shift_outcome import MESSAGE_BYTES, ShiftOutcome
from demo.usage_outcome import StoredUsage, UsageOutcome, Witnesses
from demo.words import Check
from lab.rates import SAWTOOTH_SECONDS

# Experiments 2 and 3 as JSON for programs: the report's figures, rates in bytes/s, times in
# seconds.


def throttling_summary(throttling: ThrottlingOutcome) -> dict[str, Any]:
    """Plain data; what was not played or never came is null."""
    return {
        "limit_bytes_per_second": LIMIT,
        "contract_bytes_per_second": CONTRACT,
        "businesses": [asdict(business) for business in BUSINESSES],
        "length": asdict(throttling.length),
        "nic_source": throttling.nic_source,
        "tidegate": _episode(throttling.tidegate),
        "left_out": None if throttling.left_out is None else _episode(throttling.left_out),
        "published_way": None if throttling.cliff is None else _episode(throttling.cliff),
    }


def _episode(episode: Playing) -> dict[str, Any]:
    start = episode.limited_at_seconds
    return {
        "seconds_to_first_write": episode.seconds_to_first_write(),
        "seconds_from_first_write_until_nic_within_limit": episode.seconds_until_within(),
        "seconds_from_raise_until_all_full": episode.seconds_until_all_full(),
        "levels": {business.level: _level(episode, business.level) for business in BUSINESSES},
        "nic_bytes_per_second_at_rest": round(
            episode.nic.mean(episode.measured_from_seconds, episode.measured_seconds)
        ),
        "raised_after_seconds": round(episode.raised_at_seconds - start, 3),
        "quota_steps": [
            {
                "after_seconds": round(step.at_seconds - start, 3),
                "level": episode.level_of(step.user),
                "from": step.before,
                "to": step.after,
            }
            for step in episode.writes
        ],
        "tier_states": [
            {
                "after_seconds": round(step.at_seconds - start, 1),
                "level": step.level,
                "state": step.state,
                "because": step.because,
            }
            for step in episode.tiers
        ],
        "processor": asdict(episode.processor),
    }


def _level(episode: Playing, level: str) -> dict[str, Any]:
    return {
        "longest_silence_seconds": episode.longest_silence(level),
        "bytes_per_second_at_rest": round(episode.rate_at_rest(level)),
        "quota_at_rest": episode.quota_at_rest(level),
        "quota_at_end": episode.quota_at_end(level),
        "lowest_36_s_share_of_wanted": round(episode.lowest_share(level), 4),
        "seconds_from_raise_until_full": episode.seconds_until_full(level),
    }


# The demo's usage as JSON for programs: what tables and witnesses say, in bytes and seconds.


def usage_summary(usage: UsageOutcome) -> dict[str, Any]:
    """Plain data; null where a command failed."""
    return {
        "commands": [
            {"command": done.words, "exit_code": done.exit_code, "seconds": round(done.seconds, 1)}
            for done in usage.commands
        ],
        "tables": None if usage.stored is None else _tables(usage.stored),
        "witnesses": None if usage.witnesses is None else _witnesses(usage.witnesses),
    }


def _tables(stored: StoredUsage) -> dict[str, Any]:
    return {
        "end_unix_ms": stored.end_ms,
        "users": [asdict(user) for user in stored.users],
        "episodes": [asdict(episodes) for episodes in stored.episodes],
        "client_bytes_by_broker": [
            {"broker": broker, "direction": direction, "bytes": moved}
            for (broker, direction), moved in sorted(stored.by_broker.items())
        ],
    }


def _witnesses(seen: Witnesses) -> dict[str, Any]:
    return {
        "counted_by_brokers": [
            {"broker": broker, "direction": direction, "bytes": moved}
            for (broker, direction), moved in sorted(seen.counted.items())
        ],
        "arrived_bytes_by_user": {user: round(arrived) for user, arrived in seen.arrived.items()},
        "held_back_bytes_by_level": {level: round(held) for level, held in seen.held_back.items()},
    }


# Experiment 5 as JSON for programs.


def move_summary(outcome: MoveOutcome) -> dict[str, Any]:
    """Plain data; what never came is null. Seconds count from the request of Tidegate's move."""
    begin = outcome.followed.requested_seconds
    sides = [(BROKER, LEADER_RATE), *((to, FOLLOWER_RATE) for to in MOVED_TO.values())]
    return {
        "length": asdict(outcome.length),
        "nic_bytes_per_second": NIC,
        "limit_bytes_per_second": NIC_LIMIT,
        "reader": asdict(READER),
        "unthrottled": _move(outcome, outcome.unthrottled),
        "tidegate": {
            **_move(outcome, outcome.followed),
            "seconds_to_first_throttle": outcome.seconds_to_first_throttle(),
            "seconds_from_end_until_nothing_left": outcome.seconds_to_clean(),
            "throttles_left": outcome.left(),
            "rates": [
                {"after_seconds": round(at - begin, 1), "broker": broker, "key": key, "to": rate}
                for broker, key in sides
                for at, rate in outcome.rate_steps(broker, key)
            ],
            "foretold": [
                {
                    "after_seconds": round(one.at_seconds - begin, 1),
                    "seconds": one.seconds,
                    "bytes_left": one.bytes_left,
                    "off_percent": outcome.estimate_off_percent(one),
                }
                for one in outcome.foretold
            ],
        },
        "foreign_throttles": len(outcome.foreign),
        "foreign_throttles_changed": outcome.foreign_changed(),
        "processor": asdict(outcome.processor),
    }


def _move(outcome: MoveOutcome, move: Move) -> dict[str, Any]:
    return {
        "topic": move.topic,
        "bytes": move.moved_bytes,
        "seconds": move.seconds,
        "spare_bytes_per_second_before": round(outcome.spare(move)),
        "l0_percent_of_wanted": round(outcome.read_percent(move), 2),
        "l0_longest_lag_seconds": round(outcome.longest_lag_seconds(move), 2),
        f"nic_highest_{SAWTOOTH_SECONDS}_s_mean": round(
            outcome.highest_mean(move, SAWTOOTH_SECONDS)
        ),
    }


def shift_summary(outcome: ShiftOutcome) -> dict[str, Any]:
    """Experiment 6; seconds count from the lowered limit."""
    began, first = outcome.limited_at_seconds, outcome.held_from_seconds
    released = outcome.released_seconds()
    return {
        "messages": len(outcome.produced),
        "bytes_of_each": MESSAGE_BYTES,
        "first_quota_after_seconds": None if first is None else round(first - began, 1),
        "raised_after_seconds": round(outcome.raised_at_seconds - began, 1),
        "first_sent_again_after_seconds": None if released is None else round(released - began, 1),
        "sent_while_over": outcome.sent_while_over(),
        "lost": outcome.lost(),
        "out_of_order": outcome.out_of_order(),
        "usual_late_seconds": outcome.usual_late_seconds(),
        "latest_seconds": outcome.latest_seconds(),
        "highest_bytes_per_second": outcome.highest_rate(),
    }


def summary(outcome: Outcome) -> dict[str, Any]:
    """Plain data; what could not be measured is null."""
    return {
        "passed": outcome.passed,
        "day": datetime.fromtimestamp(outcome.results[0].begin_seconds, UTC).date().isoformat(),
        "contract_bytes_per_second_per_partition": outcome.scale.contract_bytes_per_second,
        "offered_bytes_per_second_per_partition": outcome.scale.offered_bytes_per_second,
        "scale_reason": outcome.scale.reason,
        "windows": asdict(outcome.windows),
        "phases": [_phase(result, outcome) for result in outcome.results],
        "reaction": {
            "seconds_from_kill_to_new_leader": outcome.reaction.seconds_to_election,
            "seconds_from_new_leader_to_corrected_quota": outcome.reaction.seconds_after_election,
        },
        "throttling": None
        if outcome.throttling is None
        else throttling_summary(outcome.throttling),
        "usage": None if outcome.usage is None else usage_summary(outcome.usage),
        "move": None if outcome.move is None else move_summary(outcome.move),
        "shift": None if outcome.shift is None else shift_summary(outcome.shift),
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
        "bytes_per_second_by_partition": {
            str(partition): round(rate) for partition, rate in result.by_partition.items()
        },
        "bytes_per_second_by_broker": {
            str(broker): round(rate) for broker, rate in result.by_broker.items()
        },
        "expected_by_broker": {
            str(broker): rate for broker, rate in outcome.expected_by_broker(result.phase).items()
        },
        "total_bytes_per_second": round(result.total),
        "processor": asdict(result.processor),
        "counted_by_brokers_bytes_per_second": None
        if result.counted_by_brokers is None
        else round(result.counted_by_brokers),
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


# The last run on each Kafka, beside the report.


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
