"""The metrics of a process, which docs/metrics.md names, and log lines that machines can read."""

import json
import logging
import os
import re
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from prometheus_client import Counter, generate_latest
from prometheus_client.core import Metric

from lab.process import patience
from tests.unit.control.stage import Stage
from tests.unit.controller_logic.plant import actor, simulated_cluster, want
from tests.unit.controller_logic.replicating import FIXED, Cluster
from tidegate.forwarder.metrics import ForwarderMetrics
from tidegate.metrics import MetricsServer, PolicyReading, Telemetry, count_writes, set_up_logging
from tidegate.queue_metrics import QueueReading
from tidegate.settings import LogFormat, LogLevel
from tidegate_logic.contracts.budgets import BudgetReport
from tidegate_logic.contracts.desired import MemberReport, MemberState
from tidegate_logic.contracts.overrides import Overridden
from tidegate_logic.decision import Decision, LevelReport, LevelState
from tidegate_logic.model import (
    Budget,
    ClientRate,
    Direction,
    Entity,
    Hold,
    Level,
    Member,
    NicSpan,
    Override,
    QuotaKey,
    QuotaWrite,
    Readings,
    StoredQuota,
    Tier,
    WriteKind,
)
from tidegate_logic.quotas.contention import Contention
from tidegate_logic.reasons import Reason
from tidegate_logic.rollup_schedule import Due
from tidegate_logic.throttle.calendar import LevelCalendar
from tidegate_logic.throttle.nic_status import NicStatus, Pressure, WatchedBroker

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
CONTENDED = {Entity("alice"): Contention(Entity("alice"), (), 2, 0.0, 60.0)}
POLICY = "streaming/orders"
LABELS = {"policy_namespace": "streaming", "policy": "orders"}
QUEUE = QueueReading(
    waiting=12,
    oldest_late_seconds=75,
    lost=0,
    dead=4,
    is_held=True,
    forwarders_wanted=2,
    forwarders_available=1,
    clock_ms=-80,
)


def reading(decision: Decision) -> PolicyReading:
    return PolicyReading(decision, finished_at_seconds=1000.0, charged_writes=3, write_budget=300)


@pytest.fixture
def busy() -> Telemetry:
    """A telemetry in which everything that can be counted was counted once."""
    stage = Stage()
    stage.policy(
        metrics={"prometheus": {"url": "http://prometheus:9090"}},
        brokers={"egress": {"limit": "50M"}},
    )
    further = {"requestPercentage": 150, "controllerMutationsPerSecond": 7}
    stage.kubernetes.edit(
        stage.tier(), lambda raw: raw["spec"]["members"][0]["contract"].update(further)
    )
    nic = NicSpan(stage.now, 15.0, 1e6)
    stage.readings = Readings(stage.now, 15.0, {(1, Direction.EGRESS): (nic,)})
    stage.run()
    telemetry = stage.telemetry
    telemetry.wakes.labels("streaming", "orders", "timer").inc()
    telemetry.lists.labels("BusinessTier", "failed").inc()
    telemetry.write_conflicts.labels("streaming", "orders", "Conflict").inc()
    telemetry.audit_lines.labels("written").inc()
    telemetry.direct_readings.labels("streaming", "orders", "read").inc()
    telemetry.rollup_jobs.labels("streaming", "orders", "made").inc()
    telemetry.queues.put(POLICY, {"billing/unpaid": QUEUE})
    _throttled(telemetry)
    held = Decision(
        holds=(Hold(Reason.BROKERS_UNREACHABLE, "No broker answers.", 990.0),),
        calendar=(LevelCalendar(Level.L3, 0.2, None, None),),
        budgets={
            "streaming/search": BudgetReport(
                Budget("streaming/search", {QuotaKey.CONSUMER_BYTE_RATE: 120_000_000}),
                Reason.BUDGET_DIVIDED,
                measured={Direction.EGRESS: 95_000_000.0},
            )
        },
    )
    moving = Cluster.moving([(1, 2)], terms=FIXED)
    telemetry.replication_writes.labels("streaming", "orders", "topic").inc()
    telemetry.readings.put(
        "streaming/other",
        replace(
            reading(held),
            rollups=Due(published_until_ms=300_000),
            replication=moving.decide(),
        ),
    )
    return telemetry


