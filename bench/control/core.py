"""How long one `decide()` takes for a large cluster, and to read all its leaders.

The cluster has 50 brokers, 20,000 partitions and 5,000 entities. The bound of `decide()` is 100 ms
by the clock, cold and with nothing to change. The garbage collector runs as always, and the
decision before is let go while the next one is made, as in the operator.
"""

import time
from collections.abc import Collection
from dataclasses import replace
from statistics import median
from time import perf_counter
from typing import Any

from bench.results import Figure
from tidegate.kafka.brokers import topology_of
from tidegate.kafka.protocol import metadata
from tidegate_logic import model
from tidegate_logic.decide import decide, settle
from tidegate_logic.decision import Decision, Memory

# How long it takes to know the leaders of 20,000 partitions from the bytes of one Metadata answer
# (bound: 300 ms).
#
# Only decoding and counting are measured; the broker and the network are not. The bound is held
# against the clock; processor time is printed beside it, so that a busy machine shows.


BROKERS, TOPICS, PARTITIONS_PER_TOPIC, REPLICAS = 50, 1000, 20, 3
BOUND_MILLISECONDS = 300.0
_RUNS = 20
_VERSION = 4


def synthetic_answer() -> bytes:
    """A Metadata answer (v4) as one broker of a large cluster would send it: 860 kB."""
    topics = [_topic(number) for number in range(TOPICS)]
    broker = metadata.MetadataResponse.MetadataResponseBroker
    brokers = [broker(node_id=i, host=f"broker-{i}", port=9092, rack=None) for i in range(BROKERS)]
    answer = metadata.MetadataResponse(
        throttle_time_ms=0, brokers=brokers, cluster_id="bench", controller_id=1, topics=topics
    )
    return bytes(answer.encode(version=_VERSION))


def measure(data: bytes) -> tuple[list[float], list[float]]:
    """Milliseconds of each run from bytes to topology: of the processor, and of the clock."""
    processor, clock = [], []
    decode = metadata.MetadataResponse.decode
    for _ in range(_RUNS):
        started = time.process_time(), time.perf_counter()
        topology = topology_of(decode(data, version=_VERSION), read_at_seconds=0.0)
        processor.append((time.process_time() - started[0]) * 1000)
        clock.append((time.perf_counter() - started[1]) * 1000)
        if (
            sum(topic.partitions for topic in topology.topics.values())
            != TOPICS * PARTITIONS_PER_TOPIC
        ):
            raise RuntimeError("partitions were lost on the way")
    return processor, clock


def metadata_figures() -> list[Figure]:
    """The clock's median against the bound, and the processor's beside it."""
    data = synthetic_answer()
    processor, clock = measure(data)
    partitions, size = f"{TOPICS * PARTITIONS_PER_TOPIC:,}", f"{len(data) / 1e3:.0f} kB"
    what = (
        f"leaders of {partitions} partitions on {BROKERS} brokers from one Metadata answer of "
        f"{size}"
    )
    note = (
        f"best {min(clock):.0f} ms, worst {max(clock):.0f} ms; processor median "
        f"{median(processor):.0f} ms, best {min(processor):.0f} ms"
    )
    return [
        Figure(f"{what}, median of {len(clock)}", median(clock), "ms", BOUND_MILLISECONDS, note)
    ]


def _topic(number: int) -> Any:
    topic = metadata.MetadataResponse.MetadataResponseTopic
    partitions = []
    for index in range(PARTITIONS_PER_TOPIC):
        replicas = [(number + index + offset) % BROKERS for offset in range(REPLICAS)]
        partitions.append(
            topic.MetadataResponsePartition(
                error_code=0,
                partition_index=index,
                leader_id=replicas[0],
                replica_nodes=replicas,
                isr_nodes=replicas,
            )
        )
    return topic(error_code=0, name=f"topic-{number:04d}", is_internal=False, partitions=partitions)


BOUND_SECONDS = 0.1
_BROKERS, _TOPICS, _PARTITIONS, _ENTITIES, _TIERS = 50, 2000, 10, 5000, 10
_ROUNDS = 25


def observation() -> model.Observation:
    """A cluster with everything declared and nothing written yet.

    Every member names two topics of its own choice.
    """
    topics = {
        f"topic-{number}": model.TopicLeaders(
            {(number * 7 + place) % _BROKERS: 1 for place in range(_PARTITIONS)}
        )
        for number in range(_TOPICS)
    }
    members = [
        model.Member(
            f"member-{number}",
            model.Entity(f"user-{number}"),
            (f"topic-{number % _TOPICS}", f"topic-{number * 3 % _TOPICS}"),
            model.Contract(model.RateForm.PER_PARTITION, 1_000_000 + number, 2_000_000 + number),
        )
        for number in range(_ENTITIES)
    ]
    tiers = tuple(
        model.Tier(f"bench/tier-{number}", model.Level.L2, tuple(members[number::_TIERS]))
        for number in range(_TIERS)
    )
    quotas = {member.entity: model.StoredQuota(member.entity, {}) for member in members}
    return model.Observation(
        0.0,
        model.Policy("bench/main", "uid"),
        tiers,
        model.Topology(0.0, frozenset(range(_BROKERS)), topics),
        quotas,
    )


