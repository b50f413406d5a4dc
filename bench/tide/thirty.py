"""Thirty flat-out users throttled at once: how far the card swings, when the writes are spread over a window and when they are not.

A flat-out client spends its window's bytes in a second and then crawls until they leave the window: those cut in one moment burst in step.
Both ways are played on one broker; the second by writing all thirty quotas in one transaction, as a script would.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from kazoo.client import KazooClient

from bench.results import Figure
from bench.throttling.stage import TideStage, tide_stage
from bench.tide.crowd import Crowd, crowd
from bench.tide.raw import FOLDER
from bench.tide.script import MB, Business, Operation
from bench.tide.znodes import Znodes
from lab.errors import LabError
from lab.rates import ByteSeries

_USERS = 30
_CONTRACT, _THROTTLED = 38 * MB // 10, 19 * MB // 10
_LIMIT = 40 * MB
_FREE_SECONDS = 30
_CUT_SECONDS = 120
_WATCHED_SECONDS = 90
_LAST_SECONDS = 60
_ROWS_LAG_SECONDS = 2
_TIMES_ITS_MEAN = 2.0
_BUSINESSES = tuple(Business("L3", f"many-{number:02}", None, _THROTTLED, contract=_CONTRACT) for number in range(_USERS))
_NAMES = [business.user for business in _BUSINESSES]


def thirty() -> list[Figure]:
    """The card's highest second of the last minute as a multiple of that minute's mean, in one moment and ours."""
    with tide_stage(_NAMES, Path("out/bench/thirty.operator.log")) as stage:
        moment = _in_one_moment(stage)
        ours = _by_tidegate(stage)
    _keep({"one transaction": moment, "Tidegate": ours})
    what = f"{_USERS} flat-out consumers cut at once, highest second of the card in the last minute"
    return [
        Figure(f"{what}, Tidegate", max(ours) / mean(ours), "x its mean", _TIMES_ITS_MEAN, f"mean {mean(ours) / MB:.1f} MB/s"),
        Figure(f"{what}, all in one transaction", max(moment) / mean(moment), "x its mean", None, f"mean {mean(moment) / MB:.1f} MB/s"),
    ]


def _by_tidegate(stage: TideStage) -> list[float]:
    with (
        stage.declared(_BUSINESSES, Operation.CONSUME),
        Znodes(stage.on.kafka.zookeeper_connect, _NAMES, Operation.CONSUME.znode_key) as znodes,
        crowd(stage.on.kafka, _BUSINESSES, Operation.CONSUME, run="spread") as clients,
    ):
        stage.wait(_FREE_SECONDS)
        stage.limit(Operation.CONSUME, _LIMIT)
        all_cut = lambda: all((quota or _CONTRACT) <= _THROTTLED for quota in znodes.quotas().values())  # noqa: E731
        if not stage.wait_until(all_cut, longest_seconds=_CUT_SECONDS):
            raise LabError(f"Not all {_USERS} users were cut within {_CUT_SECONDS} s.\n{stage.on.operator.log_tail()}")
        stage.wait(_WATCHED_SECONDS)
        return _last_minute(stage, clients)


def _in_one_moment(stage: TideStage) -> list[float]:
    """As a script would do it; no policy is there, and the quotas are taken away again."""
    zookeeper = stage.on.zookeeper
    _write_all(zookeeper, _CONTRACT)
    with crowd(stage.on.kafka, _BUSINESSES, Operation.CONSUME, run="moment") as clients:
        stage.wait(_FREE_SECONDS)
        _write_all(zookeeper, _THROTTLED)
        stage.wait(_WATCHED_SECONDS)
        card = _last_minute(stage, clients)
    _write_all(zookeeper, None)
    return card


def _keep(cards: Mapping[str, Sequence[float]]) -> None:
    lines = [f"{second},{who},{round(rate / 1000)}" for who, rates in cards.items() for second, rate in enumerate(rates)]
    (FOLDER / "thirty-users.csv").write_text("\n".join(["second,who,kilobytes_per_second", *lines, ""]), encoding="utf-8")


def _write_all(zookeeper: KazooClient, bytes_per_second: int | None) -> None:
    for name in _NAMES:
        zookeeper.ensure_path(f"/config/users/{name}")
    transaction = zookeeper.transaction()
    for name in _NAMES:
        transaction.set_data(f"/config/users/{name}", _document(bytes_per_second))
        transaction.create("/config/changes/config_change_", _notification(name), sequence=True)
    transaction.commit()


def _document(bytes_per_second: int | None) -> bytes:
    quotas = {} if bytes_per_second is None else {Operation.CONSUME.znode_key: str(bytes_per_second)}
    return json.dumps({"version": 1, "config": quotas}).encode()


def _notification(name: str) -> bytes:
    return f'{{"version":2,"entity_path":"users/{name}"}}'.encode()


def _last_minute(stage: TideStage, clients: Crowd) -> list[float]:
    end = int(time.time())
    time.sleep(_ROWS_LAG_SECONDS)
    card: ByteSeries | None = stage.card(Operation.CONSUME, start_seconds=end - _LAST_SECONDS - 5, end_seconds=end + 1)
    return (card or clients.together()).per_second(end - _LAST_SECONDS, _LAST_SECONDS)