def _throttled(telemetry: Telemetry) -> None:
    """Two passes of an episode: a cut, and the bytes that are held back after it."""
    played = simulated_cluster(
        actor("etl", "L3", 60), actor("pay", "L0", 60), limit_mb=50, capacity_mb=200
    )
    want(played, etl=40, pay=25)
    override = Override("streaming/backfill", 2000.0, "agreed", entity=Entity("etl"))
    levels, overridden = (
        (LevelReport(Level.L3, LevelState.THROTTLED),),
        Overridden((), {Entity("etl"): override}),
    )
    watched = (
        WatchedBroker(
            1, Pressure.OVER, {Direction.EGRESS: NicStatus(1, Pressure.OVER, 50_000_000)}
        ),
    )
    member = Member("etl", Entity("etl"))
    members = (
        MemberReport(
            Tier("streaming/batch", Level.L3, (member,)),
            member,
            None,
            MemberState.THROTTLED,
            Reason.THROTTLED,
        ),
    )
    for _ in range(2):
        decision = Decision(
            watched=watched,
            throttle=played.run(15),
            levels=levels,
            overridden=overridden,
            members=members,
        )
        readings = played.given().readings
        seen, values = StoredQuota(Entity("etl"), {}), {QuotaKey.CONSUMER_BYTE_RATE: "25000000"}
        cut = QuotaWrite(
            Entity("etl"),
            values,
            seen,
            None,
            WriteKind.LOWERING,
            Reason.THROTTLED,
            "",
            charged=True,
        )
        telemetry.throttle.note("streaming/throttled", decision, readings, written=[cut])
        telemetry.readings.put(
            "streaming/throttled",
            PolicyReading(decision, 1000.0, 3, 300, readings, {"Metrics": 990.0}),
        )


def _ours(telemetry: Telemetry) -> Iterator[Metric]:
    yield from filter(_is_ours, telemetry.registry.collect())


def _is_ours(family: Metric) -> bool:
    return family.name.startswith("tidegate_")


@pytest.fixture
def forwarding() -> ForwarderMetrics:
    """The metrics of a forwarder in which everything that can be counted was counted once."""
    metrics = ForwarderMetrics()
    metrics.late.observe(600, [1000], 1002.0)
    for counter in vars(metrics).values():
        if isinstance(counter, Counter):
            counter.labels(*("any" for _ in counter._labelnames)).inc()
    return metrics


def _row(family: Metric) -> str:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels = {label: None for sample in family.samples for label in sample.labels if label != "le"}
    shown = ", ".join(f"`{label}`" for label in labels)
    return f"| `{name}` | {family.type} | {shown} | {family.documentation} |"


def _with_table(page: str, name: str, families: Iterable[Metric]) -> str:
    """The page with the table of these metrics between its marks."""
    begin, end = (
        f"<!-- {name}: begin (generated by `make goldens`) -->\n\n",
        f"\n\n<!-- {name}: end -->",
    )
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    assert found, f"docs/metrics.md has no place for the table of {name}"
    head = ["| Metric | Type | Labels | Meaning |", "|---|---|---|---|"]
    return before + begin + "\n".join([*head, *map(_row, families)]) + end + after


