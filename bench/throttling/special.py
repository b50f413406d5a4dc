"""Two special cases on a real broker: a backlog, and thirty flat-out users throttled at once.

With a backlog: after five minutes at throttled rates the limit is raised, and they catch up as fast
as they may. Their contracts together exceed the raised limit, so a return of all at once would
start the next episode.

Thirty at once: a flat-out client spends its window's bytes in a second and then crawls until they
leave the window, so those cut in one moment burst in step. Both ways are played on one broker, the
second by writing all thirty quotas in one transaction, as a script would.
"""

import json
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean

from kazoo.client import KazooClient

from bench.results import Figure
from bench.throttling.episodes import FOLDER
from bench.throttling.stage import LIMITS, MB, Stage, four_businesses, running_stage
from lab.episodes import ROWS_LAG_SECONDS, Business, Clients, Operation
from lab.errors import LabError
from lab.quota_watch import QuotaWrite

_USERS = 30
_CONTRACT, _THROTTLED = 38 * MB // 10, 19 * MB // 10
_LIMIT = 40 * MB
_FREE_SECONDS_OF_THIRTY = 30
_CUT_SECONDS = 120
_WATCHED_SECONDS_OF_THIRTY = 90
_LAST_SECONDS = 60
_TIMES_ITS_MEAN = 2.0
_BUSINESSES = tuple(
    Business("L3", f"many-{number:02}", None, _THROTTLED, contract=_CONTRACT)
    for number in range(_USERS)
)
_NAMES = [business.user for business in _BUSINESSES]


def thirty() -> list[Figure]:
    """The NIC's highest second of a last minute over its mean, cut in one moment and our way."""
    with running_stage(_NAMES, Path("out/bench/thirty.operator.log")) as stage:
        moment = _in_one_moment(stage)
        ours = _by_tidegate(stage)
    _keep({"one transaction": moment, "Tidegate": ours})
    what = f"{_USERS} flat-out consumers cut at once, highest second of the NIC in the last minute"
    return [
        Figure(
            f"{what}, Tidegate",
            max(ours) / mean(ours),
            "x its mean",
            _TIMES_ITS_MEAN,
            f"mean {mean(ours) / MB:.1f} MB/s",
        ),
        Figure(
            f"{what}, all in one transaction",
            max(moment) / mean(moment),
            "x its mean",
            None,
            f"mean {mean(moment) / MB:.1f} MB/s",
        ),
    ]


def _by_tidegate(stage: Stage) -> list[float]:
    with (
        stage.declared(_BUSINESSES, Operation.CONSUME),
        stage.watch(_BUSINESSES, Operation.CONSUME) as watch,
        stage.clients(_BUSINESSES, Operation.CONSUME, run="spread") as clients,
    ):
        stage.wait(_FREE_SECONDS_OF_THIRTY)
        stage.limit(Operation.CONSUME, _LIMIT)

        def all_cut() -> bool:
            return all((quota or _CONTRACT) <= _THROTTLED for quota in watch.quotas().values())

        if not stage.wait_until(all_cut, longest_seconds=_CUT_SECONDS):
            raise LabError(
                f"Not all {_USERS} users were cut within {_CUT_SECONDS} "
                f"s.\n{stage.on.operator.log_tail()}"
            )
        stage.wait(_WATCHED_SECONDS_OF_THIRTY)
        return _last_minute(stage, clients)


def _in_one_moment(stage: Stage) -> list[float]:
    """As a script would do it; no policy is there, and the quotas are taken away again."""
    zookeeper = stage.on.zookeeper
    _write_all(zookeeper, _CONTRACT)
    with stage.clients(_BUSINESSES, Operation.CONSUME, run="moment") as clients:
        stage.wait(_FREE_SECONDS_OF_THIRTY)
        _write_all(zookeeper, _THROTTLED)
        stage.wait(_WATCHED_SECONDS_OF_THIRTY)
        nic = _last_minute(stage, clients)
    _write_all(zookeeper, None)
    return nic


def _keep(rates_by_way: Mapping[str, Sequence[float]]) -> None:
    lines = [
        f"{second},{who},{round(rate / 1000)}"
        for who, rates in rates_by_way.items()
        for second, rate in enumerate(rates)
    ]
    (FOLDER / "thirty-users.csv").write_text(
        "\n".join(["second,who,kilobytes_per_second", *lines, ""]), encoding="utf-8"
    )


