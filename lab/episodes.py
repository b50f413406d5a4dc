"""Plays a throttling episode on a real broker: clients of known demand, and the figures of it.

An episode is the same everywhere, in the demo, the benchmarks and the scenarios on a cluster:
clients move what they want, the broker's limit is lowered, tiers are throttled until the NIC is
within it and rest there, the limit is raised, all return. Who lowers the limit, and what writes the
quotas, is up to the caller. Times are seconds since the epoch, rates bytes per second.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

from lab.errors import LabError
from lab.kafka import BrokersLab
from lab.load import LoadClient, LoadPlan, RateStep
from lab.process import Process
from lab.prometheus import PrometheusLab
from lab.quota_watch import QuotaWrite
from lab.rates import SAWTOOTH_SECONDS, ByteSeries, Sample, growth, steady_mean

# shorter means of a NIC swing with the sawtooth of throttled clients
NIC_MEAN_SECONDS = 2 * SAWTOOTH_SECONDS
LONG_MEAN_SECONDS = 36
LIMIT_SLACK = 0.05
FULL_SHARE = 0.97
# How far above its throttled rate a quota may rest: a floor of its own for consumers lies 5 % above
# 1 MB/s.
AT_FLOOR = 1.06
# No cut follows another sooner than after 30 s: after this long without one the tiers are at rest.
QUIET_SECONDS = 36
# A client writes a second's row when it is over, and Prometheus' newest scrape is a second old.
ROWS_LAG_SECONDS = 2

_LONGEST_RUN_SECONDS = 1800  # a run ends its clients itself; this bounds them if it cannot
_FLAT_OUT_BYTES_PER_SECOND = 200_000_000
_FILL_SECONDS = 60
_LEAST_READ_AHEAD_KILOBYTES, _MOST_READ_AHEAD_KILOBYTES = 1024, 4096
_CONSUMER = (
    # A muted client of librdkafka reconnects after a minute and gets away with it; a Java client
    # waits it out, and so do these.
    ("socket.timeout.ms", "300000"),
    ("fetch.queue.backoff.ms", "20"),
    ("fetch.wait.max.ms", "50"),
    # Half of what 1 MB/s allows in a second: a fetch as large as that second leaves a tenth of such
    # a quota unused.
    ("fetch.message.max.bytes", "524288"),
)


def nic_counter(broker: int) -> str:
    """node_exporter's counter of what a broker in its own network namespace sends."""
    return f'node_network_transmit_bytes_total{{broker="{broker}",device="eth0"}}'


@dataclass(frozen=True, slots=True)
class Business:
    """One Kafka user; `throttled` None = never throttled, `wanted` None = flat out."""

    level: str
    user: str
    wanted: int | None
    throttled: int | None
    contract: int

    @property
    def demand(self) -> int:
        """What it wants at most, a bounded number for flat-out clients too."""
        return _FLAT_OUT_BYTES_PER_SECOND if self.wanted is None else self.wanted


class Clients:
    """Running consumers, one for each business. Bytes are payload, per whole second."""

    def __init__(self, clients: Mapping[Business, LoadClient]) -> None:
        self._clients = clients

    def by_user(self) -> dict[str, ByteSeries]:
        """User -> what it moved so far."""
        return {business.user: _moved_by([client]) for business, client in self._clients.items()}

    def together(self) -> ByteSeries:
        """What all of them moved so far."""
        return _moved_by(self._clients.values())

    def newest(self, seconds: int) -> dict[str, tuple[float, ...]]:
        """Level -> its rates of the last whole seconds, newest last."""
        return {
            business.level: tuple(float(row.moved_bytes) for row in client.rows()[-seconds:])
            for business, client in self._clients.items()
        }