@pytest.mark.golden
def test_the_documented_metrics_are_those_that_exist(
    busy: Telemetry, forwarding: ForwarderMetrics
) -> None:
    """`make goldens` writes the tables of the page."""
    forwarders = filter(_is_ours, forwarding.registry.collect())
    page = PAGE.read_text(encoding="utf-8")
    shown = _with_table(page, "metrics", _ours(busy))
    shown = _with_table(shown, "forwarders", forwarders)
    if os.environ.get("WRITE_GOLDENS"):
        PAGE.write_text(shown, encoding="utf-8")
    else:
        assert page == shown, "`make goldens` writes the tables of docs/metrics.md"


def test_no_metric_carries_the_time_when_it_began_to_count(busy: Telemetry) -> None:
    assert "_created" not in generate_latest(busy.registry).decode()


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("last_pass_timestamp_seconds", 1000.0),
        ("quotas_managed", 7.0),
        ("quotas_in_sync", 5.0),
        ("quotas_contended", 1.0),
        ("writes_deferred", 2.0),
        ("write_budget_used", 3.0),
        ("write_budget_limit", 300.0),
    ],
)
def test_a_policys_gauges_are_the_figures_of_its_last_decision(metric: str, value: float) -> None:
    telemetry = Telemetry()
    telemetry.readings.put(
        POLICY, reading(Decision(managed=7, in_sync=5, contended=CONTENDED, deferred_writes=2))
    )
    assert telemetry.registry.get_sample_value(f"tidegate_{metric}", LABELS) == value


def test_a_missing_input_is_a_series_for_as_long_as_it_is_missing() -> None:
    telemetry = Telemetry()
    labels = {**LABELS, "reason": "BrokersUnreachable"}
    telemetry.readings.put(
        POLICY,
        reading(Decision(holds=(Hold(Reason.BROKERS_UNREACHABLE, "No broker answers.", 990.0),))),
    )
    assert (
        telemetry.registry.get_sample_value("tidegate_hold_since_timestamp_seconds", labels)
        == 990.0
    )
    telemetry.readings.put(POLICY, reading(Decision()))
    assert (
        telemetry.registry.get_sample_value("tidegate_hold_since_timestamp_seconds", labels) is None
    )


def test_a_member_has_a_series_for_each_value_of_its_quota_named_by_its_unit() -> None:
    stage = Stage()
    tier = (stage.policy(), stage.tier())[1]
    further = {"requestPercentage": 150, "controllerMutationsPerSecond": 7}
    stage.kubernetes.edit(tier, lambda raw: raw["spec"]["members"][0]["contract"].update(further))
    stage.run()
    labels = {**LABELS, "tier": "gold", "member": "alice"}
    sample = stage.telemetry.registry.get_sample_value
    for what in ("quota", "target"):
        assert (
            sample(f"tidegate_member_{what}_bytes_per_second", {**labels, "direction": "produce"})
            == 10_000_000
        )
        assert (
            sample(f"tidegate_member_{what}_bytes_per_second", {**labels, "direction": "fetch"})
            is None
        )
        assert sample(f"tidegate_member_{what}_request_percent", labels) == 150
        assert sample(f"tidegate_member_{what}_mutations_per_second", labels) == 7
    assert sample("tidegate_member_leader_skew_ratio", labels) == 1.0


def test_tiers_of_one_name_in_two_namespaces_have_series_of_their_own() -> None:
    stage = Stage()
    stage.kubernetes.put_namespace("team-b", {})
    stage.policy(allowedTiers={"namespaces": "Selector", "selector": {}})
    stage.tier(), stage.tier(user="bob", rate="5M", namespace="team-b")
    stage.run()
    sample = stage.telemetry.registry.get_sample_value
    name = "tidegate_member_quota_bytes_per_second"
    own = {**LABELS, "tier": "gold", "member": "alice", "direction": "produce"}
    assert sample(name, own) == 10_000_000
    assert sample(name, {**own, "tier": "team-b/gold", "member": "bob"}) == 5_000_000


