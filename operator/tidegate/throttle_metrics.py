"""Metrics of the throttle: gauges of the last decision, and counters over decisions and readings.

Labels are levels, brokers, directions and overrides, never users: their figures are in the audit
trail. No control pass reads them back.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily

from tidegate_logic.decision import Decision, LevelState
from tidegate_logic.model import (
    KEY_OF,
    Direction,
    Entity,
    Level,
    Observation,
    QuotaWrite,
    RateKey,
    Readings,
)
from tidegate_logic.quota_values import KEY_WORDS
from tidegate_logic.reasons import Reason
from tidegate_logic.replication.replication_pass import ReplicationDecision
from tidegate_logic.rollup_schedule import Due
from tidegate_logic.throttle.decision import (
    Acts,
    Phase,
    StepKind,
    ThrottleDecision,
    ThrottleStep,
    new_acts,
)

QUOTA_STORE, LEADERS, METRICS = "QuotaStore", "Leaders", "Metrics"
# `namespace` is the label of the Pod that Prometheus scrapes
POLICY_LABELS = ("policy_namespace", "policy")


def policy_labels(policy_key: str) -> tuple[str, str]:
    """The values of `POLICY_LABELS` for a policy's namespace/name."""
    namespace, _, name = policy_key.partition("/")
    return namespace, name


@dataclass(frozen=True, slots=True)
class PolicyReading:
    """The last pass of one policy, as a scrape reads it out. Times are seconds since the epoch.

    `inputs` has when each input was read last; `readings` None = load is not known, `rollups` None
    = usage rollups are not wanted, or were not looked at; `replication` None = likewise.
    """

    decision: Decision
    finished_at_seconds: float
    charged_writes: int
    write_budget: int
    readings: Readings | None = None
    inputs: Mapping[str, float] = field(default_factory=dict)
    rollups: Due | None = None
    replication: ReplicationDecision | None = None

    def after(self, earlier: "PolicyReading | None") -> "PolicyReading":
        """This reading, with the times of inputs that it lacks and the earlier one had."""
        return self if earlier is None else replace(self, inputs={**earlier.inputs, **self.inputs})


def inputs_of(observation: Observation) -> Mapping[str, float]:
    """The time at which each input of one pass was read; one that did not answer is absent."""
    times = {
        QUOTA_STORE: None if observation.quotas is None else observation.now_seconds,
        LEADERS: None if observation.topology is None else observation.topology.read_at_seconds,
        METRICS: None if observation.readings is None else observation.readings.read_at_seconds,
    }
    return {name: at_seconds for name, at_seconds in times.items() if at_seconds is not None}


_CUTS = frozenset({Reason.THROTTLED, Reason.CALENDAR})
_LONGEST_GAP_SECONDS = 60.0  # between two readings; over a longer one it is not known what was sent


def throttle_gauges(readings: Mapping[str, PolicyReading]) -> Iterator[GaugeMetricFamily]:
    """The gauges of the last decision of each policy, and of the readings that it was made on."""
    yield from (
        _level_states(readings),
        _phases(readings),
        _observed_mutes(readings),
        _overrides(readings),
        _calendar_shares(readings),
        *_budgets(readings),
        *_input_times(readings),
    )


def _level_states(readings: Mapping[str, PolicyReading]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "tidegate_tier_state",
        "1 = all members of this level together are in this state.",
        labels=(*POLICY_LABELS, "level", "state"),
    )
    for policy_key, reading in readings.items():
        for one in reading.decision.levels:
            for state in LevelState:
                family.add_metric(
                    (*policy_labels(policy_key), one.level.value, state.value),
                    float(one.state is state),
                )
    return family


def _phases(readings: Mapping[str, PolicyReading]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "tidegate_throttle_phase",
        "1 = the throttle of this direction is in this phase.",
        labels=(*POLICY_LABELS, "direction", "phase"),
    )
    for policy_key, reading in readings.items():
        for record in (
            reading.decision.throttle.rounds if reading.decision.throttle is not None else ()
        ):
            for phase in Phase:
                family.add_metric(
                    (*policy_labels(policy_key), record.direction.value, phase.value),
                    float(record.phase is phase),
                )
    return family


def _observed_mutes(readings: Mapping[str, PolicyReading]) -> GaugeMetricFamily:
    text = (
        "Longest throttle time that Kafka reported of any member of this level, on any broker, "
        "in the newest reading."
    )
    family = GaugeMetricFamily(
        "tidegate_observed_mute_seconds", text, labels=(*POLICY_LABELS, "level")
    )
    for policy_key, reading in readings.items():
        for level, seconds in _mutes(reading).items():
            family.add_metric((*policy_labels(policy_key), level.value), seconds)
    return family


