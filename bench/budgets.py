"""Six users of one team who share a BandwidthBudget on two brokers, leaders 2:1.

Three of them are flat out, and after two minutes the other three. Then one wants all and the others
next to nothing, and at last all are flat out. Played with real clients for two scaling methods.
Beside them, simulated with the same load: Pulsar's resource groups, whose brokers exchange their
usage every 60 s (PIP-82), and a static quota for each user. `python -m bench.budgets` draws
docs/measurements/budgets.svg out of the seconds that are kept there.
"""

import csv
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.control.world import (
    POLICY,
    OnKubernetes,
    metrics_of,
    operator_beside,
    policy,
    resource,
)
from bench.replication.parts import MB, POLICIES, declared, temporary_log
from bench.results import Figure
from lab.episodes import fill_topic
from lab.errors import LabError
from lab.kafka import BrokersLab, KafkaLab
from lab.load import LoadClient, LoadPlan, LoadRow, RateStep
from lab.prometheus import PrometheusLab, monitoring
from lab.quota_watch import watched_quotas
from lab.rates import SAWTOOTH_SECONDS, ByteSeries, Sample
from tidegate.report.svg import (
    Markup,
    Scale,
    horizontal_axis,
    horizontal_line,
    labelled,
    line,
    round_ticks,
    svg_file,
    text,
    vertical_axis,
    vertical_line,
)

METHODS = ("Adaptive", "Max")
FOLDER = Path("docs/measurements")
ROWS, PICTURE = FOLDER / "budgets.csv", FOLDER / "budgets.svg"
PASS_SECONDS, WINDOW_SECONDS = 15, 36
PULSAR, STATIC = "Pulsar (simulated)", "static split (simulated)"
_USERS = tuple(f"search-{number}" for number in range(6))
_TOPIC, _LEADERS = "clicks", ([1], [1], [2])
_PARTITIONS = range(len(_LEADERS))
_TOTAL = 12 * MB
_MINIMUM = _TOTAL * 5 // 100
_LITTLE = _TOTAL // 100
_EXCHANGE_SECONDS = 60
_OFF_PERCENT, _HAS = 5.0, 0.95
_WANTS_ALL_PASSES, _BACK_PASSES, _MUTE_SECONDS = 3, 2, 22
_CONSUMER = (
    ("socket.timeout.ms", "300000"),
    ("fetch.wait.max.ms", "50"),
    # small beside what a minimum allows in a second, or a tenth of it stays unused
    ("fetch.message.max.bytes", "32768"),
    ("queued.max.messages.kbytes", "512"),
)


@dataclass(frozen=True, slots=True)
class Turn:
    """Who wants how many bytes/s, and for how long; None = flat out, absent = nothing."""

    seconds: int
    wanted: Mapping[str, int | None]


ALL = _USERS[0]
TURNS = (
    Turn(120, dict.fromkeys(_USERS[:3])),
    Turn(120, dict.fromkeys(_USERS[3:])),
    Turn(75, {ALL: None, **dict.fromkeys(_USERS[1:], _LITTLE)}),
    Turn(45, dict.fromkeys(_USERS)),
)
_CHANGING = 2  # of the turns: three of six, flat out
_SECONDS = sum(turn.seconds for turn in TURNS)


@dataclass(frozen=True, slots=True)
class Shares:
    """What each user got in each second of all turns, in bytes."""

    got: Mapping[str, Sequence[float]]

    @property
    def together(self) -> Sequence[float]:
        return [sum(each) for each in zip(*self.got.values(), strict=True)]

    def farthest(self, settled_seconds: int = 0) -> tuple[float, float]:
        """The lowest and the highest mean of 36 s while three are flat out, in % of the budget.

        Of windows that begin so many seconds after a change, or later, and end before the next one;
        0 = of all windows.
        """
        together, begin, percents = self.together, 0, []
        spans = [TURNS[0].seconds + TURNS[1].seconds]
        if settled_seconds:
            spans = [turn.seconds for turn in TURNS[:_CHANGING]]
        for span in spans:
            firsts = range(begin + settled_seconds, begin + span - WINDOW_SECONDS + 1)
            percents += [
                100 * fmean(together[first : first + WINDOW_SECONDS]) / _TOTAL for first in firsts
            ]
            begin += span
        return min(percents), max(percents)

    def until(self, turn: int, user: str, share: float, *, of_free: bool) -> float:
        """Seconds of a turn until a mean of 12 s begins in which the user has that share.

        Of what all others leave of the budget, or of its minimum. The turn's length if never.
        """
        begin = sum(one.seconds for one in TURNS[:turn])
        seconds = TURNS[turn].seconds
        together = self.together
        for second in range(seconds - SAWTOOTH_SECONDS + 1):
            window = slice(begin + second, begin + second + SAWTOOTH_SECONDS)
            mine = fmean(self.got[user][window])
            others = fmean(together[window]) - mine
            if mine >= share * (_TOTAL - others if of_free else _MINIMUM):
                return float(second)
        return float(seconds)

    def least_of_wanted(self, turn: int) -> float:
        """Of all who want little: the lowest mean of the turn's end, in % of what is wanted."""
        end = sum(one.seconds for one in TURNS[: turn + 1])
        return min(
            100 * fmean(self.got[user][end - WINDOW_SECONDS : end]) / wanted
            for user, wanted in TURNS[turn].wanted.items()
            if wanted is not None
        )


