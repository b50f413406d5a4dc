"""Readers with a backlog come back: after five minutes at throttled rates the limit is raised, and they catch up as fast as they may.

Their contracts together exceed the raised limit, so a return of everybody at once would start the next episode.
"""

import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from bench.results import Figure
from bench.throttling.stage import TideStage, tide_stage
from bench.tide.crowd import crowd
from bench.tide.script import MB, Business, Operation, four_businesses
from bench.tide.znodes import QuotaWrite, Znodes

_RAISED_LIMIT = 70 * MB  # they want 52 MB/s without backlog; their contracts allow 120
_FREE_SECONDS = 24
_THROTTLED_SECONDS = 300
_WATCHED_SECONDS = 600
_WHOLE_BACKLOG_SECONDS = 1e6
_NEVER = 9999.0


def backlog() -> list[Figure]:
    """How often a tier is lowered again within ten minutes, and how its spells below the contract grow or shrink."""
    businesses = four_businesses(Operation.CONSUME, 1, "backlog")
    with tide_stage([business.user for business in businesses], Path("out/bench/backlog.operator.log")) as stage:
        writes, raised, ended = _play(stage, businesses)
    lowered = [business for business in businesses if business.throttled is not None]
    spells = {business.level: spells_below(writes, business, ended_seconds=ended) for business in lowered}
    again = {level: len(sizes) - 1 for level, sizes in spells.items()}
    grown = sum(later > earlier for sizes in spells.values() for earlier, later in pairwise(sizes))
    returned = [write.at_seconds for write in writes if write.at_seconds >= raised and write.after == _contract(businesses, write.user)]
    back = max(returned, default=raised + _NEVER)
    what = "limit raised after 5 minutes, with the whole backlog"
    sizes = "; ".join(f"{level} {', '.join(f'{size / 1e9:.2f}' for size in all_of)} GB" for level, all_of in spells.items())
    return [
        Figure(f"{what}: spells below the contract that are larger than the one before", grown, "spells", 0, f"withheld: {sizes}"),
        Figure(f"{what}: tiers lowered again within 10 minutes", sum(again.values()), "spells", None, f"{again}"),
        Figure(f"{what}: until the last quota is the contract", back - raised, "s", None),
    ]


def _contract(businesses: Sequence[Business], user: str) -> int:
    return next(business.contract for business in businesses if business.user == user)


def spells_below(writes: Sequence[QuotaWrite], business: Business, *, ended_seconds: float) -> list[float]:
    """The size of each spell in which its quota was below the contract, in the order of time: bytes withheld of the contract.

    A spell that has not ended counts until `ended_seconds`.
    """
    sizes: list[float] = []
    quota, since, size = business.contract, 0.0, 0.0
    for write in [*(w for w in writes if w.user == business.user), QuotaWrite(ended_seconds, business.user, None, None)]:
        size += (business.contract - quota) * (write.at_seconds - since)
        after = business.contract if write.after is None else min(write.after, business.contract)
        if after == business.contract and size:
            sizes.append(size)
            size = 0.0
        quota, since = after, write.at_seconds
    return sizes


def _play(stage: TideStage, businesses: Sequence[Business]) -> tuple[list[QuotaWrite], float, float]:
    users = [business.user for business in businesses]
    with (
        stage.declared(businesses, Operation.CONSUME),
        Znodes(stage.on.kafka.zookeeper_connect, users, Operation.CONSUME.znode_key) as znodes,
        crowd(stage.on.kafka, businesses, Operation.CONSUME, run="backlog", catch_up_seconds=_WHOLE_BACKLOG_SECONDS),
    ):
        stage.wait(_FREE_SECONDS)
        stage.limit(Operation.CONSUME, Operation.CONSUME.limit)
        stage.wait(_THROTTLED_SECONDS)
        raised = stage.limit(Operation.CONSUME, _RAISED_LIMIT)
        stage.wait(_WATCHED_SECONDS)
        return znodes.writes(), raised, time.time()