def applied(
    before: model.Observation, writes: tuple[model.QuotaWrite, ...], *, seconds: float = 15.0
) -> model.Observation:
    """The same world so many seconds later, after all writes took effect."""
    quotas = dict(before.quotas or {})
    for write in writes:
        changed = {**quotas[write.entity].values, **write.values}
        values = {key: text for key, text in changed.items() if text is not None}
        quotas[write.entity] = model.StoredQuota(write.entity, values, 0, write.ledger, 0)
    return replace(before, now_seconds=before.now_seconds + seconds, quotas=quotas)


def timed(world: model.Observation) -> tuple[Decision, list[float]]:
    """One decision of this world and the seconds of each round."""
    seconds = []
    for _ in range(_ROUNDS):
        start = perf_counter()
        decision, _memory = decide(world, Memory())
        seconds.append(perf_counter() - start)
    return decision, seconds


def decide_figures() -> list[Figure]:
    """Both cases: the median of the rounds against the bound, best and worst beside it."""
    first = observation()
    decision, cold_seconds = timed(first)
    _, steady_seconds = timed(applied(first, decision.writes))
    return [_figure("everything new", cold_seconds), _figure("nothing to change", steady_seconds)]


def _figure(case: str, seconds: list[float]) -> Figure:
    name = (
        f"decide(), {_BROKERS} brokers, {_TOPICS * _PARTITIONS:,} partitions, {_ENTITIES} "
        f"entities: {case}, median of {len(seconds)}"
    )
    note = f"best {min(seconds) * 1000:.0f} ms, worst {max(seconds) * 1000:.0f} ms"
    return Figure(name, median(seconds) * 1000, "ms", BOUND_SECONDS * 1000, note)


# The same with readings: each entity sends and receives on 18 to 20 brokers, so there are 180,000
# client rates. By the processor, since this is what a policy of this size costs a busy operator.

_LIMIT = 10_000_000_000  # bytes/s of each NIC
_SCRAPE_SECONDS, _SPANS = 5.0, 13
_LEVELS = tuple(model.Level)
_MEASURED_ROUNDS = 5
_MEASURED_BOUNDS = {"calm": 60.0, "the first cut": 200.0, "everybody on the way": 500.0}


def measured_figures() -> list[Figure]:
    """Processor time of one decision while all is calm, at the first cut, and in an episode."""
    world = _measured(observation())
    decision, memory = decide(world, Memory())
    calm = _with_readings(applied(world, decision.writes), load=0.7)
    figures = [_processor_figure("calm", calm, memory)]
    memory = decide(calm, memory)[1]
    figures.append(_budgets_figure(calm))
    hot = frozenset(range(0, _BROKERS, 10))
    over = _with_readings(replace(calm, now_seconds=calm.now_seconds + 15), load=0.7, hot=hot)
    figures.append(_processor_figure("the first cut", over, memory))
    for _ in range(10):  # the first cut's writes, as they are paced
        decision, memory = decide(over, memory)
        memory = settle(
            memory,
            decision,
            {write.entity for write in decision.writes},
            now_seconds=over.now_seconds,
        )
        wait_seconds = min(decision.next_pass_in_seconds or 15.0, 15.0)
        over = applied(over, decision.writes, seconds=wait_seconds)
    over = _with_readings(replace(over, now_seconds=over.now_seconds + 30), load=1.05, sends=0.6)
    return [*figures, _processor_figure("everybody on the way", over, memory)]


# 500 of the members share 40 budgets of four floors: 27 with members, 9 and 3 above these, and one

_SHARING, _FLOORS, _MOST_GROWTH = 500, (1, 3, 9, 27), 1.10
_GROWTH_ROUNDS = 9


