"""How long one `decide()` takes for 50 brokers, 20,000 partitions and 5,000 entities, cold and with nothing to change.

Run as `python -m bench.decide_bench`; the bound is 100 ms. Prints the median and the worst of the rounds in milliseconds.
"""

from statistics import median
from time import perf_counter

from controller_logic.decide import decide
from controller_logic.decision import Decision, Memory
from controller_logic.model import (
    Contract,
    Entity,
    Level,
    Member,
    Observation,
    Policy,
    QuotaWrite,
    RateForm,
    StoredQuota,
    Tier,
    TopicLeaders,
    Topology,
)

BOUND_SECONDS = 0.1
_BROKERS, _TOPICS, _PARTITIONS, _ENTITIES, _TIERS = 50, 2000, 10, 5000, 10
_ROUNDS = 15


def observation() -> Observation:
    """A cluster with everything declared and nothing written yet; every member names two topics of its own choice."""
    topics = {
        f"topic-{number}": TopicLeaders({(number * 7 + place) % _BROKERS: 1 for place in range(_PARTITIONS)}) for number in range(_TOPICS)
    }
    members = [
        Member(
            f"member-{number}",
            Entity(f"user-{number}"),
            (f"topic-{number % _TOPICS}", f"topic-{number * 3 % _TOPICS}"),
            Contract(RateForm.PER_PARTITION, 1_000_000 + number, 2_000_000 + number),
        )
        for number in range(_ENTITIES)
    ]
    tiers = tuple(Tier(f"bench/tier-{number}", Level.L2, tuple(members[number::_TIERS])) for number in range(_TIERS))
    quotas = {member.entity: StoredQuota(member.entity, {}) for member in members}
    return Observation(0.0, Policy("bench/main", "uid"), tiers, Topology(0.0, frozenset(range(_BROKERS)), topics), quotas)


def applied(before: Observation, writes: tuple[QuotaWrite, ...]) -> Observation:
    """The same world after all writes took effect."""
    quotas = dict(before.quotas or {})
    for write in writes:
        values = {key: text for key, text in write.values.items() if text is not None}
        quotas[write.entity] = StoredQuota(write.entity, values, 0, write.ledger, 0)
    return Observation(before.now_seconds + 15.0, before.policy, before.tiers, before.topology, quotas)


def timed(world: Observation) -> tuple[Decision, list[float]]:
    """One decision of this world and the seconds of each round."""
    seconds = []
    for _ in range(_ROUNDS):
        start = perf_counter()
        decision, _memory = decide(world, Memory())
        seconds.append(perf_counter() - start)
    return decision, seconds


def main() -> None:
    """Print both cases; exit with an error when the better half of the rounds misses the bound."""
    cold = observation()
    decision, cold_seconds = timed(cold)
    _, warm_seconds = timed(applied(cold, decision.writes))
    print(f"{len(decision.writes)} writes decided cold")
    for name, seconds in (("cold", cold_seconds), ("nothing to change", warm_seconds)):
        print(f"{name}: median {median(seconds) * 1000:.0f} ms, worst {max(seconds) * 1000:.0f} ms of {_ROUNDS} rounds")
    if max(median(cold_seconds), median(warm_seconds)) > BOUND_SECONDS:
        raise SystemExit(f"above the bound of {BOUND_SECONDS * 1000:.0f} ms")


if __name__ == "__main__":
    main()
