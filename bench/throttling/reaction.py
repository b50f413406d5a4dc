"""How long from a NIC over its limit to the first throttle in ZooKeeper, at two intervals.

The NICs and the clients' rates are made up (exporters that Prometheus scrapes), so that the load
rises at a known moment, anywhere between two scrapes; the rest is real. A slight overload needs two
scrapes to be believed, which at 15 s is half a minute by itself. The start is that moment, the end
the modification time of the first znode that is lowered.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random

from bench.control.world import POLICY, TOPIC, World, is_true, policy, resource, world
from bench.results import Figure, percentiles
from lab.prometheus import PrometheusLab, ScrapeTarget, exporting

_MB = 1_000_000
_LIMIT, _CALM = 50 * _MB, 20 * _MB
# below 110 % two samples of three have to agree, above one is enough
_SLIGHTLY_OVER, _FAR_OVER = 54 * _MB, 100 * _MB
_CONTRACT, _FLOOR, _SENT = 60 * _MB, 1 * _MB, 8 * _MB
_USERS = 4
_APART_SECONDS = 20  # an episode soon after another is met with more patience
_PROMETHEUS_AND_BROKER = 1


class _NicAndClients:
    """One broker's NIC and clients; `rate` is what it carries, in bytes/s."""

    def __init__(self) -> None:
        self.rate = float(_CALM)
        self._bytes, self._at = 0.0, time.monotonic()

    def set(self, rate: float) -> None:
        self._count()
        self.rate = rate

    def page(self, _: int) -> str:
        """What the broker's exporters show at a scrape."""
        self._count()
        clients = "".join(
            _client(user, _SENT if self.rate > _LIMIT else _MB) for user in range(_USERS)
        )
        return f'node_network_transmit_bytes_total{{device="eth0"}} {self._bytes}\n{clients}'

    def _count(self) -> None:
        now = time.monotonic()
        self._bytes += self.rate * (now - self._at)
        self._at = now


def _client(user: int, rate: int) -> str:
    labels = f'resource="Fetch",user="throttled-{user}"'
    return f"kafka_quota_byte_rate{{{labels}}} {rate}\nkafka_quota_throttle_time{{{labels}}} 0\n"


def throttle_reaction(
    scrape_seconds: int, runs: int, over: int, *, bound_seconds: float
) -> list[Figure]:
    """P50 and P95 of `runs` in seconds, when the NIC goes to `over` bytes/s."""
    nic, chance, taken = _NicAndClients(), Random(7), []
    with _watched(nic, scrape_seconds) as on:
        for _ in range(runs):
            time.sleep(_APART_SECONDS + chance.uniform(0, scrape_seconds))
            taken.append(_once(on, nic, over))
    what = (
        f"NIC at {100 * over // _LIMIT} % of its limit to first throttle committed, scrape "
        f"{scrape_seconds} s"
    )
    return percentiles(what, taken, "s", {50: None, 95: bound_seconds})


@contextmanager
def _watched(nic: _NicAndClients, scrape_seconds: int) -> Iterator[World]:
    """One broker whose NIC and clients are `nic`, at their contracts, with a load that is known."""
    with world(brokers=1) as on, ExitStack() as stack:
        exporter = stack.enter_context(exporting(nic.page))
        targets = [ScrapeTarget("node", exporter.address, _PROMETHEUS_AND_BROKER)]
        prometheus = stack.enter_context(
            PrometheusLab(targets, scrape_interval_seconds=scrape_seconds)
        )
        _declare(on, prometheus, scrape_seconds)
        on.wait(
            lambda: _is_fresh(on) and _all_at_contract(on),
            "contracts, and a load that is known",
        )
        yield on


def _once(on: World, nic: _NicAndClients, over: int) -> float:
    nic.set(over)
    began = time.time()
    on.wait(lambda: not _all_at_contract(on), "the first throttle")
    committed = min(
        stat.last_modified
        for user in range(_USERS)
        if (stat := on.zookeeper.exists(_znode(user))).last_modified > began
    )
    nic.set(_CALM)
    on.wait(lambda: _all_at_contract(on), "contracts again")
    return float(committed - began)


def _declare(on: World, prometheus: PrometheusLab, scrape_seconds: int) -> None:
    declared = policy(on.kafka)
    # the reaction does not depend on it, the way back does
    declared["spec"]["kafka"]["quotaWindow"] = {"samples": 2}
    declared["spec"] |= {
        "metrics": {
            "prometheus": {"url": prometheus.url},
            "scrapeIntervalSeconds": scrape_seconds,
            "staleAfterSeconds": 3 * scrape_seconds,
        },
        "brokers": {"egress": {"limit": str(_LIMIT)}},
        # longer than from one cut to the next, as always but in tests
        "escalation": {"holdSeconds": 7},
        "writeBudget": {"changes": 10_000},
    }
    on.create("brokerbandwidthpolicies", declared)
    contract, throttled = ({"perBroker": {"fetch": str(rate)}} for rate in (_CONTRACT, _FLOOR))
    members = [
        {
            "name": f"throttled-{user}",
            "user": f"throttled-{user}",
            "topics": [TOPIC],
            "contract": contract,
        }
        for user in range(_USERS)
    ]
    spec = {
        "policyRef": {"name": POLICY},
        "level": "L3",
        "throttledRates": throttled,
        "members": members,
    }
    on.create("businesstiers", resource("BusinessTier", "throttled", spec))


def _all_at_contract(on: World) -> bool:
    wanted = f'"consumer_byte_rate":"{_CONTRACT}"'.encode()
    return all(
        on.zookeeper.exists(_znode(user)) and wanted in on.zookeeper.get(_znode(user))[0]
        for user in range(_USERS)
    )


def _is_fresh(on: World) -> bool:
    return is_true(on.read("brokerbandwidthpolicies", POLICY), "MetricsFresh")


def _znode(user: int) -> str:
    return f"/config/users/throttled-{user}"


slightly_over = partial(throttle_reaction, 1, 10, _SLIGHTLY_OVER, bound_seconds=12.0)
far_over_rarely_read = partial(throttle_reaction, 15, 10, _FAR_OVER, bound_seconds=30.0)