@dataclass(frozen=True, slots=True)
class _Played:
    shares: Shares
    longest_mute_seconds: float
    writes: int


def budget_figures() -> list[Figure]:
    """How near the total comes to the budget, and how soon members have their part."""
    with ExitStack() as stack:
        kafka = stack.enter_context(KafkaLab(brokers=2, users=_USERS))
        prometheus = stack.enter_context(monitoring(kafka))
        kafka.create_topic(_TOPIC, _LEADERS)
        fill_topic(kafka, _TOPIC, partitions=_PARTITIONS, total_bytes=120 * MB)
        on = stack.enter_context(operator_beside(kafka, temporary_log()))
        runs = {f"Tidegate, {method}": _play(on, kafka, prometheus, method) for method in METHODS}
    peers = {PULSAR: pulsar(), STATIC: static_split()}
    _keep({**{run: played.shares for run, played in runs.items()}, **peers})
    PICTURE.write_text(_picture(_read()), encoding="utf-8")
    figures = [
        figure
        for run, played in runs.items()
        for figure in (*_figures(run, played.shares, bounded=True), *_costs(run, played))
    ]
    return [*figures, *(one for peer, shares in peers.items() for one in _figures(peer, shares))]


# --- the real brokers ---


def _play(on: OnKubernetes, kafka: BrokersLab, prometheus: PrometheusLab, method: str) -> _Played:
    """All turns under one policy of this method, which is gone afterwards."""
    one = policy(kafka, "Restore")
    one["spec"] |= {
        "metrics": metrics_of(kafka, prometheus),
        "leaderScaling": {"method": method},
        "defaults": {"metering": "Enabled"},  # or each begins with the whole budget
    }
    objects = [(POLICIES, one), ("businesstiers", _tier()), ("bandwidthbudgets", _budget())]
    samples: dict[str, list[Sample]] = {user: [] for user in _USERS}
    throttled_milliseconds = 0
    with ExitStack() as stack:
        # a budget waits until every broker has clients to report
        with _clients(kafka, Turn(0, dict.fromkeys(_USERS, _LITTLE)), f"{method}-first"):
            time.sleep(5)
            stack.enter_context(declared(on, objects))
        watch = stack.enter_context(watched_quotas(kafka, _USERS))
        begin = time.time()
        for number, turn in enumerate(TURNS):
            with _clients(kafka, turn, f"{method}-{number}") as clients:
                ends = begin + sum(each.seconds for each in TURNS[: number + 1])
                time.sleep(max(0.0, ends - time.time()))
                if not all(client.is_running() for client in clients.values()):
                    raise LabError("A consumer has ended before its turn was over: see its log.")
            for user, client in clients.items():
                rows = client.rows()
                samples[user] += _samples(rows)
                throttled = [row.throttle_milliseconds for row in rows]
                throttled_milliseconds = max(throttled_milliseconds, *throttled)
        writes = len([write for write in watch.writes() if write.at_seconds >= begin])
    shares = Shares(
        {user: ByteSeries(mine).per_second(begin, _SECONDS) for user, mine in samples.items()}
    )
    return _Played(shares, throttled_milliseconds / 1000, writes)


def _samples(rows: Sequence[LoadRow]) -> list[Sample]:
    """What a client moved, with nothing before it began."""
    begin = [Sample(row.unix_seconds, 0) for row in rows[:1]]
    return begin + [Sample(row.unix_seconds + 1, row.moved_bytes) for row in rows]


def _tier() -> dict[str, Any]:
    members = [{"name": user, "user": user, "topics": [_TOPIC]} for user in _USERS]
    spec = {
        "policyRef": {"name": POLICY},
        "level": "L2",
        "throttledRates": {"perPartition": {"fetch": str(_LITTLE)}},
        "members": members,
    }
    return resource("BusinessTier", "search", spec)


def _budget() -> dict[str, Any]:
    spec = {
        "policyRef": {"name": POLICY},
        "total": {"fetch": str(_TOTAL)},
        "members": {"tiers": ["search"]},
    }
    return resource("BandwidthBudget", "search", spec)