def budgets() -> tuple[model.Budget, ...]:
    """All 40, none of which has room for what its members want."""
    names = [
        f"bench/{floor}-{place}" for floor, count in enumerate(_FLOORS) for place in range(count)
    ]
    keys, mb = (model.QuotaKey.CONSUMER_BYTE_RATE, model.QuotaKey.PRODUCER_BYTE_RATE), 1_000_000
    return tuple(
        model.Budget(
            name,
            dict.fromkeys(keys, 9_000 * mb // _FLOORS[int(name[6])]),
            labels=frozenset({("team", name)}) if name.startswith("bench/3") else frozenset(),
            parent=None if number == 0 else names[(number - 1) // 3],
        )
        for number, name in enumerate(names)
    )


def _budgets_figure(calm: model.Observation) -> Figure:
    """How much budgets add, both cases in turns, so that both have the same of a busy machine."""
    members = [member for tier in calm.tiers or () for member in tier.members][:_SHARING]
    leaf_of = {one.name: n % _FLOORS[-1] for n, one in enumerate(members)}

    def shared(member: model.Member) -> model.Member:
        leaf = leaf_of.get(member.name)
        return member if leaf is None else replace(member, labels=(("team", f"bench/3-{leaf}"),))

    tiers = tuple(
        replace(tier, members=tuple(map(shared, tier.members))) for tier in calm.tiers or ()
    )
    cases = [_settled(replace(calm, tiers=tiers, budgets=each)) for each in ((), budgets())]
    spent: list[list[float]] = [[], []]
    for _ in range(_GROWTH_ROUNDS):
        for (world, memory), milliseconds in zip(cases, spent, strict=True):
            start = time.process_time()
            decide(world, memory)
            milliseconds.append((time.process_time() - start) * 1000)
    without, with_budgets = (min(each) for each in spent)
    name = (
        f"decide() with {sum(_FLOORS)} budgets of {_SHARING} members on {len(_FLOORS)} floors, "
        f"times that without, {_ENTITIES} entities: processor time, best of {_GROWTH_ROUNDS} each"
    )
    note = f"{with_budgets:.1f} ms beside {without:.1f} ms"
    return Figure(name, with_budgets / without, "times", _MOST_GROWTH, note)


def _settled(world: model.Observation) -> tuple[model.Observation, Memory]:
    """The world in which all is written, with the memory of the pass before."""
    memory = Memory()
    for _ in range(3):
        decision, memory = decide(world, memory)
        written = {write.entity for write in decision.writes}
        memory = settle(memory, decision, written, now_seconds=world.now_seconds)
        world = _with_readings(applied(world, decision.writes, seconds=60.0), load=0.7, sends=0.2)
    return world, decide(world, memory)[1]


def _processor_figure(case: str, world: model.Observation, memory: Memory) -> Figure:
    milliseconds = []
    for _ in range(_MEASURED_ROUNDS):
        start = time.process_time()
        decide(world, memory)
        milliseconds.append((time.process_time() - start) * 1000)
    clients = len(world.readings.clients) if world.readings is not None else 0
    name = (
        f"decide() with {clients:,} client rates, {_BROKERS} brokers, {_ENTITIES} entities: "
        f"{case}, processor time, median of {len(milliseconds)}"
    )
    note = f"best {min(milliseconds):.0f} ms, worst {max(milliseconds):.0f} ms"
    return Figure(name, median(milliseconds), "ms", _MEASURED_BOUNDS[case], note)


def _measured(world: model.Observation) -> model.Observation:
    """The same cluster under limits, its tiers of all levels."""
    limit = model.BrokerLimit(_LIMIT, _LIMIT, _LIMIT * 5 // 4, _LIMIT * 5 // 4)
    policy = replace(
        world.policy,
        limits=model.BrokerLimits(limit),
        measured=True,
        write_budget_changes=20 * _ENTITIES,
    )
    throttled = (model.Contract(model.RateForm.PER_PARTITION, 1_100_000, 400_000),)
    tiers = [
        replace(tier, level=level, throttled=() if level is model.Level.L0 else throttled)
        for number, tier in enumerate(world.tiers or ())
        for level in [_LEVELS[number % len(_LEVELS)]]
    ]
    return replace(world, policy=policy, tiers=tuple(tiers))


def _with_readings(
    world: model.Observation, *, load: float, hot: Collection[int] = (), sends: float = 1.0
) -> model.Observation:
    """Readings of this moment: NICs at this share of their limits, the `hot` ones 30 % above."""
    now_seconds, topics = world.now_seconds, world.topology.topics if world.topology else {}
    nic = {
        (broker, way): tuple(
            model.NicSpan(
                now_seconds - _SCRAPE_SECONDS * ago,
                _SCRAPE_SECONDS,
                (1.3 if broker in hot else load) * _LIMIT,
            )
            for ago in reversed(range(_SPANS))
        )
        for broker in range(_BROKERS)
        for way in model.KEY_OF
    }
    clients: dict[tuple[model.Entity, int, model.Direction], model.ClientRate] = {}
    for member in [member for tier in world.tiers or () for member in tier.members]:
        for broker in sorted({one for name in member.topics for one in topics[name].leaders}):
            fetched, produced = sends * (4_000_000 + 1000 * (broker % 7)), sends * 2_000_000
            key = member.entity, broker
            clients[*key, model.Direction.EGRESS] = model.ClientRate(now_seconds - 1, fetched, 0.0)
            clients[*key, model.Direction.INGRESS] = model.ClientRate(
                now_seconds - 1, produced, 0.0
            )
    return replace(world, readings=model.Readings(now_seconds, _SCRAPE_SECONDS, nic, clients))
