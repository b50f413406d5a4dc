"""Plays the published way on the same brokers: an administrator writes each throttled rate at once, L3 first, one level every 30 s.

Kafka mutes a client for as long as its window holds more than the new quota allows, and nothing ends a mute early. It judges nothing.
"""

import time

from demo.episode import Episode
from demo.estate import Estate
from demo.kafka_administrator import set_fixed_quota
from demo.tide.board import TideBoard
from demo.tide.length import CLIFF_RAISED_AFTER_SECONDS, CLIFF_SECONDS_BETWEEN_LEVELS, CLIFF_WATCHED_SECONDS, SETTLE_SECONDS, TideLength
from demo.tide.quota_witness import FETCH_KEY
from demo.tide.script import BUSINESSES, CONTRACT, HIGH_LIMIT, LIMIT, LOWERED
from demo.tide.stage import Stage

TITLE = "Experiments 2 and 3, the published way"
_FULL_FOR_SECONDS = 14


def play_cliff(parts: Estate, board: TideBoard, length: TideLength) -> Episode:
    """The whole episode; nobody but the administrator writes quotas in it, and its quotas stay."""
    board.show_activity(TITLE, "an administrator writes the contracts")
    for business in BUSINESSES:
        set_fixed_quota(parts.kafka, business.user, key=FETCH_KEY, bytes_per_second=CONTRACT)
    with Stage(parts, board, title=TITLE, run="cliff") as stage:
        board.show_limit(HIGH_LIMIT)
        stage.wait_for_full_load(length.free_seconds)
        stage.times.limited = time.time()
        board.show_limit(LIMIT)
        _lower(stage)
        _measure(stage, length)
        _raise(stage)
        watched = stage.times.limited + CLIFF_WATCHED_SECONDS - time.time()
        stage.wait_until(lambda: stage.all_full(_FULL_FOR_SECONDS), "waiting for the muted clients", longest_seconds=max(0.0, watched))
        return stage.episode(())


def _lower(stage: Stage) -> None:
    """L3, L2, L1, as long as the card is over its limit."""
    for business in LOWERED:
        sent = stage.card_rate(SETTLE_SECONDS)
        if sent is None or sent > LIMIT:
            _write(stage, business.user, business.throttled or 0)
        stage.wait(f"{business.level} was written; the next level follows", CLIFF_SECONDS_BETWEEN_LEVELS)


def _measure(stage: Stage, length: TideLength) -> None:
    stage.times.measured_from = float(int(time.time()))
    stage.times.measured_seconds = length.measure_seconds
    until_raise = stage.times.limited + CLIFF_RAISED_AFTER_SECONDS - time.time()
    stage.wait("measuring the tiers at rest", max(length.measure_seconds + 1.0, until_raise))


def _raise(stage: Stage) -> None:
    """The limit is far away again: the contracts come back, the most important first."""
    stage.times.raised = time.time()
    stage.board.show_limit(HIGH_LIMIT)
    for business in reversed(LOWERED):
        _write(stage, business.user, CONTRACT)


def _write(stage: Stage, user: str, bytes_per_second: int) -> None:
    stage.command(f"kafka-configs: {FETCH_KEY}={bytes_per_second} for user {user}")
    set_fixed_quota(stage.parts.kafka, user, key=FETCH_KEY, bytes_per_second=bytes_per_second)