def _mutes(reading: PolicyReading) -> Mapping[Level, float]:
    """The longest throttle time of each level that has one."""
    levels: dict[Entity, Level] = {
        report.entity: report.level
        for report in reversed(reading.decision.members)
        if report.counts
    }
    longest: dict[Level, float] = {}
    for (entity, _, _), rate in (
        reading.readings.clients.items() if reading.readings is not None else ()
    ):
        level = levels.get(entity)
        if level is not None and rate.throttle_milliseconds is not None:
            longest[level] = max(longest.get(level, 0.0), rate.throttle_milliseconds / 1000)
    return longest


def _overrides(readings: Mapping[str, PolicyReading]) -> GaugeMetricFamily:
    text = "When an override that applies now ends for good, as a Unix time."
    family = GaugeMetricFamily(
        "tidegate_override_expires_timestamp_seconds", text, labels=(*POLICY_LABELS, "override")
    )
    for policy_key, reading in readings.items():
        ends = {
            override.key.rpartition("/")[2]: override.expires_at_seconds
            for override in reading.decision.overridden.applied.values()
        }
        for name, at_seconds in ends.items():
            family.add_metric((*policy_labels(policy_key), name), at_seconds)
    return family


def _calendar_shares(readings: Mapping[str, PolicyReading]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "tidegate_calendar_share",
        "Share of its contracts that the policy's calendar lets this level use now; 1 = all.",
        labels=(*POLICY_LABELS, "level"),
    )
    for policy_key, reading in readings.items():
        for one in reading.decision.calendar:
            share = 1.0 if one.share is None else one.share
            family.add_metric((*policy_labels(policy_key), one.level.value), share)
    return family


def _budgets(readings: Mapping[str, PolicyReading]) -> Iterator[GaugeMetricFamily]:
    """A direction that a budget does not limit, and a rate that is not known, have no series."""

    def gauge(what: str, text: str) -> GaugeMetricFamily:
        labels = (*POLICY_LABELS, "budget", "direction")
        return GaugeMetricFamily(f"tidegate_budget_{what}", text, labels=labels)

    totals = gauge("total_bytes_per_second", "What all members of a budget may use.")
    permitted = gauge("permitted_bytes_per_second", "What the quotas of its own members permit.")
    measured = gauge(
        "measured_bytes_per_second", "What its members use, those of the budgets below it included."
    )
    held_back = gauge(
        "members_held_back",
        "Its own members that use all that the budget allows, which is less than their contract.",
    )
    for policy_key, reading in readings.items():
        allows = {one.entity: one.permitted_total for one in reading.decision.members if one.counts}
        for key, report in reading.decision.budgets.items():
            for direction, quota_key in KEY_OF.items():
                if quota_key not in report.budget.totals:
                    continue
                name = key.rpartition("/")[2]
                labels = (*policy_labels(policy_key), name, KEY_WORDS[quota_key])
                totals.add_metric(labels, report.budget.totals[quota_key])
                rates = [allows.get(one.member.entity, {}) for one in report.members]
                permitted.add_metric(labels, sum(rate.get(quota_key, 0) for rate in rates))
                if direction in report.measured:
                    measured.add_metric(labels, report.measured[direction])
                    held_back.add_metric(
                        labels, sum(direction in one.held_back for one in report.members)
                    )
    yield from (totals, permitted, measured, held_back)


def _input_times(readings: Mapping[str, PolicyReading]) -> Iterator[GaugeMetricFamily]:
    inputs = GaugeMetricFamily(
        "tidegate_input_timestamp_seconds",
        "When an input was read last, as a Unix time.",
        labels=(*POLICY_LABELS, "input"),
    )
    text = "When the newest rate of a client on a broker was sampled, as a Unix time."
    clients = GaugeMetricFamily(
        "tidegate_broker_clients_timestamp_seconds",
        text,
        labels=(*POLICY_LABELS, "broker", "direction"),
    )
    for policy_key, reading in readings.items():
        for name, at_seconds in reading.inputs.items():
            inputs.add_metric((*policy_labels(policy_key), name), at_seconds)
        for (broker, way), at_seconds in _newest_client_rates(reading.readings).items():
            clients.add_metric((*policy_labels(policy_key), str(broker), way.value), at_seconds)
    yield from (inputs, clients)


def _newest_client_rates(readings: Readings | None) -> Mapping[tuple[int, Direction], float]:
    newest: dict[tuple[int, Direction], float] = {}
    for (_, broker, way), rate in readings.clients.items() if readings is not None else ():
        newest[broker, way] = max(newest.get((broker, way), 0.0), rate.at_seconds)
    return newest


@dataclass(slots=True)
class _Account:
    """The state of one policy.

    `wanted` is each throttled rate just before its first cut (bytes/s), `counted` until when each
    NIC is counted.
    """

    acts: Acts = field(default_factory=dict)
    wanted: dict[RateKey, float] = field(default_factory=dict)
    read_at_seconds: float | None = None
    counted: dict[tuple[int, Direction], float] = field(default_factory=dict)
    predicted: dict[Level, float] = field(default_factory=dict)