@contextmanager
def _clients(kafka: BrokersLab, turn: Turn, run: str) -> Iterator[Mapping[str, LoadClient]]:
    with ExitStack() as stack:
        clients = {
            user: LoadClient(_plan(kafka, user, wanted, run), kafka.run.path / "load")
            for user, wanted in turn.wanted.items()
        }
        for client in clients.values():
            stack.enter_context(client)
        yield clients


def _plan(kafka: BrokersLab, user: str, wanted: int | None, run: str) -> LoadPlan:
    return LoadPlan(
        name=f"{user}-{run}",
        mode="consume",
        bootstrap_servers=kafka.sasl_bootstrap_servers,
        topic=_TOPIC,
        partitions=tuple(_PARTITIONS),
        duration_seconds=_SECONDS,
        max_bytes=2 * _TOTAL * _SECONDS,
        user=user,
        password=kafka.password(user),
        client_id=f"bench-{user}",
        steps=(RateStep(0, wanted),),
        settings=_CONSUMER,
    )


# --- the peers, as fluids: nothing is lost to a broker's window, which is the best for them ---


def pulsar() -> Shares:
    """One bucket for the team on each broker, divided again by the usage of the last minute.

    A broker's part of the total is its part of the usage, as in ResourceQuotaCalculatorImpl. Users
    who ask for more of a bucket get more of it. Before the first turn usage was as leaders are, and
    that never changes here: nothing of what this exchange is late for is in this load.
    """
    parts = _parts()
    quotas = {broker: _TOTAL * part for broker, part in parts.items()}
    used = dict.fromkeys(parts, 0.0)
    got: dict[str, list[float]] = {user: [] for user in _USERS}
    for second, wanted in enumerate(_wanted()):
        now = dict.fromkeys(_USERS, 0.0)
        for broker, part in parts.items():
            asked = sum(wanted.values()) * part
            granted = min(1.0, quotas[broker] / asked)
            used[broker] += asked * granted
            for user, rate in wanted.items():
                now[user] += rate * part * granted
        for user, rate in now.items():
            got[user].append(rate)
        if (second + 1) % _EXCHANGE_SECONDS == 0:
            quotas = {broker: _TOTAL * used[broker] / sum(used.values()) for broker in parts}
            used = dict.fromkeys(parts, 0.0)
    return Shares(got)


def static_split() -> Shares:
    """The same quota for each user on each broker, for ever."""
    parts, got = _parts(), {user: list[float]() for user in _USERS}
    quota = _TOTAL / len(_USERS) / len(parts)
    for wanted in _wanted():
        for user in _USERS:
            rate = wanted.get(user, 0.0)
            got[user].append(sum(min(rate * part, quota) for part in parts.values()))
    return Shares(got)


def _parts() -> Mapping[int, float]:
    """What part of anybody's traffic each broker leads."""
    leaders = [broker for (broker,) in _LEADERS]
    return {broker: leaders.count(broker) / len(leaders) for broker in sorted(set(leaders))}


def _wanted() -> Iterator[Mapping[str, float]]:
    """What each user wants in each second; flat out is the whole budget from each broker."""
    most = _TOTAL * len(_LEADERS)
    for turn in TURNS:
        for _ in range(turn.seconds):
            yield {user: most if rate is None else rate for user, rate in turn.wanted.items()}


# --- figures, rows, picture ---


def _figures(run: str, shares: Shares, *, bounded: bool = False) -> Iterator[Figure]:
    where = f"{len(_USERS)} users share {_TOTAL // MB} MB/s, leaders 2:1, {run}"
    settled_seconds = 3 * PASS_SECONDS
    for what, seconds in (("", 0), (f", from {settled_seconds} s after a change", settled_seconds)):
        low, high = shares.farthest(seconds)
        yield Figure(
            f"{where}: three flat out, the three change; means of {WINDOW_SECONDS} s{what} are off "
            "by at most",
            max(100 - low, high - 100),
            "% of the budget",
            _OFF_PERCENT if bounded and not seconds else None,
            f"{low:.0f} to {high:.0f} % of it",
        )
    wants_all, back = _CHANGING, _CHANGING + 1
    yield Figure(
        f"{where}: one wants all, has 95 % of what is free after",
        shares.until(wants_all, ALL, _HAS, of_free=True),
        "s",
        float(_WANTS_ALL_PASSES * PASS_SECONDS) if bounded else None,
        f"a mean of {SAWTOOTH_SECONDS} s from then on; a pass is {PASS_SECONDS} s; the turn "
        f"ends after {TURNS[wants_all].seconds} s",
    )
    yield Figure(
        f"{where}: one wants all, each of the others gets at least",
        shares.least_of_wanted(wants_all),
        "% of what it wants",
        None,
        f"{_LITTLE / MB:g} MB/s; in the last {WINDOW_SECONDS} s of that turn",
    )
    yield Figure(
        f"{where}: then all want all, the last of the others has its minimum after",
        max(shares.until(back, user, _HAS, of_free=False) for user in _USERS[1:]),
        "s",
        float(_BACK_PASSES * PASS_SECONDS) if bounded else None,
        f"95 % of {_MINIMUM / MB:g} MB/s in a mean of {SAWTOOTH_SECONDS} s from then on",
    )