def _write_all(zookeeper: KazooClient, bytes_per_second: int | None) -> None:
    for name in _NAMES:
        zookeeper.ensure_path(f"/config/users/{name}")
    transaction = zookeeper.transaction()
    for name in _NAMES:
        transaction.set_data(f"/config/users/{name}", _document(bytes_per_second))
        transaction.create("/config/changes/config_change_", _notification(name), sequence=True)
    transaction.commit()


def _document(bytes_per_second: int | None) -> bytes:
    quotas = (
        {} if bytes_per_second is None else {Operation.CONSUME.quota_key: str(bytes_per_second)}
    )
    return json.dumps({"version": 1, "config": quotas}).encode()


def _notification(name: str) -> bytes:
    return f'{{"version":2,"entity_path":"users/{name}"}}'.encode()


def _last_minute(stage: Stage, clients: Clients) -> list[float]:
    end = int(time.time())
    time.sleep(ROWS_LAG_SECONDS)
    nic = stage.nic(
        clients, Operation.CONSUME, start_seconds=end - _LAST_SECONDS - 5, end_seconds=end + 1
    )
    return nic.per_second(end - _LAST_SECONDS, _LAST_SECONDS)


_RAISED_LIMIT = 70 * MB  # they want 52 MB/s without backlog; their contracts allow 120
_FREE_SECONDS = 24
_THROTTLED_SECONDS = 300
_WATCHED_SECONDS = 600
_WHOLE_BACKLOG_SECONDS = 1e6
_NEVER = 9999.0


def backlog() -> list[Figure]:
    """How often a tier is lowered again within ten minutes, and how its spells change.

    A spell is a time below the contract.
    """
    businesses = four_businesses(Operation.CONSUME, 1, "backlog")
    with running_stage(
        [business.user for business in businesses], Path("out/bench/backlog.operator.log")
    ) as stage:
        writes, raised, ended = _play(stage, businesses)
    lowered = [business for business in businesses if business.throttled is not None]
    spells = {
        business.level: spells_below(writes, business, ended_seconds=ended) for business in lowered
    }
    again = {level: len(sizes) - 1 for level, sizes in spells.items()}
    grown = sum(later > earlier for sizes in spells.values() for earlier, later in pairwise(sizes))
    returned = [
        write.at_seconds
        for write in writes
        if write.at_seconds >= raised and write.after == _contract(businesses, write.user)
    ]
    back = max(returned, default=raised + _NEVER)
    what = "limit raised after 5 minutes, with the whole backlog"
    sizes = "; ".join(
        f"{level} {', '.join(f'{size / 1e9:.2f}' for size in all_of)} GB"
        for level, all_of in spells.items()
    )
    return [
        Figure(
            f"{what}: spells below the contract that are larger than the one before",
            grown,
            "spells",
            0,
            f"withheld: {sizes}",
        ),
        Figure(
            f"{what}: tiers lowered again within 10 minutes",
            sum(again.values()),
            "spells",
            None,
            f"{again}",
        ),
        Figure(f"{what}: until the last quota is the contract", back - raised, "s", None),
    ]


def _contract(businesses: Sequence[Business], user: str) -> int:
    return next(business.contract for business in businesses if business.user == user)


def spells_below(
    writes: Sequence[QuotaWrite], business: Business, *, ended_seconds: float
) -> list[float]:
    """The size of each spell in which its quota was below the contract, in the order of time.

    The size is bytes withheld of the contract. A spell that has not ended counts until
    `ended_seconds`.
    """
    sizes: list[float] = []
    quota, since, size = business.contract, 0.0, 0.0
    for write in [
        *(w for w in writes if w.user == business.user),
        QuotaWrite(ended_seconds, business.user, None, None),
    ]:
        size += (business.contract - quota) * (write.at_seconds - since)
        after = business.contract if write.after is None else min(write.after, business.contract)
        if after == business.contract and size:
            sizes.append(size)
            size = 0.0
        quota, since = after, write.at_seconds
    return sizes


def _play(stage: Stage, businesses: Sequence[Business]) -> tuple[list[QuotaWrite], float, float]:
    with (
        stage.declared(businesses, Operation.CONSUME),
        stage.watch(businesses, Operation.CONSUME) as watch,
        stage.clients(
            businesses, Operation.CONSUME, run="backlog", catch_up_seconds=_WHOLE_BACKLOG_SECONDS
        ),
    ):
        stage.wait(_FREE_SECONDS)
        stage.limit(Operation.CONSUME, LIMITS[Operation.CONSUME])
        stage.wait(_THROTTLED_SECONDS)
        raised = stage.limit(Operation.CONSUME, _RAISED_LIMIT)
        stage.wait(_WATCHED_SECONDS)
        return watch.writes(), raised, time.time()