class ThrottleCounts:
    """Counts what the throttle decided and what it cost. Each policy has one caller at a time."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"tidegate_{name}", text, (*POLICY_LABELS, *labels), registry=registry)

        text = "Throttle decisions on byte rates, by what ended the step."
        self._decisions = counter(
            "throttle_decisions_total", text, "direction", "level", "kind", "limited_by"
        )
        text = "Seconds in which a broker's NIC carried more than its limit, by its readings."
        self._over = counter("broker_over_limit_seconds_total", text, "broker", "direction")
        text = (
            "Estimate of the bytes that throttled clients did not send, against their rate "
            "just before the first cut."
        )
        self._deferred = counter("deferred_bytes_total", text, "direction", "level")
        self._accounts: dict[str, _Account] = {}

    def note(
        self,
        policy_key: str,
        decision: Decision,
        readings: Readings | None,
        *,
        written: Sequence[QuotaWrite] = (),
    ) -> None:
        """Count one decision, its readings and its writes; the same readings count only once."""
        account = self._accounts.setdefault(policy_key, _Account())
        if readings is not None and readings.read_at_seconds != account.read_at_seconds:
            self._count_over(policy_key, account, decision, readings)
            self._count_deferred(policy_key, account, decision.throttle, readings)
            account.read_at_seconds = readings.read_at_seconds
        if decision.throttle is not None:
            self._count_acts(policy_key, account, decision.throttle)
            _note_mutes(account, decision.throttle, written)

    def forget(self, policy_key: str) -> None:
        """Drop a policy that is another replica's, or gone. Its counters stay, as counters do."""
        self._accounts.pop(policy_key, None)

    def predicted_mutes(self) -> GaugeMetricFamily:
        text = "Longest mute that the last cuts of a level were predicted to cause."
        family = GaugeMetricFamily(
            "tidegate_predicted_mute_seconds", text, labels=(*POLICY_LABELS, "level")
        )
        for policy_key, account in list(self._accounts.items()):
            for level, seconds in list(account.predicted.items()):
                family.add_metric((*policy_labels(policy_key), level.value), seconds)
        return family

    def _count_acts(self, policy_key: str, account: _Account, throttle: ThrottleDecision) -> None:
        steps, account.acts = new_acts(throttle, account.acts)
        for step in steps:
            self._decisions.labels(
                *policy_labels(policy_key),
                step.direction.value,
                step.level.value,
                step.kind.value,
                step.limited_by.value,
            ).inc()
        cuts = [step for step in steps if step.kind is StepKind.CUT]
        first = {
            step.key: _sent(step)
            for step in cuts
            if step.key not in account.wanted and not step.bucket.is_throttled
        }
        wanted = {
            **account.wanted,
            **{key: sent for key, sent in first.items() if sent is not None},
        }
        account.wanted = {key: sent for key, sent in wanted.items() if key in throttle.steps}

    def _count_over(
        self, policy_key: str, account: _Account, decision: Decision, readings: Readings
    ) -> None:
        limits = {
            (one.broker, way): nic.limit
            for one in decision.watched or ()
            for way, nic in one.nics.items()
        }
        for key, limit in limits.items():
            spans, until = readings.spans(*key), account.counted.get(key)
            if limit is None or not spans:
                continue
            # a process counts from its first reading on: another one may have counted what was
            # before
            over = [
                span
                for span in spans
                if until is not None and span.at_seconds > until and span.bytes_per_second > limit
            ]
            self._over.labels(*policy_labels(policy_key), str(key[0]), key[1].value).inc(
                sum(span.seconds for span in over)
            )
            account.counted[key] = max(span.at_seconds for span in spans)

    def _count_deferred(
        self,
        policy_key: str,
        account: _Account,
        throttle: ThrottleDecision | None,
        readings: Readings,
    ) -> None:
        if throttle is None or account.read_at_seconds is None:
            return
        seconds = readings.read_at_seconds - account.read_at_seconds
        if not 0 < seconds <= _LONGEST_GAP_SECONDS:
            return
        for step in (
            step
            for key, step in throttle.steps.items()
            if key in account.wanted and step.bucket.binding
        ):
            sent = _sent(step)
            if sent is not None:
                held_back = max(0.0, account.wanted[step.key] - sent)
                self._deferred.labels(
                    *policy_labels(policy_key), step.direction.value, step.level.value
                ).inc(held_back * seconds)


def _note_mutes(
    account: _Account, throttle: ThrottleDecision, written: Sequence[QuotaWrite]
) -> None:
    levels = {step.entity: step.level for step in throttle.steps.values()}
    cuts = [write for write in written if write.reason in _CUTS and write.entity in levels]
    for level in {levels[write.entity] for write in cuts}:
        account.predicted[level] = max(
            write.predicted_mute_seconds for write in cuts if levels[write.entity] is level
        )


def _sent(step: ThrottleStep) -> float | None:
    """The rate over all brokers, in bytes/s; None if it is not known."""
    flows = step.bucket.flows.values()
    return sum(flow.bytes_per_second for flow in flows) if flows else None
