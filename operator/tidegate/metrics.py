"""The Prometheus metrics of one operator process, their endpoint, and the set-up of its log.

Gauges per member are read out of the last decision at the moment of a scrape, so that a pass over
thousands of members costs nothing here and a member that is gone leaves no series behind. No
control pass reads them back.
"""

import logging
import sys
import threading
from collections.abc import Iterator, Mapping
from wsgiref.simple_server import WSGIServer

import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    start_http_server,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tidegate import __version__
from tidegate.errors import UserActionRequired
from tidegate.queue_metrics import QueueReadings
from tidegate.settings import LogFormat, LogLevel
from tidegate.throttle_metrics import POLICY_LABELS, ThrottleCounts, policy_labels, throttle_gauges
from tidegate.throttle_metrics import PolicyReading as PolicyReading
from tidegate_logic.contracts.desired import AT_CONTRACT, MemberReport, MemberState
from tidegate_logic.model import BYTE_RATE_OF, DIRECTION_OF, QuotaKey
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle.nic_status import Pressure

_OURS = "tidegate"  # the logger above all of the program's own
_MEMBER_LABELS = (*POLICY_LABELS, "tier", "member")
_MOST_MEMBERS = 500  # of a policy that have series because they are not at their contract
_LONGEST_GAP_SECONDS = 60.0  # between two passes; over a longer one it is not known what was
_PASS_BUCKETS_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Telemetry:
    """The metrics of one process, in their own registry: tests and processes share no counts."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for every counter, without use
        self.registry = CollectorRegistry()
        self.throttle = ThrottleCounts(self.registry)
        self.readings = _Readings(self.throttle)
        self.registry.register(self.readings)
        self.queues = QueueReadings()
        self.registry.register(self.queues)
        for of_the_process in (ProcessCollector, PlatformCollector, GCCollector):
            of_the_process(registry=self.registry)
        self._make_counters()

    def _make_counters(self) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"tidegate_{name}", text, labels, registry=self.registry)

        self.passes = counter(
            "passes_total", "Control passes, by how they ended.", *POLICY_LABELS, "result"
        )
        self.quota_writes = counter(
            "quota_writes_total",
            "Quota writes applied, by why they were made.",
            *POLICY_LABELS,
            "kind",
            "reason",
        )
        self.write_conflicts = counter(
            "quota_write_refusals_total",
            "Quota writes that were not applied, by reason.",
            *POLICY_LABELS,
            "reason",
        )
        self.transactions = counter(
            "znode_transactions_total",
            "ZooKeeper transactions that carried quota writes.",
            *POLICY_LABELS,
        )
        self.status_writes = counter(
            "status_writes_total", "Status updates sent to the Kubernetes API.", "kind"
        )
        self.events = counter(
            "events_total", "Kubernetes Events sent, by type and reason.", "type", "reason"
        )
        self.wakes = counter("wakes_total", "What started control passes.", *POLICY_LABELS, "cause")
        self.lists = counter(
            "lists_total", "Full lists of custom resources, by how they ended.", "kind", "result"
        )
        self.rollup_jobs = counter(
            "rollup_jobs_total",
            "Rollup Jobs asked for: made, or refused by Kubernetes.",
            *POLICY_LABELS,
            "result",
        )
        self.direct_readings = counter(
            "direct_readings_total",
            "Readings of brokers' own exporters: read, or failed and left to Prometheus.",
            *POLICY_LABELS,
            "result",
        )
        self.replication_writes = counter(
            "replication_config_writes_total",
            "Changes of replication throttles on brokers and topics.",
            *POLICY_LABELS,
            "resource",
        )
        self.audit_lines = counter(
            "audit_lines_total",
            "Lines of the audit trail: written, or lost because the sink did not take them.",
            "result",
        )
        Gauge(
            "tidegate_build_info",
            "1; the version of the process.",
            ("version",),
            registry=self.registry,
        ).labels(__version__).set(1)
        self.policies = Gauge(
            "tidegate_policies_known",
            "Policies in the namespaces that this replica watches, held by any replica or none.",
            registry=self.registry,
        )
        self.leases_held = Gauge(
            "tidegate_leases_held",
            "Policies whose Lease this replica holds.",
            registry=self.registry,
        )
        self.replicas = Gauge(
            "tidegate_replicas_alive",
            "Replicas that share the policies with this one, itself included; 0 = not known.",
            registry=self.registry,
        )
        self.pass_seconds = Histogram(
            "tidegate_pass_duration_seconds",
            "How long a control pass took.",
            POLICY_LABELS,
            registry=self.registry,
            buckets=_PASS_BUCKETS_SECONDS,
        )


class _Readings(Collector):
    """Turns the last decision of each policy into gauges at a scrape."""

    def __init__(self, throttle: ThrottleCounts) -> None:
        self._throttle = throttle
        self._lock = threading.Lock()
        self._by_policy: dict[str, PolicyReading] = {}
        self._throttled_seconds: dict[str, dict[tuple[str, str], float]] = {}

    def put(self, policy_key: str, reading: PolicyReading) -> None:
        with self._lock:
            before = self._by_policy.get(policy_key)
            self._by_policy[policy_key] = reading.after(before)
            passed = 0.0
            if before is not None:
                passed = reading.finished_at_seconds - before.finished_at_seconds
            counted = self._throttled_seconds.get(policy_key, {})
            self._throttled_seconds[policy_key] = {
                key: counted.get(key, 0.0) + (passed if 0 < passed <= _LONGEST_GAP_SECONDS else 0.0)
                for one in _not_at_contract(reading)
                if one.state is MemberState.THROTTLED
                for key in ((one.tier_key, one.member_name),)
            }

    def forget(self, policy_key: str) -> None:
        with self._lock:
            self._by_policy.pop(policy_key, None)
            self._throttled_seconds.pop(policy_key, None)
        self._throttle.forget(policy_key)

    def describe(self) -> list[Metric]:
        """Nothing is collected at registration: there is no decision yet."""
        return []

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            readings = dict(self._by_policy)
            throttled_seconds = dict(self._throttled_seconds)
        yield from _held_members(readings, throttled_seconds)
        yield from _policy_gauges(readings)
        yield from _member_gauges(readings)
        yield from _broker_gauges(readings)
        yield from throttle_gauges(readings)
        yield self._throttle.predicted_mutes()


def _policy_gauges(readings: Mapping[str, PolicyReading]) -> Iterator[Metric]:
    for name, text, value_of in (
        (
            "last_pass_timestamp_seconds",
            "When the last control pass ended, as a Unix time.",
            lambda r: r.finished_at_seconds,
        ),
        ("quotas_managed", "Entities whose quota is managed.", lambda r: r.decision.managed),
        (
            "quotas_in_sync",
            "Managed entities whose quota is at its target.",
            lambda r: r.decision.in_sync,
        ),
        (
            "quotas_contended",
            "Entities left alone because another writer keeps changing them.",
            lambda r: len(r.decision.contended),
        ),
        (
            "writes_deferred",
            "Quota writes that wait for room in the write budget.",
            lambda r: r.decision.deferred_writes,
        ),
        (
            "write_budget_used",
            "Charged quota writes within the last period of the write budget.",
            lambda r: r.charged_writes,
        ),
        (
            "write_budget_limit",
            "Charged quota writes allowed in a period of the write budget.",
            lambda r: r.write_budget,
        ),
    ):
        family = GaugeMetricFamily(f"tidegate_{name}", text, labels=POLICY_LABELS)
        for policy_key, reading in readings.items():
            family.add_metric(policy_labels(policy_key), value_of(reading))
        yield family
    holds = GaugeMetricFamily(
        "tidegate_hold_since_timestamp_seconds",
        "Since when an input is missing, as a Unix time.",
        labels=(*POLICY_LABELS, "reason"),
    )
    for policy_key, reading in readings.items():
        for hold in reading.decision.holds:
            holds.add_metric((*policy_labels(policy_key), hold.reason), hold.since_seconds)
    yield holds
    yield from _rollup_gauges(readings)
    yield from _replication_gauges(readings)


def _rollup_gauges(readings: Mapping[str, PolicyReading]) -> Iterator[Metric]:
    until = GaugeMetricFamily(
        "tidegate_rollup_published_until_timestamp_seconds",
        "Until when usage tables lack nothing, as a Unix time.",
        labels=POLICY_LABELS,
    )
    waiting = GaugeMetricFamily(
        "tidegate_rollup_windows_waiting",
        "Windows over and not in the usage tables.",
        labels=POLICY_LABELS,
    )
    failed = GaugeMetricFamily(
        "tidegate_rollup_windows_failed",
        "Of those, windows whose Job failed.",
        labels=POLICY_LABELS,
    )
    for policy_key, reading in readings.items():
        if reading.rollups is not None:
            if reading.rollups.published_until_ms is not None:
                until.add_metric(
                    policy_labels(policy_key), reading.rollups.published_until_ms / 1000
                )
            waiting.add_metric(policy_labels(policy_key), len(reading.rollups.missing))
            failed.add_metric(policy_labels(policy_key), len(reading.rollups.failed))
    yield from (until, waiting, failed)


def _replication_gauges(readings: Mapping[str, PolicyReading]) -> Iterator[Metric]:
    by_kind = (*POLICY_LABELS, "kind")
    filled = GaugeMetricFamily(
        "tidegate_replication_replicas_filling", "Replicas that are being filled.", labels=by_kind
    )
    left = GaugeMetricFamily(
        "tidegate_replication_bytes_left", "Bytes that are left to be moved.", labels=by_kind
    )
    eta = GaugeMetricFamily(
        "tidegate_replication_eta_seconds", "Seconds that it still takes.", labels=by_kind
    )
    rate = GaugeMetricFamily(
        "tidegate_replication_rate_bytes_per_second",
        "The replication rate in force on one side of a broker's NIC.",
        labels=(*POLICY_LABELS, "broker", "direction"),
    )
    background = GaugeMetricFamily(
        "tidegate_background_rate_bytes_per_second",
        "The rate in force of what a broker moves for tiered storage or between log directories.",
        labels=(*POLICY_LABELS, "broker", "kind"),
    )
    for policy_key, reading in readings.items():
        decision, policy = reading.replication, policy_labels(policy_key)
        if decision is None:
            continue
        for (broker, moved), rate_of_it in decision.background.in_force.items():
            background.add_metric((*policy, str(broker), moved.value), rate_of_it)
        for kind, estimate in decision.estimates.items():
            labels = (*policy, kind.value)
            filled.add_metric(labels, len(decision.of(kind)))
            bytes_left = decision.bytes_left(kind)
            if bytes_left is not None:
                left.add_metric(labels, bytes_left)
            if estimate.seconds is not None:
                eta.add_metric(labels, estimate.seconds)
        for side, bytes_per_second in decision.in_force.items():
            rate.add_metric((*policy, str(side.broker), side.direction.value), bytes_per_second)
    yield from (filled, left, eta, rate, background)


class _QuotaGauges:
    """Native quotas of members per broker, one metric for each unit; `what` names them."""

    def __init__(self, what: str, text: str) -> None:
        def gauge(unit: str, unit_text: str, *labels: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(
                f"tidegate_member_{what}_{unit}",
                f"{text}, {unit_text}.",
                labels=(*_MEMBER_LABELS, *labels),
            )

        rates = gauge("bytes_per_second", "in bytes per second", "direction")
        percent = gauge("request_percent", "in percent of one broker thread's time")
        mutations = gauge("mutations_per_second", "in partition mutations per second")
        self.families = (rates, percent, mutations)
        self._places: Mapping[QuotaKey, tuple[GaugeMetricFamily, tuple[str, ...]]] = {
            QuotaKey.CONSUMER_BYTE_RATE: (rates, ("fetch",)),
            QuotaKey.PRODUCER_BYTE_RATE: (rates, ("produce",)),
            QuotaKey.REQUEST_PERCENTAGE: (percent, ()),
            QuotaKey.CONTROLLER_MUTATION_RATE: (mutations, ()),
        }

    def add(self, member: tuple[str, ...], quota: Mapping[QuotaKey, int]) -> None:
        for key, value in quota.items():
            family, labels = self._places[key]
            family.add_metric((*member, *labels), value)


def tier_label(policy_key: str, tier_key: str) -> str:
    """The tier's name; with its namespace where that is not the policy's."""
    namespace = policy_key.partition("/")[0]
    return tier_key.removeprefix(f"{namespace}/")


def _member_gauges(readings: Mapping[str, PolicyReading]) -> Iterator[Metric]:
    quota = _QuotaGauges("quota", "Quota in force on each broker")
    target = _QuotaGauges("target", "Quota on each broker that the member is on its way to")
    text = "Most leaders on one broker over the mean; 1 is even."
    skew = GaugeMetricFamily("tidegate_member_leader_skew_ratio", text, labels=_MEMBER_LABELS)
    for policy_key, reading in readings.items():
        for member in reading.decision.members:
            labels = (
                *policy_labels(policy_key),
                tier_label(policy_key, member.tier_key),
                member.member_name,
            )
            quota.add(labels, member.quota)
            target.add(labels, member.target)
            if member.leader_skew is not None:
                skew.add_metric(labels, member.leader_skew)
    yield from (*quota.families, *target.families, skew)


def _not_at_contract(reading: PolicyReading) -> list[MemberReport]:
    """Members that are not at their contract, so many at most: the most important ones."""
    found = [one for one in reading.decision.members if one.state not in AT_CONTRACT]
    found.sort(key=lambda one: (one.level, one.tier_key, one.member_name))
    return found[:_MOST_MEMBERS]


def _held_members(
    readings: Mapping[str, PolicyReading],
    throttled_seconds: Mapping[str, Mapping[tuple[str, str], float]],
) -> Iterator[Metric]:
    """What members move that are not at their contract; at it they have no such series."""
    rates = GaugeMetricFamily(
        "tidegate_member_bytes_per_second",
        "What a member that is not at its contract moves over all brokers, by the newest readings.",
        labels=(*_MEMBER_LABELS, "direction"),
    )
    states = GaugeMetricFamily(
        "tidegate_member_state",
        "1 = the member is in this state; there is no series of a member at its contract.",
        labels=(*_MEMBER_LABELS, "level", "state"),
    )
    seconds = CounterMetricFamily(
        "tidegate_member_throttle_seconds",
        "Seconds in which the member was throttled, from when it was last at its contract.",
        labels=_MEMBER_LABELS,
    )
    ways = {key: word for word, key in BYTE_RATE_OF.items()}
    for policy_key, reading in readings.items():
        moved: dict[tuple[object, object], float] = {}
        clients = reading.readings.clients if reading.readings is not None else {}
        held = _not_at_contract(reading)
        entities = {one.entity for one in held}
        for (entity, _, way), rate in clients.items():
            if entity in entities:
                moved[entity, way] = moved.get((entity, way), 0.0) + rate.bytes_per_second
        for one in held:
            tier = tier_label(policy_key, one.tier_key)
            labels = (*policy_labels(policy_key), tier, one.member_name)
            states.add_metric((*labels, one.level.value, one.state.value), 1.0)
            for key, word in ways.items():
                value = moved.get((one.entity, DIRECTION_OF[key]))
                if value is not None:
                    rates.add_metric((*labels, word), value)
            of = throttled_seconds.get(policy_key, {}).get((one.tier_key, one.member_name))
            if of is not None:
                seconds.add_metric(labels, of)
    yield from (rates, states, seconds)


def _broker_gauges(readings: Mapping[str, PolicyReading]) -> Iterator[Metric]:
    labels = (*POLICY_LABELS, "broker", "direction")
    rate = GaugeMetricFamily(
        "tidegate_broker_bytes_per_second",
        "What a broker's NIC carries, by the newest reading.",
        labels=labels,
    )
    limit = GaugeMetricFamily(
        "tidegate_broker_limit_bytes_per_second", "The limit of a broker's NIC.", labels=labels
    )
    read = GaugeMetricFamily(
        "tidegate_broker_reading_timestamp_seconds",
        "When that reading was sampled, as a Unix time.",
        labels=labels,
    )
    over = GaugeMetricFamily(
        "tidegate_broker_over_limit", "1 = the broker counts as over its limit.", labels=labels[:-1]
    )
    for policy_key, reading in readings.items():
        for one in reading.decision.watched or ():
            over.add_metric(
                (*policy_labels(policy_key), str(one.broker)), float(one.pressure is Pressure.OVER)
            )
            for way, nic in one.nics.items():
                here = (*policy_labels(policy_key), str(one.broker), way.value)
                limit.add_metric(here, float(nic.limit or 0))
                if nic.bytes_per_second is not None and nic.at_seconds is not None:
                    rate.add_metric(here, nic.bytes_per_second)
                    read.add_metric(here, nic.at_seconds)
    yield from (rate, limit, read, over)


def count_writes(
    telemetry: Telemetry,
    policy_key: str,
    *,
    kinds_and_reasons: Iterator[tuple[str, str]],
    transactions: int,
) -> None:
    """Count the writes of one pass."""
    for kind, reason in kinds_and_reasons:
        telemetry.quota_writes.labels(*policy_labels(policy_key), kind, reason).inc()
    telemetry.transactions.labels(*policy_labels(policy_key)).inc(transactions)


class MetricsServer:
    """`/metrics` on its own thread; `port` is the one it really listens on.

    Raises UserActionRequired when the port is taken.
    """

    def __init__(self, telemetry: Telemetry, *, port: int, address: str) -> None:
        self._server: WSGIServer
        try:
            self._server, self._thread = start_http_server(
                port, addr=address, registry=telemetry.registry
            )
        except OSError as error:
            raise cannot_listen(address, port, option="--metrics-port", error=error) from error
        self.port = int(self._server.server_port)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


def cannot_listen(address: str, port: int, *, option: str, error: OSError) -> UserActionRequired:
    """The error of a process that was given a port which it cannot have."""
    return UserActionRequired(
        Reason.INVALID_SPEC,
        (
            f"Tidegate cannot listen on port {port} of {address}: {error.strerror}. End the "
            f"process that uses it, or give another {option}."
        ),
    )


def set_up_logging(log_format: LogFormat, level: LogLevel) -> None:
    """Set up the log: one line an event on standard error, JSON for machines, columns for people.

    Library logs go the same way. Libraries are heard from warnings on, whatever the level: at debug
    some print every request, and a login is one.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        cache_logger_on_first_use=False,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            _renderer(log_format),
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level]))
    logging.getLogger(_OURS).setLevel(level)


def _renderer(log_format: LogFormat) -> structlog.typing.Processor:
    if log_format is LogFormat.JSON:
        return structlog.processors.JSONRenderer()
    return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