def test_a_policy_that_is_gone_leaves_no_gauge_behind() -> None:
    telemetry = Telemetry()
    telemetry.readings.put(POLICY, reading(Decision()))
    telemetry.queues.put(POLICY, {"billing/unpaid": QUEUE})
    telemetry.readings.forget(POLICY)
    telemetry.queues.put(POLICY, {})
    assert [
        sample
        for family in _ours(telemetry)
        for sample in family.samples
        if sample.labels.items() >= LABELS.items()
    ] == []


def test_a_queues_gauges_are_its_last_look_and_unknown_ones_have_no_series() -> None:
    telemetry = Telemetry()
    telemetry.queues.put(POLICY, {"billing/unpaid": QUEUE})
    telemetry.queues.put("streaming/other", {"billing/retries": QueueReading(waiting=1)})
    labels = {**LABELS, "queue_namespace": "billing", "queue": "unpaid"}
    other = {**labels, "policy": "other", "queue": "retries"}
    sample = telemetry.registry.get_sample_value
    assert sample("tidegate_delay_queue_messages_waiting", labels) == 12
    assert sample("tidegate_delay_queue_clock_offset_seconds", labels) == -0.08
    assert sample("tidegate_delay_queue_held", labels) == 1
    assert sample("tidegate_delay_queue_messages_waiting", other) == 1
    assert sample("tidegate_delay_queue_messages_dead", other) is None
    telemetry.queues.put(POLICY, {"billing/late": QUEUE})
    assert sample("tidegate_delay_queue_messages_waiting", labels) is None
    assert sample("tidegate_delay_queue_messages_waiting", other) == 1


def test_writes_are_counted_by_kind_and_reason() -> None:
    telemetry = Telemetry()
    count_writes(
        telemetry,
        POLICY,
        kinds_and_reasons=iter([("raise", "LeadersMoved")] * 2 + [("first", "FirstQuota")]),
        transactions=1,
    )
    sample = telemetry.registry.get_sample_value
    assert (
        sample("tidegate_quota_writes_total", {**LABELS, "kind": "raise", "reason": "LeadersMoved"})
        == 2
    )
    assert (
        sample("tidegate_quota_writes_total", {**LABELS, "kind": "first", "reason": "FirstQuota"})
        == 1
    )
    assert sample("tidegate_znode_transactions_total", LABELS) == 1


def test_two_telemetries_in_one_process_count_apart() -> None:
    first, second = Telemetry(), Telemetry()
    first.lists.labels("BusinessTier", "complete").inc()
    assert (
        second.registry.get_sample_value(
            "tidegate_lists_total", {"kind": "BusinessTier", "result": "complete"}
        )
        is None
    )


def test_metrics_are_served_until_the_server_is_closed(busy: Telemetry) -> None:
    server = MetricsServer(busy, port=0, address="127.0.0.1")
    address = f"http://127.0.0.1:{server.port}/metrics"
    with urllib.request.urlopen(address, timeout=patience(10)) as answer:
        assert (
            'tidegate_quotas_managed{policy="orders",policy_namespace="streaming"} 1.0'
            in answer.read().decode()
        )
    server.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address, timeout=patience(10))


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("tidegate")
    handlers, level, our_level = list(root.handlers), root.level, ours.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    ours.setLevel(our_level)
    structlog.reset_defaults()


@pytest.mark.usefixtures("logging_as_before")
def test_a_log_line_is_one_json_object_with_its_time_whoever_wrote_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up_logging(LogFormat.JSON, LogLevel.INFO)
    structlog.get_logger("tidegate.test").info("Quotas written", policy=POLICY, count=3)
    logging.getLogger("some.library").warning("it said this")
    ours, theirs = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (ours["event"], ours["policy"], ours["count"], ours["level"]) == (
        "Quotas written",
        POLICY,
        3,
        "info",
    )
    assert (theirs["event"], theirs["logger"], theirs["level"]) == (
        "it said this",
        "some.library",
        "warning",
    )
    assert ours["timestamp"].endswith("Z")


