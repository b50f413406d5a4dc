"""One control pass over one policy: observe, decide, apply, and look again until what is reported is what stands there.

It knows no threads, no Kubernetes and no waiting. What it hands back was read from the store after the last write, so
nobody has to work out what a write probably did.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from controller_logic.decide import decide, settle
from controller_logic.decision import Decision, Memory
from controller_logic.model import Readings, Usage
from tidegate.control.apply import Applied, apply_writes
from tidegate.control.declared import Declared
from tidegate.control.kafka_cluster import KafkaCluster
from tidegate.control.observe import Observer, Rival, Seen
from tidegate.errors import TidegateError

# A write that the second look does not confirm was contested or refused; the next pass is soon enough for it.
MAX_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class PassResult:
    """How a pass ended. `decision` speaks of what was seen last; `applied` of every round of writes before that, `decided` of why."""

    seen: Seen
    decision: Decision
    applied: tuple[Applied, ...] = ()
    error: TidegateError | None = None
    decided: tuple[Decision, ...] = ()

    @property
    def complete(self) -> bool:
        """Nothing failed, nothing is held, and no write is left over."""
        return self.error is None and not self.decision.holds and not self.decision.writes and all(done.complete for done in self.applied)


@dataclass(slots=True)
class ControlPass:
    """Runs passes for one policy and keeps their memory. `may_write` is the Lease; `now_seconds` the wall clock."""

    now_seconds: Callable[[], float]
    may_write: Callable[[], bool]
    observer: Observer = field(default_factory=Observer)
    memory: Memory = field(default_factory=Memory)

    def run(
        self,
        declared: Declared,
        cluster: KafkaCluster,
        *,
        readings: Readings | None = None,
        usage: Usage | None = None,
        prepare: Callable[[Seen], None] = lambda _: None,
        rival: Rival = lambda _: None,
    ) -> PassResult:
        """One pass. `prepare` is called before the first write and may refuse it by raising a TidegateError."""
        seen = self.observer.observe(declared, cluster, now_seconds=self.now_seconds(), readings=readings, usage=usage, rival=rival)
        decision = self._decide(seen)
        try:
            prepare(seen)
        except TidegateError as error:
            return PassResult(seen, decision, error=error)
        return self._write_until_settled(cluster, seen, decision)

    def without_cluster(self, declared: Declared, error: TidegateError) -> PassResult:
        """The pass when the cluster cannot even be connected to: everything is held."""
        seen = self.observer.nothing_reached(declared, error, now_seconds=self.now_seconds())
        return PassResult(seen, self._decide(seen), error=error)

    def _write_until_settled(self, cluster: KafkaCluster, seen: Seen, decision: Decision) -> PassResult:
        rounds: list[Applied] = []
        decided: list[Decision] = []
        while decision.writes and seen.facts is not None and len(rounds) < MAX_ROUNDS:
            done = apply_writes(decision.writes, cluster.store, cluster_id=seen.facts.cluster_id, may_write=self.may_write)
            rounds.append(done)
            decided.append(decision)
            written = frozenset(write.entity for write in done.done)
            self.memory = settle(self.memory, decision, written, now_seconds=self.now_seconds())
            touched = [write.entity for write in decision.writes]
            seen = self.observer.look_again(seen, cluster, entities=touched, now_seconds=self.now_seconds())
            decision = self._decide(seen)
            if done.error is not None:
                return PassResult(seen, decision, tuple(rounds), done.error, tuple(decided))
        return PassResult(seen, decision, tuple(rounds), decided=tuple(decided))

    def _decide(self, seen: Seen) -> Decision:
        decision, self.memory = decide(seen.observation, self.memory)
        return decision
