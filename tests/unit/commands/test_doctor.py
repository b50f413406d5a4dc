"""`tidegate doctor` on a made-up cluster: what each finding names, and how the command ends.

The ten broken set-ups are played on real parts in tests/integration/commands/test_doctor.py.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.prometheus import exporting
from tests.doubles.user_operator import kafka_user
from tidegate.commands.doctor import needed_rights
from tidegate.errors import Unauthorized
from tidegate.kube.api import (
    BANDWIDTH_BUDGETS,
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    DELAY_QUEUES,
    ObjectRef,
)
from tidegate.observe.strimzi import KAFKA_USERS
from tidegate.prometheus.probe import Found
from tidegate_logic.model import (
    BackgroundKind,
    ClientRate,
    Direction,
    Entity,
    Exporter,
    Interface,
    QuotaKey,
    ReadingProblem,
    Readings,
)
from tidegate_logic.reasons import Reason
from tidegate_logic.replication.background import TIERED_STORAGE
from tidegate_logic.replication.throttles import BACKGROUND_KEYS

ROOT = Path(__file__).parents[3]
BROKERS = frozenset({1, 2, 3})
NAMES = (
    "egress",
    "ingress",
    "fetch_rate",
    "produce_rate",
    "fetch_throttle",
    "produce_throttle",
)
OPERATOR = "system:serviceaccount:tidegate:tidegate"


@pytest.fixture
def measured(policy: Any) -> Any:
    """The policy with a Prometheus and limits."""
    policy["spec"]["metrics"] = {"prometheus": {"url": "http://prometheus:9090"}}
    policy["spec"]["brokers"] = {"egress": {"limit": "100M"}}
    return policy


@pytest.fixture
def sound(world: Any, measured: Any, tier: Any) -> Any:
    """A world in which nothing is wrong."""
    made = world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, measured)
    world.kubernetes.create(BUSINESS_TIERS, tier)
    report(world, made, status="True", reason="InSync")
    world.user = OPERATOR
    world.found = [Found(name, name, 3, BROKERS) for name in NAMES]
    return world


def report(world: Any, made: Any, *, status: str, reason: str) -> None:
    ready = {"type": "Ready", "status": status, "reason": reason, "message": "as it is"}
    world.kubernetes.patch_status(
        ObjectRef.of(BROKER_BANDWIDTH_POLICIES, made),
        {"conditions": [ready]},
        resource_version=made["metadata"]["resourceVersion"],
    )


def findings(world: Any, *arguments: str) -> list[dict[str, Any]]:
    answer = world.run("doctor", "-o", "json", *arguments)
    document = json.loads(answer.out)
    states = [one["state"] for one in document["findings"]]
    assert document["summary"] == {
        state: states.count(state) for state in ("problem", "warning", "unknown", "ok")
    }
    assert answer.code == (1 if "problem" in states else 0)
    return list(document["findings"])


def wrong(world: Any, *arguments: str) -> set[tuple[str, str, str]]:
    return {
        (one["state"], one["check"], one["reason"])
        for one in findings(world, *arguments)
        if one["state"] in ("problem", "warning")
    }


def test_a_sound_cluster_has_no_finding_but_that_it_is_sound(
    sound: Any, golden: Callable[[str], None]
) -> None:
    before = sound.snapshot()
    assert {one["state"] for one in findings(sound)} == {"ok"}
    assert sound.snapshot() == before
    golden(sound.run("doctor").out)


Change = Callable[[Any], None]


def _lacks(name: str, **found: Any) -> Change:
    def change(world: Any) -> None:
        world.found = [
            Found(name, name, **found) if one.name == name else one for one in world.found
        ]

    return change


def _without_quotas(world: Any) -> None:
    for name in ("fetch_rate", "produce_rate"):
        _lacks(name, related='kafka_broker_bytesin_total{broker="1"}')(world)


def _edit(world: Any, change: Callable[[Any], object]) -> None:
    (listed,) = world.kubernetes.list_all(BROKER_BANDWIDTH_POLICIES).items
    world.kubernetes.edit(ObjectRef.of(BROKER_BANDWIDTH_POLICIES, listed), change)


def _long_mutes(world: Any) -> None:
    _edit(world, lambda raw: raw["spec"].update(escalation={"maxMuteSeconds": 26}))


def _pods_beside(world: Any) -> None:
    _edit(world, lambda raw: raw["spec"]["metrics"].update(preset="Cadvisor"))
    _lacks("egress", count=4, brokers=BROKERS | {7, 101})(world)
    world.settings = {**world.settings, "controller.quorum.voters": "101@c1:9090,102@c2:9090"}
    two = ReadingProblem(Reason.METRICS_AMBIGUOUS, "two of them", 1)
    world.readings = lambda: Readings(world.now, 15.0, problems=(two,))


def _only_client_ids(world: Any) -> None:
    world.store.put(Entity("alice"), {QuotaKey.CONSUMER_BYTE_RATE: "5"})
    rate = ClientRate(world.now, 5.0)
    clients = {(Entity(client_id="solo"), 1, Direction.EGRESS): rate}
    world.readings = lambda: Readings(world.now, 15.0, {}, clients)


def _remembers_a_ledger(world: Any) -> None:
    (made,) = world.kubernetes.list_all(BROKER_BANDWIDTH_POLICIES).items
    ledger = {"clusterId": "memory-cluster", "epoch": 3, "records": 2}
    world.kubernetes.patch_status(
        ObjectRef.of(BROKER_BANDWIDTH_POLICIES, made),
        {"ledger": ledger},
        resource_version=made["metadata"]["resourceVersion"],
    )


def _counts(world: Any, *interfaces: Interface) -> None:
    """Broker 1 counts these, and the others have one each."""
    before = world.readings()
    others = {broker: (Interface("ens5", 1e6, 1e6),) for broker in BROKERS - {1}}
    world.readings = lambda: replace(before, interfaces=others | {1: interfaces})


CASES: Mapping[str, tuple[Change, set[tuple[str, str, str]]]] = {
    "no kinds": (
        lambda world: setattr(world, "served", frozenset({"businesstiers"})),
        {("problem", "crds", "CustomResourcesMissing")},
    ),
    "no rights": (
        lambda world: world.denied.update({"patch businesstiers/status", "create leases"}),
        {("problem", "rights", "NotAuthorized")},
    ),
    "a clock behind prometheus": (
        lambda world: setattr(world, "prometheus_ahead_seconds", 31.0),
        {("problem", "clocks", "ClocksDiffer")},
    ),
    "a clock behind kubernetes": (
        lambda world: setattr(world, "server_ahead_seconds", 31.0),
        {("warning", "clocks", "ClocksDiffer")},
    ),
    "a lost ledger": (_remembers_a_ledger, {("problem", "zookeeper", "LedgerLost")}),
    "a plugin": (
        lambda world: setattr(
            world,
            "settings",
            {**world.settings, "client.quota.callback.class": "io.example.Quotas"},
        ),
        {("problem", "plugin", "QuotasIgnored")},
    ),
    "another window": (
        lambda world: setattr(world, "settings", {**world.settings, "quota.window.num": "4"}),
        {("problem", "window", "QuotaWindowDiffers")},
    ),
    "cordoned brokers": (
        lambda world: world.cordon(),
        {("warning", "brokers", "BrokerCordoned")},
    ),
    "brokers that tell nothing": (
        lambda world: setattr(world, "settings", {}),
        {("warning", "kafka", "NotAuthorized")},
    ),
    "no topic": (
        lambda world: world.leaders.clear(),
        {("warning", "topics", "TopicNotFound")},
    ),
    "no NIC of a broker": (
        _lacks("egress", count=2, brokers=frozenset({1, 2})),
        {("problem", "series", "MetricsMissing")},
    ),
    "a label that is another's": (
        _lacks("egress", unlabelled='node_x{node="1"}', labels=("node",)),
        {("problem", "identity", "MetricsAmbiguous")},
    ),
    "matchers that leave all out": (
        _lacks("egress", elsewhere='node_x{cluster="b"}'),
        {("problem", "series", "MetricsMissing")},
    ),
    "no query for a direction": (
        lambda world: world.found.pop(1),
        {("warning", "series", "MetricsNotWatched")},
    ),
    "no quota yet": (_without_quotas, {("warning", "series", "ClientsNotMetered")}),
    "no exporter": (
        _lacks("fetch_rate"),
        {("problem", "series", "ClientsNotMetered")},
    ),
    "names of another exporter": (
        _lacks("egress", related='kafka_server_bytesout{broker="1"}'),
        {("problem", "series", "MetricsMissing")},
    ),
    "clients without a name": (
        lambda world: setattr(
            world,
            "readings",
            lambda: Readings(
                world.now,
                15.0,
                problems=(ReadingProblem(Reason.CLIENTS_NOT_NAMED, "Broker 1: no name.", 1),),
            ),
        ),
        {("problem", "series", "ClientsNotNamed")},
    ),
    "mutes that outlast requests": (
        _long_mutes,
        {("warning", "policy", "MuteOutlastsRequests")},
    ),
    "Pods beside the brokers": (
        _pods_beside,
        {("problem", "clusters", "MetricsAmbiguous"), ("warning", "clusters", "SourceChanged")},
    ),
    "interfaces that are unclear": (
        lambda world: setattr(
            world,
            "readings",
            lambda: Readings(
                world.now,
                15.0,
                problems=(ReadingProblem(Reason.INTERFACES_UNCLEAR, "Broker 1: a, b.", 1),),
            ),
        ),
        {("problem", "interfaces", "InterfacesUnclear")},
    ),
    "interfaces that mirror each other": (
        lambda world: _counts(world, Interface("eth0", 9e6, 3e6), Interface("eth1", 3e6, 9e6)),
        {("warning", "interfaces", "InterfacesUnclear")},
    ),
    "interfaces with the same bytes": (
        lambda world: _counts(world, Interface("eth0", 9e6, 3e6), Interface("eth1", 9e6, 3e6)),
        {("warning", "interfaces", "InterfacesUnclear")},
    ),
    "no rule for users": (
        _only_client_ids,
        {("warning", "series", "ClientsNotMetered")},
    ),
    "brokers of another cluster": (
        _lacks("egress", count=4, brokers=BROKERS | {7}),
        {("warning", "clusters", "SourceChanged")},
    ),
    "two sources": (
        lambda world: setattr(
            world,
            "readings",
            lambda: Readings(
                world.now,
                15.0,
                problems=(ReadingProblem(Reason.METRICS_AMBIGUOUS, "two of them", 1),),
            ),
        ),
        {("problem", "clusters", "MetricsAmbiguous")},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_fault_has_its_reason_what_follows_and_what_to_do(
    sound: Any, case: str, golden: Callable[[str], None]
) -> None:
    change, expected = CASES[case]
    change(sound)
    assert wrong(sound) == expected
    found = [one for one in findings(sound) if one["state"] in ("problem", "warning")]
    assert all(one["soWhat"] and one["toDo"] for one in found)
    golden("\n".join(f"{one['what']}\n  so: {one['soWhat']}\n  do: {one['toDo']}" for one in found))


def test_reads_from_followers_are_a_warning_where_leaders_still_scale_them(
    sound: Any, golden: Callable[[str], None]
) -> None:
    sound.read_from_followers()
    assert wrong(sound) == set()
    (told,) = [one for one in findings(sound) if one["check"] == "followers"]
    (listed,) = sound.kubernetes.list_all(BROKER_BANDWIDTH_POLICIES)
    ref = ObjectRef.of(BROKER_BANDWIDTH_POLICIES, listed)
    sound.kubernetes.edit(ref, lambda raw: raw["spec"].pop("metrics"))
    (found,) = [one for one in findings(sound) if one["check"] == "followers"]
    assert (found["state"], found["reason"]) == ("warning", "ReadsFromFollowers")
    golden("\n".join((told["what"], found["what"], found["soWhat"], found["toDo"])))


def test_tiered_storage_is_told_and_a_warning_where_kafka_has_no_rate_for_it(
    sound: Any, golden: Callable[[str], None]
) -> None:
    assert not [one for one in findings(sound) if one["check"] == "background"]
    sound.settings = {**sound.settings, TIERED_STORAGE: "true"}
    (old,) = [one for one in findings(sound) if one["check"] == "background"]
    assert (old["state"], old["reason"]) == ("warning", "BackgroundUnsupported")
    rate = BACKGROUND_KEYS[BackgroundKind.REMOTE_COPY]
    sound.settings = {**sound.settings, rate: str(2**63 - 1)}
    assert wrong(sound) == set()
    (told,) = [one for one in findings(sound) if one["check"] == "background"]
    golden("\n".join((told["what"], old["what"], old["soWhat"], old["toDo"])))


PAGE = (
    'node_network_transmit_bytes_total{device="eth0"} 5e12\n'
    'node_network_receive_bytes_total{device="eth0"} 5e12\n'
)


def _reads_directly(world: Any, port: int, instances: Mapping[int, str]) -> None:
    """As if Prometheus had scraped these exporters a moment ago."""
    direct = {"enabled": True, "port": port}
    _edit(world, lambda raw: raw["spec"]["metrics"].update(direct=direct))
    counters = {way: {"eth0": 5e12} for way in (Direction.EGRESS, Direction.INGRESS)}
    exporters = {
        broker: Exporter(instance, time.time() - 5, counters)
        for broker, instance in instances.items()
    }
    world.readings = lambda: Readings(world.now, 15.0, exporters=exporters)


def _of_exporters(world: Any) -> list[dict[str, Any]]:
    return [one for one in findings(world) if one["check"] == "exporters"]


def test_exporters_are_asked_where_a_policy_reads_directly(
    sound: Any, golden: Callable[[str], None]
) -> None:
    assert _of_exporters(sound) == []
    with exporting(lambda _: PAGE) as server:
        port = int(server.address.rpartition(":")[2])
        _reads_directly(sound, port, {1: "127.0.0.1:1", 2: "a b", 3: "127.0.0.1:1"})
        answers, refused = _of_exporters(sound)
        assert (answers["state"], refused["state"]) == ("ok", "warning")
        assert server.scrapes == 2
        _reads_directly(sound, port, {1: "127.0.0.1:1", 3: "127.0.0.1:1"})
        missing = _of_exporters(sound)[1]
    golden("\n".join(f"{one['what']} {one.get('toDo', '')}" for one in (answers, refused, missing)))
    away = _of_exporters(sound)
    assert [one["reason"] for one in away] == ["NotReadDirectly"] * 3
    assert f"the exporter at http://127.0.0.1:{port}/metrics did not answer" in away[0]["what"]


def test_exporters_of_another_machine_or_host_are_found(
    sound: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with exporting(lambda _: PAGE.replace("5e12", "4e12")) as server:
        port = int(server.address.rpartition(":")[2])
        _reads_directly(sound, port, dict.fromkeys(BROKERS, "127.0.0.1:1"))
        assert "may be another machine's" in _of_exporters(sound)[0]["what"]
        monkeypatch.setenv("TIDEGATE_ALLOWED_HOSTS", "prometheus,kafka-1,zk-1,*.example")
        asked = server.scrapes
        assert "127.0.0.1 is not among those" in _of_exporters(sound)[0]["what"]
        assert server.scrapes == asked


def test_a_sum_above_the_capacity_is_a_warning_and_interfaces_are_named(
    sound: Any, golden: Callable[[str], None]
) -> None:
    (listed,) = sound.kubernetes.list_all(BROKER_BANDWIDTH_POLICIES)
    ref = ObjectRef.of(BROKER_BANDWIDTH_POLICIES, listed)
    limits = {"egress": {"limit": "100M", "capacity": "125M"}}
    sound.kubernetes.edit(ref, lambda policy: policy["spec"].update(brokers=limits))
    _counts(sound, Interface("eth0", 1e8, 3e6), Interface("eth1", 3e7, 3e6))
    assert wrong(sound) == {("warning", "interfaces", "InterfacesUnclear")}
    golden("\n".join(one["what"] for one in findings(sound) if one["check"] == "interfaces"))


def test_a_sum_above_a_combined_capacity_is_of_both_directions(sound: Any) -> None:
    (listed,) = sound.kubernetes.list_all(BROKER_BANDWIDTH_POLICIES)
    ref = ObjectRef.of(BROKER_BANDWIDTH_POLICIES, listed)
    limits = {"combined": {"limit": "100M", "capacity": "125M"}}
    sound.kubernetes.edit(ref, lambda policy: policy["spec"].update(brokers=limits))
    _counts(sound, Interface("eth0", 6e7, 3e7), Interface("eth1", 3e7, 1e7))
    assert wrong(sound) == {("warning", "interfaces", "InterfacesUnclear")}
    words = "eth0, eth1 of broker 1 carried 130 MB/s of egress and ingress together, above"
    assert any(words in one["what"] for one in findings(sound))


def test_a_broker_that_refuses_the_login_does_not_hide_the_rest(
    sound: Any, golden: Callable[[str], None]
) -> None:
    refused = "Broker kafka-1:9092 refused the login as x by PLAIN: no."
    error = Unauthorized(refused, advice="Correct it.")

    class Refusing:
        def read(self, patterns: object, **_: object) -> None:
            raise error

        def close(self) -> None:
            """Nothing was opened."""

    sound.topology = Refusing
    assert wrong(sound) == {("problem", "kafka", "NotAuthorized")}
    states = {one["check"]: one["state"] for one in findings(sound)}
    assert (states["zookeeper"], states["prometheus"], states["series"]) == ("ok", "ok", "unknown")
    golden(sound.run("doctor").out)


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda spec: spec.update(suspend=True), ("warning", "policy", "Paused")),
        (lambda spec: spec.pop("metrics"), ("warning", "prometheus", "MetricsNotWatched")),
        (lambda spec: spec.pop("brokers"), ("warning", "limits", "MetricsNotWatched")),
        (
            lambda spec: spec["kafka"].update(clusterId="6n9yBVQpTmqxCpLQXWtDzw"),
            ("problem", "zookeeper", "WrongCluster"),
        ),
    ],
    ids=["suspended", "no metrics", "no limits", "another cluster"],
)
def test_what_the_policy_says_of_itself_is_reported(
    sound: Any, measured: Any, edit: Callable[[Any], object], expected: tuple[str, str, str]
) -> None:
    (listed,) = sound.kubernetes.list_all(BROKER_BANDWIDTH_POLICIES)
    ref = ObjectRef.of(BROKER_BANDWIDTH_POLICIES, listed)
    sound.kubernetes.edit(ref, lambda obj: edit(obj["spec"]))
    assert wrong(sound) == {expected}


def test_observing_is_no_warning(sound: Any) -> None:
    (listed,) = sound.kubernetes.list_all(BROKER_BANDWIDTH_POLICIES)
    ref = ObjectRef.of(BROKER_BANDWIDTH_POLICIES, listed)
    sound.kubernetes.edit(ref, lambda obj: obj["spec"].update(mode="Observe"))
    assert wrong(sound) == set()
    (found,) = [one for one in findings(sound) if one["check"] == "policy"]
    assert (found["state"], "spec.mode is Enforce" in found["what"]) == ("ok", True)


def test_an_operator_that_watches_other_namespaces_is_why_nobody_reports(
    world: Any, measured: Any, tier: Any
) -> None:
    world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, measured)
    world.kubernetes.create(BUSINESS_TIERS, tier)
    other = {**measured, "metadata": {"name": "orders", "namespace": "elsewhere"}}
    made = world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, other)
    ready = {"type": "Ready", "status": "True", "reason": "InSync", "message": "m"}
    world.kubernetes.patch_status(
        ObjectRef.of(BROKER_BANDWIDTH_POLICIES, made),
        {"conditions": [ready]},
        resource_version=made["metadata"]["resourceVersion"],
    )
    answer = json.loads(world.run("doctor", "streaming/orders", "-o", "json").out)
    (found,) = [one for one in answer["findings"] if one["check"] == "operator"]
    assert found["what"] == (
        "Policy streaming/orders exists, and no operator watches its namespace: one reports on "
        "policies in elsewhere."
    )
    assert "--namespace streaming" in found["toDo"]


def test_without_a_report_of_an_operator_there_is_a_warning(
    world: Any, measured: Any, tier: Any
) -> None:
    made = world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, measured)
    world.kubernetes.create(BUSINESS_TIERS, tier)
    world.found = [Found(name, name, 3, BROKERS) for name in NAMES]
    assert wrong(world) == {("warning", "operator", "Starting")}
    report(world, made, status="False", reason="ZooKeeperUnreachable")
    assert wrong(world) == {("warning", "operator", "ZooKeeperUnreachable")}


def strimzi_findings(world: Any) -> list[dict[str, Any]]:
    return [one for one in findings(world) if one["check"] == "strimzi"]


@pytest.mark.parametrize(
    ("user", "state", "reason", "words"),
    [
        (
            kafka_user("alice", quotas={"producerByteRate": 1}),
            "warning",
            "OwnedByStrimzi",
            "KafkaUsers of kafka/orders declare the quotas of alice.",
        ),
        (kafka_user("alice"), "warning", "Contended", "KafkaUser kafka/alice declares no quotas"),
        (kafka_user("alice", login="tls"), "warning", "Contended", "Name CN=alice in the member"),
        (kafka_user("alice", pause_reconciliation="true"), "ok", None, "has 1 KafkaUser; none"),
        (kafka_user("bob"), "warning", "Contended", "alice has no KafkaUser in kafka/orders"),
    ],
)
def test_beside_strimzi_it_says_whose_quotas_the_user_operator_owns_or_removes(
    sound: Any, user: dict[str, Any], state: str, reason: str | None, words: str
) -> None:
    assert strimzi_findings(sound) == []
    _make_it_strimzis(sound)
    sound.kubernetes.create(KAFKA_USERS[0], user)
    found = strimzi_findings(sound)[0]
    assert (found["state"], found.get("reason")) == (state, reason)
    assert words in found["what"]


def test_a_user_without_a_kafka_user_is_named_with_a_client_id_too(sound: Any) -> None:
    _make_it_strimzis(sound)
    sound.kubernetes.create(KAFKA_USERS[0], kafka_user("alice", pause_reconciliation="true"))
    (listed,) = sound.kubernetes.list_all(BUSINESS_TIERS)
    pair = {"name": "b", "user": "bob", "clientId": "x", "contract": {"perBroker": {"fetch": "1M"}}}
    sound.kubernetes.edit(
        ObjectRef.of(BUSINESS_TIERS, listed), lambda raw: raw["spec"]["members"].append(pair)
    )
    (found,) = strimzi_findings(sound)
    assert "bob has no KafkaUser in kafka/orders" in found["what"]
    assert "the Secret of that name" in found["soWhat"]


def test_beside_strimzi_a_quota_of_the_default_user_belongs_into_the_kafka(sound: Any) -> None:
    _make_it_strimzis(sound, defaults={"metering": "Enabled"})
    sound.kubernetes.create(KAFKA_USERS[0], kafka_user("alice", pause_reconciliation="true"))
    (found,) = strimzi_findings(sound)
    assert "Declare it there (type kafka) and take it out of spec.defaults" in found["what"]


def test_for_a_login_that_may_not_list_kafka_users_it_says_what_to_grant(sound: Any) -> None:
    _make_it_strimzis(sound)
    answer = sound.kubernetes.list_all

    def refuse(kind: Any, namespaces: Any = ()) -> Any:
        if kind in KAFKA_USERS:
            raise Unauthorized("Kubernetes refused it.")
        return answer(kind, namespaces)

    sound.kubernetes.list_all = refuse
    (found,) = strimzi_findings(sound)
    assert (found["state"], found["reason"]) == ("warning", "KafkaUsersUnread")
    assert "this login may not list them" in found["what"]
    assert "examples/strimzi/rights.yaml" in found["toDo"]


def _make_it_strimzis(world: Any, **spec: Any) -> None:
    (listed,) = world.kubernetes.list_all(BROKER_BANDWIDTH_POLICIES)

    def edit(raw: dict[str, Any]) -> None:
        raw["spec"]["kafka"]["strimzi"] = {"cluster": "orders", "namespace": "kafka"}
        raw["spec"].update(spec)

    world.kubernetes.edit(ObjectRef.of(BROKER_BANDWIDTH_POLICIES, listed), edit)


def test_without_a_policy_the_cluster_is_not_examined(world: Any) -> None:
    assert wrong(world) == {("problem", "policy", "PolicyNotFound")}
    states = {one["check"]: one["state"] for one in findings(world)}
    assert (states["zookeeper"], states["kafka"], states["prometheus"]) == ("unknown",) * 3


def test_files_need_no_kubernetes(world: Any, policy: Any, tier: Any) -> None:
    world.served = frozenset()
    files = world.write_files(policy, tier)
    assert wrong(world, "-f", files) == {("warning", "prometheus", "MetricsNotWatched")}


def granted(file: str, *, role: str = "") -> set[tuple[str, str, str]]:
    """Group, resource and verb of every rule of an example, or of one role in it."""
    return {
        (group, resource, verb)
        for document in yaml.safe_load_all((ROOT / "examples" / file).read_text())
        if role in ("", document["metadata"]["name"])
        for rule in document.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_rights_are_those_that_the_examples_grant() -> None:
    """Neither more nor less: an operator with the example's rights has no finding. Without those on
    BandwidthBudgets it serves none, and that is all.
    """
    asked = {"reads_namespaces": True, "lease_namespace": "tidegate"}
    needed = needed_rights("streaming", ["login"], **asked)
    granted_all = granted("rights/operator.yaml")
    optional = {right for right in granted_all if right[1].startswith("bandwidthbudgets")}
    assert optional == {
        *(("tidegate.io", "bandwidthbudgets", verb) for verb in ("get", "list", "watch")),
        ("tidegate.io", "bandwidthbudgets/status", "patch"),
    }
    operator = granted_all - optional
    assert {(one.group, one.resource, one.verb) for one in needed} == operator
    assert {one.namespace for one in needed if one.resource == "leases"} == {"tidegate"}
    with_jobs = needed_rights("streaming", ["login"], **asked, makes_jobs=True)
    jobs = granted("rollup/rights.yaml", role="tidegate-rollup-jobs")
    assert {(one.group, one.resource, one.verb) for one in with_jobs} == operator | jobs


def test_your_own_rights_are_not_taken_for_the_operators(sound: Any) -> None:
    sound.user = "admin"
    (hint,) = [one for one in findings(sound) if one["state"] == "unknown"]
    assert hint["check"] == "rights"
    assert "--as system:serviceaccount" in hint["toDo"]


def _budget(name: str, policy: str = "orders", **members: Any) -> dict[str, Any]:
    spec = {"policyRef": {"name": policy}, "total": {"fetch": "1M"}, "members": members}
    return {"metadata": {"name": name, "namespace": "streaming"}, "spec": spec}


def test_a_budget_without_its_policy_or_without_members_is_named(sound: Any) -> None:
    (tier,) = sound.kubernetes.list_all(BUSINESS_TIERS)
    full = _budget("full", tiers=[tier["metadata"]["name"]])
    sound.kubernetes.create(BANDWIDTH_BUDGETS, full)
    assert wrong(sound) == set()
    (fine,) = [one for one in findings(sound) if one["check"] == "budgets"]
    assert fine["state"] == "ok"
    sound.kubernetes.create(BANDWIDTH_BUDGETS, _budget("empty", tiers=["typo"]))
    sound.kubernetes.create(BANDWIDTH_BUDGETS, _budget("lost", "gone", tiers=["x"]))
    assert wrong(sound) == {
        ("warning", "budgets", "NoSuchMember"),
        ("warning", "budgets", "PolicyNotFound"),
    }
    named = " ".join(one["what"] for one in findings(sound) if one["check"] == "budgets")
    assert "streaming/empty" in named
    assert "streaming/lost" in named
    assert "streaming/full" not in named


def test_a_right_to_read_budgets_that_is_missing_is_a_problem_where_the_policy_has_some(
    sound: Any,
) -> None:
    sound.denied.update({"list bandwidthbudgets"})
    assert wrong(sound) == set()  # their CRD is not there
    sound.served |= {"bandwidthbudgets"}
    assert wrong(sound) == {("warning", "budgets", "NotAuthorized")}
    (policy,) = sound.kubernetes.list_all(BROKER_BANDWIDTH_POLICIES)
    ref = ObjectRef.of(BROKER_BANDWIDTH_POLICIES, policy)
    version = policy["metadata"]["resourceVersion"]
    sound.kubernetes.patch_status(ref, {"budgets": 1}, resource_version=version)
    assert ("problem", "budgets", "BudgetsUnread") in wrong(sound)


def test_queues_of_the_policy_are_examined_and_no_others(sound: Any) -> None:
    """What brokers say of them is tested on real ones, in test_doctor_queues.py."""
    assert not [one for one in findings(sound) if one["check"] == "queues"]
    queue = {
        "metadata": {"name": "unpaid", "namespace": "streaming"},
        "spec": {"policyRef": {"name": "orders"}, "guarantee": "Sometimes"},
    }
    other = {"metadata": {"name": "other", "namespace": "streaming"}}
    sound.kubernetes.create(DELAY_QUEUES, queue)
    sound.kubernetes.create(DELAY_QUEUES, {**queue, **other, "spec": {"policyRef": {"name": "x"}}})
    assert wrong(sound) == {("problem", "queues", "InvalidSpec")}
    (one,) = [one for one in findings(sound) if one["check"] == "queues"]
    assert "streaming/unpaid" in one["what"]