@pytest.mark.usefixtures("logging_as_before")
def test_a_traceback_stays_within_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(LogFormat.JSON, LogLevel.INFO)
    try:
        raise ValueError("a bug")
    except ValueError:
        structlog.get_logger("tidegate.test").exception("Pass abandoned")
    (line,) = capsys.readouterr().err.splitlines()
    assert "ValueError: a bug" in json.loads(line)["exception"]


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize(
    ("level", "events"),
    [(LogLevel.DEBUG, ["a", "b"]), (LogLevel.INFO, ["b"]), (LogLevel.ERROR, [])],
)
def test_the_level_decides_what_is_logged(
    capsys: pytest.CaptureFixture[str], level: LogLevel, events: list[str]
) -> None:
    set_up_logging(LogFormat.JSON, level)
    logger = structlog.get_logger("tidegate.test")
    logger.debug("a")
    logger.info("b")
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == events


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize(
    "library",
    [
        "kubernetes.client.rest",
        "kazoo.client",
        "kafka.conn",
        "urllib3.connectionpool",
        "of.tomorrow",
    ],
)
def test_libraries_are_heard_from_warnings_on_because_at_debug_some_print_logins(
    capsys: pytest.CaptureFixture[str], library: str
) -> None:
    set_up_logging(LogFormat.JSON, LogLevel.DEBUG)
    for level in (logging.DEBUG, logging.INFO, logging.WARNING):
        logging.getLogger(library).log(level, "said at %d", level)
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == [
        f"said at {logging.WARNING}"
    ]


def held(name: str, state: MemberState, level: Level = Level.L3) -> MemberReport:
    member = Member(name, Entity(name))
    tier = Tier("streaming/reports", level, (member,))
    return MemberReport(tier, member, None, state, Reason.THROTTLED)


def member_series(telemetry: Telemetry) -> dict[str, float]:
    text = generate_latest(telemetry.registry).decode()
    rows = re.findall(r'^(tidegate_member_\w+)\{.*member="(\w+)".*\} (\S+)$', text, re.MULTILINE)
    return {
        f"{metric.removeprefix('tidegate_member_')} {member}": float(v)
        for metric, member, v in rows
    }


def test_a_member_has_a_rate_a_state_and_seconds_only_while_it_is_not_at_its_contract() -> None:
    telemetry = Telemetry()
    rate = ClientRate(1000.0, 3e6)
    readings = Readings(
        1000.0,
        15.0,
        clients={
            (Entity("etl"), 1, Direction.EGRESS): rate,
            (Entity("etl"), 2, Direction.EGRESS): rate,
            (Entity("calm"), 1, Direction.EGRESS): rate,
        },
    )
    throttled = Decision(
        members=(held("etl", MemberState.THROTTLED), held("calm", MemberState.CONTRACT))
    )
    for at_seconds in (1000.0, 1010.0, 1300.0, 1305.0):  # the gap of 290 s is not counted
        one = PolicyReading(throttled, at_seconds, 0, 300, readings=readings)
        telemetry.readings.put(POLICY, one)
    assert member_series(telemetry) == {
        "bytes_per_second etl": 6e6,
        "state etl": 1.0,
        "throttle_seconds_total etl": 15.0,
    }
    after = Decision(members=(held("etl", MemberState.CONTRACT),))
    telemetry.readings.put(POLICY, PolicyReading(after, 1310.0, 0, 300, readings=readings))
    assert member_series(telemetry) == {}


def test_of_many_members_not_at_their_contract_the_most_important_have_series() -> None:
    telemetry = Telemetry()
    members = [held(f"m{number}", MemberState.HELD) for number in range(600)]
    members.append(held("first", MemberState.HELD, Level.L0))
    telemetry.readings.put(POLICY, reading(Decision(members=tuple(members))))
    found = member_series(telemetry)
    assert len(found) == 500
    assert found["state first"] == 1.0
