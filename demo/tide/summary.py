"""Experiments 2 and 3 as JSON for programs: the same figures as the report, rates in bytes per second, times in seconds."""

from dataclasses import asdict
from typing import Any

from demo.episode import Episode
from demo.tide import figures
from demo.tide.outcome import TideOutcome
from demo.tide.script import BUSINESSES, CONTRACT, LIMIT


def tide_summary(tide: TideOutcome) -> dict[str, Any]:
    """Plain data; what was not played or never came is null."""
    return {
        "limit_bytes_per_second": LIMIT,
        "contract_bytes_per_second": CONTRACT,
        "businesses": [asdict(business) for business in BUSINESSES],
        "length": asdict(tide.length),
        "card_source": tide.card_source,
        "tidegate": _episode(tide.gate),
        "left_out": None if tide.left_out is None else _episode(tide.left_out),
        "published_way": None if tide.cliff is None else _episode(tide.cliff),
    }


def _episode(episode: Episode) -> dict[str, Any]:
    start = episode.limited_at_seconds
    return {
        "seconds_to_first_write": figures.seconds_to_first_write(episode),
        "seconds_from_first_write_until_card_within_limit": figures.seconds_until_within(episode),
        "seconds_from_raise_until_all_full": figures.seconds_until_all_full(episode),
        "levels": {business.level: _level(episode, business.level) for business in BUSINESSES},
        "card_bytes_per_second_at_rest": round(episode.card.mean(episode.measured_from_seconds, episode.measured_seconds)),
        "raised_after_seconds": round(episode.raised_at_seconds - start, 3),
        "quota_steps": [
            {"after_seconds": round(step.at_seconds - start, 3), "level": step.level, "from": step.before, "to": step.after}
            for step in episode.quotas
        ],
        "tier_states": [
            {"after_seconds": round(step.at_seconds - start, 1), "level": step.level, "state": step.state, "because": step.because}
            for step in episode.tiers
        ],
        "processor": asdict(episode.processor),
    }


def _level(episode: Episode, level: str) -> dict[str, Any]:
    return {
        "longest_silence_seconds": figures.longest_silence(episode, level),
        "bytes_per_second_at_rest": round(figures.rate_at_rest(episode, level)),
        "quota_at_rest": figures.quota_at_rest(episode, level),
        "quota_at_end": figures.quota_at_end(episode, level),
        "lowest_36_s_share_of_wanted": round(figures.lowest_share(episode, level), 4),
        "seconds_from_raise_until_full": figures.seconds_until_full(episode, level),
    }
