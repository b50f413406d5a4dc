"""Plays one measured episode: the limit is lowered, tiers go down and rest, the limit is raised, all return. It judges nothing."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.throttling.stage import TideStage
from bench.tide.crowd import Crowd, crowd
from bench.tide.played import CARD_MEAN_SECONDS, LONG_MEAN_SECONDS, Played
from bench.tide.script import HIGH_LIMIT, Business, Operation
from bench.tide.znodes import Znodes

_FREE_SECONDS = 32  # they have their rate after 8 s, Kafka's byte rate tells it 12 s later, and a reading may be 6 s old
_LONGEST_CUT_SECONDS = 200
_LONGEST_RETURN_SECONDS = 75
# No cut follows another sooner than after 30 s: after this long without one the tiers rest.
_QUIET_SECONDS = 36
_SETTLE_SECONDS = 24  # the longest mute of a step, and the rest of the tooth that it ends in
_AT_FLOOR = 1.06
_FULL_FOR_SECONDS = 14
_ROWS_LAG_SECONDS = 2


@dataclass(slots=True)
class _Playing:
    stage: TideStage
    operation: Operation
    businesses: Sequence[Business]
    crowd: Crowd
    znodes: Znodes
    began: float
    limited: float = 0.0

    def rests(self) -> bool:
        """Every tier is at its throttled rate, or nothing was written for a while."""
        quotas = self.znodes.quotas()
        if all((quotas.get(b.user) or b.contract) <= b.throttled * _AT_FLOOR for b in self.businesses if b.throttled is not None):
            return True
        writes = [write.at_seconds for write in self.znodes.writes() if write.at_seconds >= self.limited]
        return bool(writes) and time.time() - writes[-1] >= _QUIET_SECONDS

    def all_back(self, raised: float) -> bool:
        """Every quota is the contract and everybody has got what they want for a while since the limit was raised."""
        start = time.time() - _ROWS_LAG_SECONDS - _FULL_FOR_SECONDS
        if start < raised or any(self.znodes.quotas().get(business.user) != business.contract for business in self.businesses):
            return False
        moved = self.crowd.by_business()
        return all(moved[b].mean(start, _FULL_FOR_SECONDS) >= 0.97 * b.wanted for b in self.businesses if b.wanted)

    def played(self, *, rests: float, raised: float) -> Played:
        """Everything recorded until now."""
        ended = time.time()
        time.sleep(_ROWS_LAG_SECONDS)
        businesses = self.crowd.by_business()
        start = self.limited - 2 * CARD_MEAN_SECONDS
        card = self.stage.card(self.operation, start_seconds=start, end_seconds=ended)
        return Played(
            limit_bytes_per_second=self.operation.limit,
            limited_at_seconds=self.limited,
            rests_at_seconds=rests,
            raised_at_seconds=raised,
            ended_seconds=ended,
            clients=self.crowd.each(),
            businesses=businesses,
            card=card if card is not None else self.crowd.together(),
            writes=self.znodes.writes(),
        )


def play(stage: TideStage, businesses: Sequence[Business], operation: Operation, *, speed: str, run: str, rest_seconds: int = 0) -> Played:
    """One episode on a fresh policy. The tiers settle and rest for 36 s, or for `rest_seconds` where that is longer."""
    users = [business.user for business in businesses]
    with (
        stage.declared(businesses, operation, speed=speed),
        Znodes(stage.on.kafka.zookeeper_connect, users, operation.znode_key) as znodes,
        crowd(stage.on.kafka, businesses, operation, run=run) as clients,
    ):
        playing = _Playing(stage, operation, businesses, clients, znodes, time.time())
        stage.wait(_FREE_SECONDS)
        playing.limited = stage.limit(operation, operation.limit)
        stage.wait_until(playing.rests, longest_seconds=_LONGEST_CUT_SECONDS)
        last_write = max((write.at_seconds for write in znodes.writes()), default=playing.limited)
        rests = float(int(last_write) + _SETTLE_SECONDS)
        stage.wait(max(rest_seconds, rests + LONG_MEAN_SECONDS + 1 - time.time()))
        raised = stage.limit(operation, HIGH_LIMIT)
        stage.wait_until(lambda: playing.all_back(raised), longest_seconds=_LONGEST_RETURN_SECONDS)
        return playing.played(rests=rests, raised=raised)
