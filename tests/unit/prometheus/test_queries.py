"""Each preset asks for the metrics of its exporter, leaves out NICs that count bytes twice, and gives way to queries of one's own."""

from __future__ import annotations

import re
from dataclasses import fields, replace

import pytest

from tidegate.prometheus.queries import identity_of, narrowed, queries_of
from tidegate.prometheus.settings import BrokerInstances, BrokerLabel, MetricsSettings, Preset, PrometheusServer, Queries

SERVER = PrometheusServer("http://prometheus:9090")


def queries(preset: Preset, **settings: object) -> Queries:
    return queries_of(MetricsSettings(SERVER, preset, **settings))  # type: ignore[arg-type]


def devices_left_out(query: str | None) -> re.Pattern[str]:
    found = re.search(r'(?:device|interface)!~"([^"]*)"', query or "")
    assert found
    return re.compile(found[1])


@pytest.mark.parametrize("preset", [Preset.NODE_EXPORTER, Preset.CADVISOR])
@pytest.mark.parametrize("device", ["eth0", "eth10", "ens5", "eno1", "enp3s0f1", "enp0s31f6", "ib0", "em1", "p1p1", "enx001122aabbcc"])
def test_a_real_nic_is_counted(preset: Preset, device: str) -> None:
    assert not devices_left_out(queries(preset).egress).fullmatch(device)


@pytest.mark.parametrize("preset", [Preset.NODE_EXPORTER, Preset.CADVISOR])
@pytest.mark.parametrize(
    "device",
    [
        *("lo", "veth0a1b", "docker0", "br-0f1e", "br0", "cni0", "flannel.1", "cali123", "cilium_host", "lxc12ab", "tunl0", "tun0", "tap1"),
        *("virbr0", "vxlan.calico", "genev_sys_6081", "kube-ipvs0", "nodelocaldns", "dummy0", "ifb0", "wg0", "bond0", "bond0.100", "team0"),
        *("eth0.100", "eth0@if5", "vlan7", "ip6tnl0", "sit0", "gre0", "erspan0", "enP3p0s2", "ovs-system", "macvlan1"),
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
@pytest.mark.parametrize("brokers", [BrokerLabel("kafka_id"), BrokerInstances({"10.0.0.1:9100": 1})])
def test_every_query_of_a_preset_asks_for_series_of_brokers_only(preset: Preset, brokers: BrokerLabel | BrokerInstances) -> None:
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
        found, plain = queries(preset, queries=declared, matchers=narrow), queries(preset, queries=declared)
        for field in fields(Queries):
            query, before = getattr(found, field.name), getattr(plain, field.name)
            assert query == (before.removesuffix("}") + wanted if before.endswith("}") else before + "{" + wanted[1:])


def test_matchers_narrow_the_queries_of_preset_custom() -> None:
    found = queries(Preset.CUSTOM, queries=Queries(egress="sent", ingress="{__name__=`in{}`, }"), matchers={"cluster": "a"})
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
    assert identity_of(MetricsSettings(SERVER, Preset.CADVISOR, brokers=BrokerLabel("id"))) == BrokerLabel("id")


def test_zookeepers_pods_are_not_taken_for_brokers() -> None:
    found = re.search(r'pod!~"([^"]*)"', queries(Preset.CADVISOR).egress or "")
    assert found
    assert re.fullmatch(found[1], "orders-zookeeper-0")
    assert not re.fullmatch(found[1], "orders-kafka-0")


def test_secrets_never_show() -> None:
    server = PrometheusServer("http://me:hidden@prometheus:9090")
    assert "hidden" not in repr(MetricsSettings(server))


@pytest.mark.parametrize(("preset", "label"), [(Preset.NODE_EXPORTER, "broker"), (Preset.JMX_EXPORTER, "broker"), (Preset.CADVISOR, "pod")])
def test_where_nothing_is_declared_brokers_are_distinguished_by_the_presets_own_label(preset: Preset, label: str) -> None:
    assert identity_of(MetricsSettings(SERVER, preset)) == BrokerLabel(label)
