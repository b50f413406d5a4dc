"""The operator on Kafka 4: many contracts at once, one changed contract, a killed broker.

Ends are taken by asking the brokers, every few milliseconds, so they are that much late.
"""

import time
from collections.abc import Sequence

from confluent_kafka.admin import AdminClient as ConfluentAdmin

from bench.control.world import (
    TIERS,
    TOPIC,
    KraftWorld,
    kraft_world,
    policy,
    tier,
)
from bench.results import Figure, median_of, percentiles
from tidegate.kafka.adminapi.client import AdminClient
from tidegate.kafka.adminapi.quotas import describe
from tidegate.kafka.adminapi.store import LEDGER_TOPIC
from tidegate.kafka.protocol import metadata
from tidegate.kafka.settings import KafkaConnection
from tidegate_logic.model import Entity, QuotaKey

_FIRST_USER = Entity("user-0")
_LAST_USER = Entity("user-999")  # as texts are sorted, of 1000 and of 5000, so it is written last
_REACTION_ENTITIES = 10
_POLL_SECONDS = 0.005
_COMMITTED_BOUNDS = {1000: 0.8, 5000: 2.0}
_STATUS_BOUNDS = {1000: 2.5, 5000: 10.0}
_CHANGE_P99_BOUND_MILLISECONDS = 300.0
_REACTION_P95_BOUND_SECONDS = 0.6


def kraft_cold(entities: int, runs: int = 3) -> list[Figure]:
    """Until `entities` contracts in ten tiers are in force and in status, from nothing.

    One broker. The tiers exist already; the clock starts when the policy is created. The median of
    `runs` runs, each on a cluster of its own that has had a transaction and a quota before. Then
    one run on a broker that has just been made.
    """
    taken = []
    for _ in range(runs):
        with kraft_world(1) as on:
            taken.append(_cold_once(on, entities))
    with kraft_world(1, used=False) as on:
        first_committed, first_reported = _cold_once(on, entities)
    committed, reported = zip(*taken, strict=True)
    what = f"Kafka 4.3.1 without ZooKeeper, {entities} contracts in {TIERS} tiers, cold, one broker"
    return [
        _median(f"{what}: all in force", committed, _COMMITTED_BOUNDS[entities]),
        _median(f"{what}: all in force and in status", reported, _STATUS_BOUNDS[entities]),
        Figure(
            f"{what} that never had a transaction or a quota: all in force",
            first_committed,
            "s",
            None,
            f"one run, in status after {first_reported:.3g} s",
        ),
    ]


def _median(what: str, taken: Sequence[float], bound: float) -> Figure:
    return median_of([Figure(what, one, "s", bound) for one in taken])


def _cold_once(on: KraftWorld, entities: int) -> tuple[float, float]:
    on.create_tiers(entities)
    asking = _asking(on, 1)
    started = time.time()
    on.create("brokerbandwidthpolicies", policy(on.kafka))
    # to ask for all of them takes time of the processors that the operator needs
    on.wait(lambda: describe(asking, [_LAST_USER], "unused"), "a last quota", poll_seconds=0.02)
    on.wait(lambda: len(_quotas(asking)) >= entities, f"{entities} quotas", poll_seconds=0.02)
    committed = time.time() - started
    on.wait_for_status(entities)
    reported = time.time() - started
    asking.close()
    return committed, reported


def kraft_change(changes: int = 100) -> list[Figure]:
    """From one changed contract, sent to the Kubernetes API, to the quota in force; a raise each.

    Beside 1000 contracts on one broker, each change sent once the status shows the one before.
    """
    with kraft_world(1) as on:
        on.create_tiers(1000)
        on.create("brokerbandwidthpolicies", policy(on.kafka))
        on.wait_for_status(1000)
        asking = _asking(on, 1)
        taken = [_changed_once(on, asking) * 1000 for _ in range(changes)]
        asking.close()
    what = "Kafka 4.3.1 without ZooKeeper: one changed contract to the quota in force"
    return percentiles(what, taken, "ms", {50: None, 99: _CHANGE_P99_BOUND_MILLISECONDS})


def _changed_once(on: KraftWorld, asking: AdminClient) -> float:
    before = _produce(asking)
    started, _ = on.raise_contract()
    on.wait(lambda: _produce(asking) != before, "the changed quota", poll_seconds=_POLL_SECONDS)
    taken = time.time() - started
    on.wait_for_member(int(_produce(asking) or 0))  # of three partitions, so not the new rate
    return taken


