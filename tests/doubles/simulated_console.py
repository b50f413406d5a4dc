"""What the console shows, from the simulated cluster with a clock that stands: no process, no socket.

A load is played through the operator's own decisions; after each pass the statuses are made as the
operator makes them. A test stops at a second, and bends what a state needs.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from tests.unit.simulation.loads import evening
from tidegate.commands import played_load
from tidegate.commands.audit import line_words
from tidegate.commands.played_load import Moment
from tidegate.commands.simulation_file import read_simulation
from tidegate.console.history import Past
from tidegate.console.server import Console
from tidegate.console.source import Trail
from tidegate.control.audit.lines import AuditLine
from tidegate.errors import Unreachable
from tidegate.view.policy import LeaseNow, Measured, Objects
from tidegate_logic.decide import decide
from tidegate_logic.decision import Memory
from tidegate_logic.model import Mode, Observation, QuotaKey, Topology
from tidegate_logic.quotas.contention import Repairs
from tidegate_logic.reasons import Reason
from tidegate_logic.words import rfc3339

EPOCH = 1_800_000_000.0
KEY = "streaming/orders"
HOLDER = "tidegate-5b8f7c6d9-x2x7k_1_9e0b41aa"
Document = dict[str, Any]


@dataclass
class SimulatedSource:
    """A source that stands still at `now`, until a test changes one of its fields."""

    moment: Moment
    measured_now: Measured
    objects_now: Objects
    now: float
    lines: tuple[AuditLine, ...] = ()
    trail_problem: str = ""
    cluster: Any = None

    def now_seconds(self) -> float:
        return self.now

    def changes(self) -> object:
        return (id(self.objects_now), id(self.measured_now), self.now)

    def objects(self) -> Objects:
        return self.objects_now

    def measured(self, policy_key: str) -> Measured:
        return self.measured_now

    def past(self, policy_key: str) -> Past | None:
        return None

    def trail(self) -> Trail:
        return Trail(self.lines, self.trail_problem)


@cache
def moments(text: str) -> tuple[Moment, ...]:
    """Every pass of the load in this text (policy, tiers and a Simulation, in YAML)."""
    given = read_simulation(["-"], policy=None, standard_input=io.StringIO(text))
    scenario = replace(given.scenario, epoch_seconds=EPOCH)
    return played_load.moments(scenario, given.policy, given.tiers, holder=HOLDER)


def yaml_time(seconds: float) -> str:
    return rfc3339(seconds)


def stopped_at(seconds: float, text: str | None = None) -> tuple[Console, SimulatedSource]:
    """A console that has watched the load from its begin to this second."""
    passes = moments(evening() if text is None else text)
    console_source: SimulatedSource | None = None
    console: Console | None = None
    for one in passes:
        if one.at_seconds > seconds:
            break
        measured = Measured(one.observation.readings)
        now = one.observation.now_seconds
        if console_source is None or console is None:
            console_source = SimulatedSource(one, measured, one.objects, now)
            console = Console(console_source, audit_words=line_words)
        console_source.moment = one
        console_source.measured_now = measured
        console_source.objects_now = one.objects
        console_source.now = now
        if one.at_seconds >= 0:
            console.note()
    assert console is not None
    assert console_source is not None
    return console, console_source


def held_for_a_while(console: Console, source: SimulatedSource) -> None:
    """As if the policy had been like this for more than half a minute."""
    source.now -= 40
    console.policy(source.objects(), KEY)
    source.now += 40


# States


def bend(source: SimulatedSource, change: Callable[[Document, list[Document]], None]) -> None:
    """Change the policy and its tiers as they are now."""
    policy = copy.deepcopy(dict(source.objects_now.policies[0]))
    tiers = [copy.deepcopy(dict(one)) for one in source.objects_now.tiers]
    change(policy, tiers)
    source.objects_now = replace(source.objects_now, policies=(policy,), tiers=tuple(tiers))


def decide_again(
    source: SimulatedSource, observation: Observation, memory: Memory | None = None
) -> None:
    """The statuses after a pass on this, of an operator that has just begun."""
    decision, _ = decide(observation, Memory() if memory is None else memory)
    bend(
        source,
        lambda policy, tiers: played_load.write_statuses(policy, tiers, observation, decision),
    )


def without_prometheus(source: SimulatedSource) -> None:
    """Prometheus went away five minutes ago, for the operator too."""
    source.now += 300
    source.measured_now = replace(
        source.measured_now, problem="Prometheus at http://prometheus:9090 did not answer in time"
    )
    decide_again(source, replace(source.moment.observation, now_seconds=source.now))
    source.objects_now = replace(
        source.objects_now,
        heard_at_seconds=source.now,
        leases={KEY: LeaseNow(HOLDER, source.now)},
    )


def without_kubernetes(source: SimulatedSource) -> None:
    """The API server went away two minutes ago. Prometheus is read on."""
    source.objects_now = replace(
        source.objects_now, problem="Kubernetes did not answer within 10 s"
    )
    source.now += 120
    later = stopped_at(source.now - EPOCH)[1]
    source.measured_now = later.measured_now


def without_kafka(source: SimulatedSource) -> None:
    """No broker has answered the operator for a minute, so it holds."""
    seen = source.moment.observation
    missing = ((Reason.BROKERS_UNREACHABLE, "No broker of kafka-1:9092 answered"),)
    decide_again(source, replace(seen, topology=None, quotas=None, missing=missing))
    source.now += 60
    later = stopped_at(source.now - EPOCH)[1]
    source.measured_now = later.measured_now
    source.objects_now = replace(
        source.objects_now,
        heard_at_seconds=source.now,
        leases={KEY: LeaseNow(HOLDER, source.now)},
    )


def observing(source: SimulatedSource) -> None:
    """The policy only observes. For a moment at which nobody is throttled yet: the load goes on so."""
    source.objects_now = replace(stopped_at(source.now - EPOCH - 1)[1].objects_now, events=())
    bend(source, lambda policy, _: policy["spec"].update(mode=Mode.OBSERVE.value))
    seen = source.moment.observation
    decide_again(source, replace(seen, policy=replace(seen.policy, mode=Mode.OBSERVE)))


def paused(source: SimulatedSource) -> None:
    """Paused in the middle of whatever is going on."""
    bend(source, lambda policy, _: policy["spec"].update(suspend=True))
    seen = source.moment.observation
    decide_again(source, replace(seen, policy=replace(seen.policy, paused_by=("spec.suspend",))))


def no_policy(source: SimulatedSource) -> None:
    source.objects_now = Objects(heard_at_seconds=source.now)


def contended(source: SimulatedSource) -> None:
    """Another writer has put a quota of 50 MB/s over the backfill's throttle, again."""
    seen = source.moment.observation
    assert seen.quotas is not None
    entity = next(one for one in seen.quotas if one.client_id == "backfill")
    foreign = {QuotaKey.CONSUMER_BYTE_RATE: "50000000"}
    quotas = {**seen.quotas, entity: replace(seen.quotas[entity], values=foreign)}
    repairs = {entity: Repairs(3, source.now - 100, source.now + 400)}
    decide_again(source, replace(seen, quotas=quotas), Memory(repairs=repairs))