def _costs(run: str, played: _Played) -> Iterator[Figure]:
    where = f"{len(_USERS)} users share {_TOTAL // MB} MB/s, leaders 2:1, {run}"
    yield Figure(
        f"{where}: the longest throttle time that a broker answered",
        played.longest_mute_seconds,
        "s",
        float(_MUTE_SECONDS),
    )
    yield Figure(f"{where}: quotas written in {_SECONDS} s", played.writes, "writes", None)


def _keep(runs: Mapping[str, Shares]) -> None:
    with ROWS.open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(["run", "second", *(f"{user}_kilobytes" for user in _USERS)])
        for run, shares in runs.items():
            for second, each in enumerate(zip(*shares.got.values(), strict=True)):
                rows.writerow([run, second, *(round(rate / 1000) for rate in each)])


def _read() -> dict[str, Shares]:
    got: dict[str, dict[str, list[float]]] = {}
    with ROWS.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            mine = got.setdefault(row["run"], {user: [] for user in _USERS})
            for user in _USERS:
                mine[user].append(float(row[f"{user}_kilobytes"]) * 1000)
    return {run: Shares(mine) for run, mine in got.items()}


_COLOURS = ("l0", "l1", "l3", "l2")
_LEFT, _RIGHT = 44, 860
_WORDS = ("three flat out", "the other three", "one wants all", "all want all")


def _picture(runs: Mapping[str, Shares]) -> str:
    """All users together in each run, and below what each of them gets with Tidegate."""
    first = next(iter(runs))
    parts = [
        *_legend(runs),
        *_panel([(shares.together, _COLOURS[n]) for n, shares in enumerate(runs.values())], 106),
        *_panel(
            [(each, "l0" if user == ALL else "other") for user, each in runs[first].got.items()],
            390,
            f"each user, {first}, {ALL} in blue",
        ),
    ]
    description = "What six users of one budget get together, and each of them with Tidegate."
    return svg_file("Six users share 12 MB/s", description, parts, height=660)


def _legend(runs: Iterable[str]) -> Iterator[Markup]:
    for place, (run, colour) in enumerate(zip(runs, _COLOURS, strict=True)):
        at = 14 + 210 * place
        yield line([(at, 56), (at + 22, 56)], stroke=colour, stroke_width=2)
        yield text(run, at + 28, 60)


def _panel(
    lines: Sequence[tuple[Sequence[float], str]], top: int, title: str = ""
) -> Iterator[Markup]:
    """Means of 12 s in MB/s; the budget is dashed."""
    bottom = top + 210
    means = [(_means(rates), colour) for rates, colour in lines]
    ticks = round_ticks(max(_TOTAL / MB, *(max(each) for each, _ in means)))
    across, upward = Scale(0, _SECONDS, _LEFT, _RIGHT), Scale(0, ticks[-1], bottom, top)
    yield vertical_axis(upward, labelled(ticks), left=_LEFT, right=_RIGHT)
    yield horizontal_axis(
        across,
        labelled(range(0, _SECONDS + 1, 60)),
        top=top,
        bottom=bottom,
        title=f"seconds; MB/s of {title or 'all users'}, means of 12 s; dashed: the budget",
    )
    yield horizontal_line(upward.at(_TOTAL / MB), _LEFT, _RIGHT, class_="limit")
    begin = 0
    for turn, words in zip(TURNS, _WORDS, strict=True):
        yield vertical_line(across.at(begin), top, bottom, stroke="ink")
        yield text(words, across.at(begin) + 6, top - 8)
        begin += turn.seconds
    for each, colour in means:
        points = [(across.at(n + 1), upward.at(rate)) for n, rate in enumerate(each)]
        yield line(points, stroke=colour, stroke_width=1.8)


def _means(rates: Sequence[float]) -> list[float]:
    return [
        fmean(rates[max(0, end - SAWTOOTH_SECONDS) : end]) / MB for end in range(1, len(rates) + 1)
    ]


if __name__ == "__main__":
    PICTURE.write_text(_picture(_read()), encoding="utf-8")
    sys.exit(0)