def kraft_reaction(
    runs: int = 10, *, of_the_ledger: bool = True, fetch_backoff_milliseconds: int = 1000
) -> list[Figure]:
    """From a new leader to the corrected quota in force, after a killed broker, `runs` times.

    Three brokers, of which the second and the third are killed in turn; the first one is asked for
    both, and is never killed. Each death is of the broker that leads the ledger's topic and
    coordinates its transactions, or of another one. `fetch_backoff_milliseconds` is the brokers'
    setting `replica.fetch.backoff.ms`, which is Kafka's own where it is not given.
    """
    backoff = f"replica.fetch.backoff.ms={fetch_backoff_milliseconds}"
    with kraft_world(
        3,
        server_properties=dict([backoff.split("=")]),
        ledger_replicas=(2, 3, 1) if of_the_ledger else (1, 2, 3),
    ) as on:
        for number in range(_REACTION_ENTITIES):
            on.create("businesstiers", tier(number, _REACTION_ENTITIES))
        on.create("brokerbandwidthpolicies", policy(on.kafka))
        asking = _asking(on, 1)
        on.wait(lambda: _produce(asking) is not None, "the first quota", poll_seconds=0.02)
        even = _produce(asking)
        taken: list[float] = []
        for number in range(runs):
            broker_id = number % 2 + 2
            if _of_the_ledger(asking) != {broker_id if of_the_ledger else 1}:
                raise RuntimeError(f"The ledger is on {_of_the_ledger(asking)}: no such death")
            taken.append(_killed_once(on, asking, broker_id, even))
        asking.close()
    which = "broker of the ledger" if of_the_ledger else "another broker"
    what = (
        f"Kafka 4.3.1 without ZooKeeper, {backoff}, {which} killed: new leaders to the corrected "
        "quota"
    )
    each = "each: " + ", ".join(f"{one:.2f}" for one in sorted(taken)) + " s"
    return percentiles(what, taken, "s", {50: None, 95: _REACTION_P95_BOUND_SECONDS}, each)


def _of_the_ledger(asking: AdminClient) -> set[int]:
    """The brokers that the next transaction of the ledger needs."""
    coordinator = asking.read(metadata.FindCoordinatorRequest(key=LEDGER_TOPIC, key_type=1))
    (topic,) = asking.metadata([LEDGER_TOPIC]).topics
    return {coordinator.node_id, topic.partitions[0].leader_id}


def _killed_once(on: KraftWorld, asking: AdminClient, broker_id: int, even: str | None) -> float:
    first = on.kafka.broker(1).plan
    leaders = ConfluentAdmin(
        {"bootstrap.servers": f"{first.host}:{first.ports.plain}", "log_level": 0}
    )
    on.kafka.broker(broker_id).kill()
    on.wait(
        lambda: _has_moved(leaders, broker_id),
        "the new leaders",
        poll_seconds=_POLL_SECONDS,
    )
    elected = time.time()
    on.wait(lambda: _produce(asking) != even, "the corrected quota", poll_seconds=_POLL_SECONDS)
    corrected = time.time()
    on.kafka.broker(broker_id).start()
    on.kafka.restore_preferred_leaders(TOPIC)
    on.wait(lambda: _produce(asking) == even, "the quota of even leaders", poll_seconds=0.02)
    time.sleep(2)  # until the status shows it, too
    return corrected - elected


def _has_moved(leaders: ConfluentAdmin, broker_id: int) -> bool:
    partitions = leaders.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions.values()
    return all(one.leader not in (-1, broker_id) for one in partitions)


def _asking(on: KraftWorld, broker_id: int) -> AdminClient:
    plan = on.kafka.broker(broker_id).plan
    return AdminClient(KafkaConnection((f"{plan.host}:{plan.ports.plain}",)))


def _quotas(asking: AdminClient) -> dict[Entity, object]:
    return dict(describe(asking, None, "unused"))


def _produce(asking: AdminClient) -> str | None:
    found = describe(asking, [_FIRST_USER], "unused").get(_FIRST_USER, {})
    return found.get(QuotaKey.PRODUCER_BYTE_RATE)