def fill_topic(
    kafka: BrokersLab,
    topic: str,
    *,
    partitions: Sequence[int] = (0,),
    total_bytes: int = 160_000_000,
) -> None:
    """Write something to read, round and round from the page cache.

    Without login, so under no quota.
    """
    plan = LoadPlan(
        name=f"fill-{topic}",
        mode="produce",
        bootstrap_servers=kafka.bootstrap_servers,
        topic=topic,
        partitions=tuple(partitions),
        duration_seconds=_FILL_SECONDS,
        max_bytes=total_bytes,
    )
    with LoadClient(plan, kafka.run.path / "load", namespace=kafka.client_namespace) as client:
        client.wait()


@contextmanager
def running_clients(
    kafka: BrokersLab,
    businesses: Sequence[Business],
    *,
    topic: str,
    run: str,
    prefix: str,
    catch_up_seconds: float = 2.0,
    l0_catch_up_seconds: float = 10.0,
) -> Iterator[Clients]:
    """Run a consumer of the topic's partition 0 for every business while the context is open.

    They come up within 8 s, without a burst. `run` makes the names of files unique, `prefix` begins
    the client-ids. What a client did not get while the machine was busy elsewhere it gets later, up
    to so many seconds' worth of it; L0, which is never throttled, has more patience.
    """
    directory = kafka.run.path / "load"
    with ExitStack() as stack:
        clients = {}
        for business in businesses:
            patience = (
                catch_up_seconds
                if business.throttled is not None
                else max(catch_up_seconds, l0_catch_up_seconds)
            )
            plan = _plan(
                kafka, business, topic=topic, run=run, prefix=prefix, catch_up_seconds=patience
            )
            clients[business] = stack.enter_context(
                LoadClient(plan, directory, namespace=kafka.client_namespace)
            )
        yield Clients(clients)