def exhausted(source: SimulatedSource) -> None:
    """The limit is 60 MB/s, and everybody at the lowest rate is too much for it."""
    _, poor = stopped_at(source.now - EPOCH, evening().replace("limit: 80M", "limit: 60M"))
    source.moment, source.now = poor.moment, poor.now
    source.measured_now, source.objects_now = poor.measured_now, poor.objects_now


def queue(
    name: str, *conditions: Document, namespace: str = "streaming", **status: Any
) -> Document:
    """A DelayQueue of the policy, with two delays; without `conditions` it is as it should be.

    `status` replaces fields of its status.
    """
    said = {
        "topicPrefix": f"shop.{name}",
        "delays": [
            {"seconds": 10, "topics": 1, "waiting": 12, "oldestLateSeconds": 0, "perSecond": 40},
            {"seconds": 600, "topics": 4, "waiting": 900, "oldestLateSeconds": 0, "perSecond": 2},
        ],
        "forwarders": [{"name": f"{name}-a", "topics": 3}, {"name": f"{name}-b", "topics": 2}],
        "dead": 0,
        "summary": {"waiting": 912, "oldestLateSeconds": 0},
    }
    ready = condition("Ready", "True", "Forwarding", "Messages are sent on when they are due.")
    return {
        "kind": "DelayQueue",
        "metadata": {"name": name, "namespace": namespace, "uid": f"queue-{namespace}-{name}"},
        "spec": {
            "policyRef": {"name": "orders", "namespace": "streaming"},
            "guarantee": "AtLeastOnce",
            "delays": [{"seconds": 10}, {"seconds": 600, "topics": 4}],
        },
        "status": {**said, **status, "conditions": list(conditions or (ready,))},
    }


