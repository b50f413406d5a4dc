"""Queries: the presets and queries of one's own, selectors that no value can change, and the broker
that a series names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace

import pytest

from tidegate.prometheus.queries import (
    broker_matcher,
    broker_of,
    identity_of,
    is_equal,
    is_not,
    literally,
    matches,
    matches_none,
    narrowed,
    over_last,
    queries_of,
    selector,
)
from tidegate.prometheus.settings import (
    BrokerInstances,
    BrokerLabel,
    MetricsSettings,
    Preset,
    PrometheusServer,
    Queries,
)
from tidegate.rollup.samples import selection_of

# --- presets --------------------------------------------------------------------------------------
# Each preset asks for the metrics of its exporter, leaves out NICs that count bytes twice, and is
# overridden by queries of one's own.


SERVER = PrometheusServer("http://prometheus:9090")


def queries(preset: Preset, **settings: object) -> Queries:
    return queries_of(MetricsSettings(SERVER, preset, **settings))  # type: ignore[arg-type]


def devices_left_out(query: str | None) -> re.Pattern[str]:
    found = re.search(r'(?:device|interface)!~"([^"]*)"', query or "")
    assert found
    return re.compile(found[1])


@pytest.mark.parametrize("preset", [Preset.NODE_EXPORTER, Preset.CADVISOR])
@pytest.mark.parametrize(
    "device",
    [
        "eth0",
        "eth10",
        "ens5",
        "eno1",
        "enp3s0f1",
        "enp0s31f6",
        "ib0",
        "em1",
        "p1p1",
        "enx001122aabbcc",
    ],
)
def test_a_real_nic_is_counted(preset: Preset, device: str) -> None:
    assert not devices_left_out(queries(preset).egress).fullmatch(device)


@pytest.mark.parametrize("preset", [Preset.NODE_EXPORTER, Preset.CADVISOR])
@pytest.mark.parametrize(
    "device",
    [
        *(
            "lo",
            "veth0a1b",
            "docker0",
            "br-0f1e",
            "br0",
            "cni0",
            "flannel.1",
            "cali123",
            "cilium_host",
            "lxc12ab",
            "tunl0",
            "tun0",
            "tap1",
        ),
        *(
            "virbr0",
            "vxlan.calico",
            "genev_sys_6081",
            "kube-ipvs0",
            "nodelocaldns",
            "dummy0",
            "ifb0",
            "wg0",
            "bond0.100",
        ),
        *(
            "eth0.100",
            "eth0@if5",
            "vlan7",
            "ip6tnl0",
            "sit0",
            "gre0",
            "erspan0",
            "ovs-system",
            "macvlan1",
        ),
    ],
)
def test_a_device_whose_bytes_another_nic_counts_is_left_out(preset: Preset, device: str) -> None:
    assert devices_left_out(queries(preset).ingress).fullmatch(device)


@pytest.mark.parametrize("preset", [Preset.NODE_EXPORTER, Preset.CADVISOR, Preset.JMX_EXPORTER])
def test_a_preset_asks_for_nics_rates_and_throttle_times_in_both_directions(preset: Preset) -> None:
    found = queries(preset)
    texts = [getattr(found, field.name) for field in fields(Queries)]
    assert all(texts)
    assert len(set(texts)) == 6


@pytest.mark.parametrize("preset", [Preset.NODE_EXPORTER, Preset.CADVISOR, Preset.JMX_EXPORTER])
@pytest.mark.parametrize(
    "brokers", [BrokerLabel("kafka_id"), BrokerInstances({"10.0.0.1:9100": 1})]
)
def test_every_query_of_a_preset_asks_for_series_of_brokers_only(
    preset: Preset, brokers: BrokerLabel | BrokerInstances
) -> None:
    found = queries(preset, brokers=brokers)
    matcher = 'kafka_id!=""' if isinstance(brokers, BrokerLabel) else 'instance=~"'
    assert all(matcher in getattr(found, field.name) for field in fields(Queries))


def test_the_jmx_exporters_counters_are_those_of_all_topics_together() -> None:
    assert 'topic=""' in (queries(Preset.JMX_EXPORTER).egress or "")


def test_custom_asks_what_is_declared_and_nothing_else() -> None:
    assert queries(Preset.CUSTOM, queries=Queries(egress="sent")) == Queries(egress="sent")


@pytest.mark.parametrize("name", [field.name for field in fields(Queries)])
def test_a_declared_query_replaces_the_presets_and_leaves_the_others(name: str) -> None:
    declared = queries(Preset.NODE_EXPORTER, queries=Queries(**{name: "mine"}))
    assert declared == replace(queries(Preset.NODE_EXPORTER), **{name: "mine"})


@pytest.mark.parametrize("preset", [Preset.NODE_EXPORTER, Preset.CADVISOR, Preset.JMX_EXPORTER])
def test_matchers_narrow_every_query_of_a_preset_and_every_declared_one(preset: Preset) -> None:
    narrow = {"region": "eu", "cluster": 'or"ders\\'}
    wanted = r',cluster="or\"ders\\",region="eu"}'
    for declared in (Queries(), Queries(egress="sent", fetch_rate='rates{job="a"}')):
        found, plain = (
            queries(preset, queries=declared, matchers=narrow),
            queries(preset, queries=declared),
        )
        for field in fields(Queries):
            query, before = getattr(found, field.name), getattr(plain, field.name)
            assert query == (
                before.removesuffix("}") + wanted
                if before.endswith("}")
                else before + "{" + wanted[1:]
            )


def test_matchers_narrow_the_queries_of_preset_custom() -> None:
    found = queries(
        Preset.CUSTOM,
        queries=Queries(egress="sent", ingress="{__name__=`in{}`, }"),
        matchers={"cluster": "a"},
    )
    assert found == Queries(egress='sent{cluster="a"}', ingress='{__name__=`in{}`,cluster="a"}')


@pytest.mark.parametrize(
    ("query", "narrow"),
    [
        ("sent", 'sent{a="1"}'),
        (" sent ", 'sent{a="1"}'),
        ("sent{}", 'sent{a="1"}'),
        ("sent{ }", 'sent{a="1"}'),
        ('sent{b="}"}', 'sent{b="}",a="1"}'),
        ('{b="x",}', '{b="x",a="1"}'),
    ],
)
def test_a_matcher_is_put_into_any_plain_selector(query: str, narrow: str) -> None:
    assert narrowed(query, ['a="1"']) == narrow
    assert narrowed(query, []) == query


def test_series_name_their_broker_by_a_label_and_cadvisors_by_the_pod() -> None:
    assert identity_of(MetricsSettings(SERVER)) == BrokerLabel("broker")
    assert identity_of(MetricsSettings(SERVER, Preset.CADVISOR)) == BrokerLabel("pod")
    assert identity_of(
        MetricsSettings(SERVER, Preset.CADVISOR, brokers=BrokerLabel("id"))
    ) == BrokerLabel("id")


def series_match(query: str | None, labels: Mapping[str, str]) -> bool:
    """Whether Prometheus would find a series with these labels."""
    found = selection_of(query or "")
    assert not found.metric
    return (
        all(labels.get(name, "") == value for name, value in found.equal.items())
        and all(re.fullmatch(one, labels.get(name, "")) for name, one in found.matching.items())
        and not any(
            re.fullmatch(one, labels.get(name, "")) for name, one in found.excluding.items()
        )
    )


# the first counts clients, the second replicas; as real exporters show them
BROKER_BYTES = [
    ("kafka_broker_bytesout_total", "kafka_broker_replicationbytesout_total", {}),
    (
        "kafka_server_brokertopicmetrics_bytesout_total",
        "kafka_server_brokertopicmetrics_replicationbytesout_total",
        {},
    ),
    (
        "kafka_server_BrokerTopicMetrics_BytesOut_total",
        "kafka_server_BrokerTopicMetrics_ReplicationBytesOut_total",
        {},
    ),
    (
        "kafka_server_brokertopicmetrics_bytesoutpersec_total",
        "kafka_server_brokertopicmetrics_replicationbytesoutpersec_total",
        {},
    ),
    *(
        (metric, metric, {"name": "BytesOutPerSec"})
        for metric in (
            "kafka_server_brokertopicmetrics_count",
            "kafka_server_BrokerTopicMetrics_Count",
            "kafka_server_BrokerTopicMetrics_count",
        )
    ),
]


@pytest.mark.parametrize(("clients", "replicas", "more"), BROKER_BYTES)
def test_the_brokers_own_bytes_are_found_by_the_names_of_each_exporter(
    clients: str, replicas: str, more: Mapping[str, str]
) -> None:
    found = queries(Preset.JMX_EXPORTER)
    moved = {"name": f"Replication{more['name']}"} if more else {}
    for metric, labels in ((clients, more), (replicas, moved)):
        series = {"__name__": metric, "broker": "1", **labels}
        assert series_match(found.egress, series)
        assert not series_match(found.egress, {**series, "topic": "orders"})
        assert not series_match(found.ingress, series)
        into = {
            name: value.replace("out", "in").replace("Out", "In") for name, value in series.items()
        }
        assert series_match(found.ingress, into)
        if not more:  # a label that people give to their targets
            assert series_match(found.egress, {**series, "name": "broker-1"})


@pytest.mark.parametrize(
    "other",
    ["BytesInPerSec", "MessagesInPerSec", "ReassignmentBytesOutPerSec", "BytesRejectedPerSec"],
)
def test_other_meters_of_an_exporter_without_rules_are_not_bytes_of_the_nic(other: str) -> None:
    series = {"__name__": "kafka_server_brokertopicmetrics_count", "broker": "1", "name": other}
    assert not series_match(queries(Preset.JMX_EXPORTER).egress, series)


@pytest.mark.parametrize(
    ("labels", "ways"),
    [
        ({"__name__": "kafka_quota_{}", "resource": "Fetch"}, "fetch"),
        ({"__name__": "kafka_server_quota_{}", "resource": "Produce"}, "produce"),
        ({"__name__": "kafka_server_quota_{}", "resource": "Produce, user=bob"}, "produce"),
        ({"__name__": "kafka_server_fetch_{}"}, "fetch"),
        ({"__name__": "kafka_server_Produce_{}"}, "produce"),
        # of these a reading says that they name no client
        ({"__name__": "kafka_server_quota_{}", "resource": "produce"}, "fetch produce"),
        ({"__name__": "kafka_server_quota_{}"}, "fetch produce"),
        ({"__name__": "kafka_quota_{}", "resource": "Request, user=bob"}, ""),
        ({"__name__": "kafka_quota_{}", "resource": "ControllerMutation"}, ""),
        ({"__name__": "kafka_server_quota_{}", "resource": "LeaderReplication"}, ""),
        ({"__name__": "kafka_server_request_{}"}, ""),
    ],
)
def test_clients_are_found_by_the_names_of_each_exporter(labels: dict[str, str], ways: str) -> None:
    found = queries(Preset.CADVISOR, brokers=BrokerLabel("broker"))
    for metric, fetch, produce in (
        ("byte_rate", found.fetch_rate, found.produce_rate),
        ("throttle_time", found.fetch_throttle, found.produce_throttle),
    ):
        series = {**labels, "__name__": labels["__name__"].format(metric), "broker": "1"}
        assert series_match(fetch, series) is ("fetch" in ways)
        assert series_match(produce, series) is ("produce" in ways)


@pytest.mark.parametrize(
    "metric",
    ["kafka_server_produce_user_bob_client_id_app_1_byte_rate", "kafka_server_Produce_a_byte_rate"],
)
def test_only_a_reading_asks_for_series_whose_client_went_into_the_metrics_name(
    metric: str,
) -> None:
    settings = MetricsSettings(SERVER, Preset.JMX_EXPORTER)
    series = {"__name__": metric, "broker": "1"}
    # a function such as avg_over_time would take the names away, and leave the same series twice
    assert not series_match(queries_of(settings).produce_rate, series)
    assert series_match(queries_of(settings, unnamed=True).produce_rate, series)
    assert not series_match(queries_of(settings, unnamed=True).fetch_rate, series)


def test_zookeepers_pods_are_not_taken_for_brokers() -> None:
    found = re.search(r'pod!~"([^"]*)"', queries(Preset.CADVISOR).egress or "")
    assert found
    for other in ("orders-zookeeper-0", "sink-connect-1", "mm-mirrormaker2-12"):
        assert re.fullmatch(found[1], other)
    for broker in ("orders-kafka-0", "orders-pool-a-3", "connect-kafka-1"):
        assert not re.fullmatch(found[1], broker)


def test_a_pattern_of_the_brokers_pods_narrows_every_query_and_own_ones_too() -> None:
    identity = BrokerLabel("pod", "orders-(kafka|pool)-.*")
    found = queries(
        Preset.CADVISOR,
        brokers=identity,
        queries=Queries(egress="container_network_x"),
        matchers={"namespace": "kafka"},
    )
    for query in (getattr(found, field.name) for field in fields(Queries)):
        assert query.endswith(',namespace="kafka",pod=~"orders-(kafka|pool)-.*"}') or query == (
            'container_network_x{namespace="kafka",pod=~"orders-(kafka|pool)-.*"}'
        )


def test_secrets_never_show() -> None:
    server = PrometheusServer("http://me:hidden@prometheus:9090")
    assert "hidden" not in repr(MetricsSettings(server))


@pytest.mark.parametrize(
    ("preset", "label"),
    [(Preset.NODE_EXPORTER, "broker"), (Preset.JMX_EXPORTER, "broker"), (Preset.CADVISOR, "pod")],
)
def test_where_nothing_is_declared_brokers_are_distinguished_by_the_presets_own_label(
    preset: Preset, label: str
) -> None:
    assert identity_of(MetricsSettings(SERVER, preset)) == BrokerLabel(label)


# --- selectors ------------------------------------------------------------------------------------
# No value can change what a selector asks.


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", "plain"),
        ('a"b', r"a\"b"),
        ("a\\b", r"a\\b"),
        ("a\nb", r"a\nb"),
        ('"} or up{a="', r"\"} or up{a=\""),
    ],
)
def test_a_value_is_escaped(value: str, written: str) -> None:
    assert is_equal("user", value) == f'user="{written}"'


def test_an_expression_is_escaped_for_the_text_it_stands_in() -> None:
    assert matches("device", r"eth\d", "a") == r'device=~"eth\\d|a"'
    assert matches_none("device", ["lo", r"a\.b"]) == r'device!~"lo|a\\.b"'


@pytest.mark.parametrize("text", ["10.0.0.1:9100", "a|b", "(x)*", "[::1]", "a-b c", "^$", "\\"])
def test_a_literal_matches_itself_and_nothing_else(text: str) -> None:
    assert re.fullmatch(literally(text), text)
    assert not re.fullmatch(literally(text), text + "x")
    assert not re.fullmatch(literally("10.0.0.1"), "10a0b0c1")


def test_a_literal_escapes_nothing_that_re2_refuses_escaped() -> None:
    assert literally("a-b c_1:2/3") == "a-b c_1:2/3"


def test_matchers_that_say_nothing_are_left_out() -> None:
    assert (
        selector(is_equal("__name__", "up"), "", is_not("broker", ""))
        == '{__name__="up",broker!=""}'
    )


def test_a_range_is_whole_seconds_and_never_shorter() -> None:
    assert over_last(" sent{a='b'}\n", 60.2) == "sent{a='b'}[61s]"


# --- brokers --------------------------------------------------------------------------------------
# A series is a broker's only if its labels name the broker. A number that is there by chance is not
# an id.


@pytest.mark.parametrize(
    ("value", "broker"), [("0", 0), ("3", 3), ("1001", 1001), ("2147483647", 2147483647)]
)
def test_a_label_spells_the_id(value: str, broker: int) -> None:
    assert broker_of(BrokerLabel("broker"))({"broker": value}) == broker


@pytest.mark.parametrize(
    "value", ["", "-1", "1.0", "one", "2147483648", "99999999999", "²", "kafka-3", "ip-10-0-0-1"]
)
def test_a_label_that_spells_no_id_gives_no_broker(value: str) -> None:
    assert broker_of(BrokerLabel("broker"))({"broker": value}) is None


def test_a_series_without_the_label_has_no_broker() -> None:
    assert broker_of(BrokerLabel("broker"))({"instance": "3"}) is None


@pytest.mark.parametrize("label", ["pod", "kubernetes_pod_name"])
@pytest.mark.parametrize(
    ("pod", "broker"), [("orders-kafka-3", 3), ("my-pool-0", 0), ("orders-brokers-12", 12)]
)
def test_a_pods_name_ends_in_the_id(label: str, pod: str, broker: int) -> None:
    assert broker_of(BrokerLabel(label))({label: pod}) == broker


@pytest.mark.parametrize(
    "pod",
    ["orders-entity-operator-6d5c7b-x2x9z", "kafka", "-3", "orders-kafka-03", "orders-kafka-3-0a"],
)
def test_a_pods_name_that_ends_otherwise_gives_no_broker(pod: str) -> None:
    assert broker_of(BrokerLabel("pod"))({"pod": pod}) is None


def test_an_instance_on_the_list_is_its_broker_and_any_other_is_none() -> None:
    of = broker_of(BrokerInstances({"10.0.0.1:9100": 1, "10.0.0.2:9100": 2}))
    assert [of({"instance": instance}) for instance in ("10.0.0.2:9100", "10.0.0.3:9100")] == [
        2,
        None,
    ]
    assert of({}) is None


@pytest.mark.parametrize("instance", ["10.0.0.1:7071", "10.0.0.1"])
def test_another_exporter_of_the_same_host_is_the_same_broker(instance: str) -> None:
    assert broker_of(BrokerInstances({"10.0.0.1:9100": 1}))({"instance": instance}) == 1


def test_with_two_brokers_on_a_host_only_the_port_distinguishes_them() -> None:
    of = broker_of(BrokerInstances({"10.0.0.1:7071": 1, "10.0.0.1:7072": 2}))
    assert [of({"instance": f"10.0.0.1:{port}"}) for port in (7071, 7072, 9100)] == [1, 2, None]


def test_addresses_of_ipv6_are_not_cut_at_their_colons() -> None:
    of = broker_of(BrokerInstances({"fd00::1": 1, "[fd00::2]:9100": 2}))
    assert [
        of({"instance": instance}) for instance in ("fd00::1", "[fd00::2]:7071", "fd00::3")
    ] == [1, 2, None]


def test_matchers_ask_for_series_with_a_broker() -> None:
    assert broker_matcher(BrokerLabel("broker")) == 'broker!=""'
    assert broker_matcher(BrokerLabel("pod")) == 'pod=~".+-[0-9]+"'
    assert (
        broker_matcher(BrokerInstances({"10.0.0.1:9100": 1, "b": 2}))
        == r'instance=~"10\\.0\\.0\\.1(:[0-9]+)?|b(:[0-9]+)?"'
    )


def test_a_long_list_of_instances_asks_for_these_and_no_others() -> None:
    matcher = broker_matcher(
        BrokerInstances({f"broker-{n}.example.com:9100": n for n in range(500)})
    )
    assert matcher.count("(:[0-9]+)?") == 500
    assert r"broker-499\\.example\\.com(:[0-9]+)?" in matcher