def _plan(
    kafka: BrokersLab,
    business: Business,
    *,
    topic: str,
    run: str,
    prefix: str,
    catch_up_seconds: float,
) -> LoadPlan:
    demand = business.demand
    # A sixth of a second of what it wants is read ahead: what a client is sent in a second is then
    # what it wanted in it.
    read_ahead = min(_MOST_READ_AHEAD_KILOBYTES, max(_LEAST_READ_AHEAD_KILOBYTES, demand // 6000))
    return LoadPlan(
        name=f"{business.level}-{business.user}-{run}",
        mode="consume",
        bootstrap_servers=kafka.sasl_bootstrap_servers,
        topic=topic,
        partitions=(0,),
        duration_seconds=_LONGEST_RUN_SECONDS,
        max_bytes=demand * _LONGEST_RUN_SECONDS,
        user=business.user,
        password=kafka.password(business.user),
        client_id=f"{prefix}-{business.user}",
        steps=_ramp(business.wanted),
        catch_up_seconds=catch_up_seconds,
        settings=(*_CONSUMER, ("queued.max.messages.kbytes", str(read_ahead))),
    )


def _ramp(wanted: int | None) -> tuple[RateStep, ...]:
    if wanted is None:
        return (RateStep(0, None),)
    return RateStep(0, wanted // 4), RateStep(4, wanted // 2), RateStep(8, wanted)


def _moved_by(clients: Iterable[LoadClient]) -> ByteSeries:
    moved: Counter[int] = Counter()
    for client in clients:
        moved.update({row.unix_seconds + 1: row.moved_bytes for row in client.rows()})
    return ByteSeries(Sample(at, count) for at, count in moved.items())


def nic_bytes(
    kafka: BrokersLab,
    prometheus: PrometheusLab,
    clients: Clients,
    broker: int,
    *,
    start_seconds: float,
    end_seconds: float,
) -> ByteSeries:
    """What the broker's NIC sent, second by second, as Prometheus scraped it.

    Without root no broker has a NIC of its own; then it is what all clients moved: there are no
    others.
    """
    if kafka.network is None:
        return clients.together()
    answer = prometheus.query_range(
        nic_counter(broker), start_seconds, end_unix_seconds=end_seconds, step_seconds=1
    )
    return ByteSeries(growth(answer[0]["values"]) if answer else ())


def wait_until(
    holds: Callable[[], bool],
    operator: Process,
    *,
    longest_seconds: float,
    poll_seconds: float = 1.0,
) -> bool:
    """Check every `poll_seconds`; True as soon as it holds, False when the time is over.

    Raises `LabError` when the operator ended.
    """
    ends = time.time() + longest_seconds
    while (left := ends - time.time()) > 0:
        if holds():
            return True
        if not operator.is_running():
            raise LabError(
                f"The operator ended with code {operator.exit_code} during the "
                f"episode.\n{operator.log_tail()}"
            )
        time.sleep(min(poll_seconds, left))
    return holds()


def at_throttled_rates(quotas: Mapping[str, int | None], businesses: Sequence[Business]) -> bool:
    """Whether every business that can be throttled has a quota of its throttled rate, or nearly."""
    return all(
        (quotas.get(one.user) or one.contract) <= one.throttled * AT_FLOOR
        for one in businesses
        if one.throttled is not None
    )


def is_quiet(writes: Sequence[QuotaWrite], *, since: float) -> bool:
    """Whether something was written since then, but nothing in the last 36 s."""
    times = [write.at_seconds for write in writes if write.at_seconds >= since]
    return bool(times) and time.time() - times[-1] >= QUIET_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """What one episode left: limit lowered, tiers measured at rest, limit raised, all returned.

    `moved` is by user, `nic` is the broker's. Levels are named L0 to L3; each has one business.
    """

    limit: float
    businesses: tuple[Business, ...]
    limited_at_seconds: float
    measured_from_seconds: float
    measured_seconds: int
    raised_at_seconds: float
    ended_seconds: float
    moved: Mapping[str, ByteSeries]
    nic: ByteSeries
    writes: Sequence[QuotaWrite]

    def business_of(self, level: str) -> Business:
        """The business of that level; StopIteration for a level that takes no part."""
        return next(business for business in self.businesses if business.level == level)

    def level_of(self, user: str) -> str:
        """The level of that user's business; StopIteration for a user that takes no part."""
        return next(business.level for business in self.businesses if business.user == user)

    def moved_by(self, level: str) -> ByteSeries:
        """What the level's business moved."""
        return self.moved[self.business_of(level).user]

    def writes_of(self, level: str) -> list[QuotaWrite]:
        """Every write of the level's quota, in the order of time."""
        user = self.business_of(level).user
        return [write for write in self.writes if write.user == user]

    def written(self, level: str) -> list[QuotaWrite]:
        """Those of them that were made while the limit was low."""
        return [
            write
            for write in self.writes_of(level)
            if self.limited_at_seconds <= write.at_seconds < self.raised_at_seconds
        ]

    def first_write_seconds(self) -> float | None:
        """When the first quota was written after the limit was lowered; None when none was."""
        return min(
            (
                write.at_seconds
                for business in self.businesses
                for write in self.written(business.level)
            ),
            default=None,
        )

    def seconds_to_first_write(self) -> float | None:
        """From the lowered limit to the first quota written; None when none was."""
        first = self.first_write_seconds()
        return None if first is None else first - self.limited_at_seconds

    def turns_out_of_order(self) -> int:
        """How many levels were written before a less important one was.

        L3 comes first, then L2, then L1.
        """
        levels = sorted(
            (one.level for one in self.businesses if one.throttled is not None), reverse=True
        )
        firsts = [
            writes[0].at_seconds if (writes := self.written(level)) else float("inf")
            for level in levels
        ]
        # Those of one transaction carry the same time to the millisecond.
        return sum(later < earlier for earlier, later in pairwise(firsts))

    def silences(self, level: str) -> list[tuple[float, int]]:
        """Every run of whole seconds in which the level moved nothing: its begin and its length.

        They count from the first write to the end: that is what a step may cause.
        """
        first = self.first_write_seconds()
        if first is None:
            return []
        begin = int(first)
        return [
            (float(begin + second), seconds)
            for second, seconds in runs_of_nothing(
                self.moved_by(level).per_second(begin, int(self.ended_seconds) - begin)
            )
        ]

    def longest_silence(self, level: str) -> int:
        """The longest of them, in seconds; 0 when there was none."""
        return max((seconds for _, seconds in self.silences(level)), default=0)

    def seconds_until_within(self) -> float | None:
        """Seconds from the first write until the NIC's 24-second mean is within the limit + 5 %.

        It has to stay so for 12 s; None if it never does. All are silent for a moment after a cut:
        a mean that dips within the limit and comes out of it before a sawtooth is over does not
        count.
        """
        first = self.first_write_seconds()
        if first is None:
            return None
        within = 0
        for end in range(int(first) + 1, int(self.raised_at_seconds) + 1):
            mean = self.nic.mean(end - NIC_MEAN_SECONDS, NIC_MEAN_SECONDS)
            within = within + 1 if mean <= self.limit * (1 + LIMIT_SLACK) else 0
            if within == SAWTOOTH_SECONDS:
                return end - SAWTOOTH_SECONDS + 1 - first
        return None

    def rate_at_rest(self, level: str) -> float:
        """What the level moved while the tiers were measured: the mean of all 12-second means."""
        return steady_mean(self.moved_by(level), self.measured_from_seconds, self.measured_seconds)

    def quota_at_rest(self, level: str) -> int | None:
        """The quota in force while the tiers were measured; None = no quota."""
        before = [
            write.after
            for write in self.writes_of(level)
            if write.at_seconds <= self.measured_from_seconds
        ]
        return before[-1] if before else None

    def expected_at_rest(self, level: str) -> int:
        """What the level should move at rest: its quota, or what it wants where that is less."""
        quota, demand = self.quota_at_rest(level), self.business_of(level).demand
        return demand if quota is None else min(quota, demand)

    def quota_at_end(self, level: str) -> int | None:
        """The quota in force at the end; None = no quota."""
        writes = self.writes_of(level)
        return writes[-1].after if writes else None

    def lowest_share(self, level: str) -> float:
        """The lowest mean of any 36 s from the lowered limit on, as a share of the demand."""
        first = int(self.limited_at_seconds)
        starts = range(first, max(first, int(self.ended_seconds) - LONG_MEAN_SECONDS) + 1)
        series = self.moved_by(level)
        return (
            min(series.mean(start, LONG_MEAN_SECONDS) for start in starts)
            / self.business_of(level).demand
        )

    def seconds_until_full(self, level: str) -> float | None:
        """From the raise until the level gets 97 % of what it wants, in seconds; None = never.

        It counts as the mean of the 12 s that follow.
        """
        series, enough = self.moved_by(level), FULL_SHARE * self.business_of(level).demand
        starts = range(int(self.ended_seconds - SAWTOOTH_SECONDS - self.raised_at_seconds) + 1)
        return next(
            (
                float(start)
                for start in starts
                if series.mean(self.raised_at_seconds + start, SAWTOOTH_SECONDS) >= enough
            ),
            None,
        )

    def seconds_until_all_full(self) -> float | None:
        """From the raise until every level gets what it wants; None if one never does."""
        each = [self.seconds_until_full(business.level) for business in self.businesses]
        return None if None in each else max(seconds for seconds in each if seconds is not None)


def runs_of_nothing(rates: Sequence[float]) -> list[tuple[int, int]]:
    """Every run of seconds without a byte: its first second, and how many there are."""
    runs = [(moves, len(list(seconds))) for moves, seconds in groupby(rate > 0 for rate in rates)]
    ends = accumulate(length for _, length in runs)
    return [
        (end - length, length) for end, (moves, length) in zip(ends, runs, strict=True) if not moves
    ]