def condition(kind: str, status: str, reason: str, message: str) -> Document:
    at = "2026-01-01T00:00:00Z"
    said = {"type": kind, "status": status, "reason": reason, "message": message}
    return said | {"lastTransitionTime": at}


def with_queues(source: SimulatedSource) -> None:
    """One queue is on time, one late without forwarders, one has lost messages."""
    late = queue(
        "retries",
        condition(
            *("Ready", "False", "ForwardersMissing"),
            "No forwarder is available: 0 of 2; 1200 messages wait. See the Deployment's Pods.",
        ),
        delays=[
            {"seconds": 1, "topics": 1, "waiting": 700, "oldestLateSeconds": 312, "perSecond": 0},
            {"seconds": 60, "topics": 1, "waiting": 500, "oldestLateSeconds": 250, "perSecond": 0},
        ],
        summary={"waiting": 1200, "oldestLateSeconds": 312},
    )
    lost = queue(
        "reminders",
        condition("Ready", "True", "Forwarding", "Messages are sent on when they are due."),
        condition(
            *("RecordsLost", "True", "RecordsLost"),
            "Kafka deleted 40 messages before they were sent on (40 of topic shop.reminders.10.0). "
            "Raise spec.topics.graceSeconds above the longest outage of forwarders.",
        ),
        condition(
            *("DeadLetters", "True", "DeadLetters"),
            "3 messages could not be sent to their target and are in shop.reminders.dead, each with "
            "the reason in its header tidegate-reason.",
        ),
        dead=3,
    )
    source.objects_now = replace(source.objects_now, queues=(queue("unpaid"), late, lost))


HOSTILE = (
    "<img src=x onerror=\"document.title='taken'\">",
    "</bdi></td><script>document.title='taken'</script>",
    "\u202egnp.exe\u202c ‮reversed",
    "x" * 256,
    "🐙" * 20,
    "`${alert(1)}` {{ 7*7 }}",
)


class KafkaThatIsAway:
    """A cluster that does not answer."""

    def topology(self, policy_key: str) -> Topology:
        raise Unreachable(Reason.BROKERS_UNREACHABLE, "No broker of kafka-1:9092 answered.")

    def explain(self, policy_key: str, user: str, client_id: str) -> Mapping[str, Any]:
        raise Unreachable(Reason.BROKERS_UNREACHABLE, "No broker of kafka-1:9092 answered.")


@dataclass
class KafkaAsSimulated:
    """The leaders of the simulated cluster, and a document like that of `tidegate explain`."""

    source: SimulatedSource
    document: Mapping[str, Any] = field(default_factory=dict)

    def topology(self, policy_key: str) -> Topology:
        found = self.source.moment.observation.topology
        assert found is not None
        return found

    def explain(self, policy_key: str, user: str, client_id: str) -> Mapping[str, Any]:
        return self.document


def audit_lines(count: int) -> Sequence[AuditLine]:
    return [
        {
            "event": "Audit",
            "kind": "hold",
            "t": yaml_time(EPOCH + number),
            "policy": "streaming/orders",
            "reason": "BrokersUnreachable",
            "message": f"line {number}",
            "state": "begins",
        }
        for number in range(count)
    ]
