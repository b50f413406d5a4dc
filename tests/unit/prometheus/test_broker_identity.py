"""A series is a broker's only if its labels name the broker. A number that is there by chance is not an id."""

from __future__ import annotations

import pytest

from tidegate.prometheus.queries import broker_matcher, broker_of
from tidegate.prometheus.settings import BrokerInstances, BrokerLabel


@pytest.mark.parametrize(("value", "broker"), [("0", 0), ("3", 3), ("1001", 1001), ("2147483647", 2147483647)])
def test_a_label_spells_the_id(value: str, broker: int) -> None:
    assert broker_of(BrokerLabel("broker"))({"broker": value}) == broker


@pytest.mark.parametrize("value", ["", "-1", "1.0", "one", "2147483648", "99999999999", "²", "kafka-3", "ip-10-0-0-1"])
def test_a_label_that_spells_no_id_gives_no_broker(value: str) -> None:
    assert broker_of(BrokerLabel("broker"))({"broker": value}) is None


def test_a_series_without_the_label_has_no_broker() -> None:
    assert broker_of(BrokerLabel("broker"))({"instance": "3"}) is None


@pytest.mark.parametrize("label", ["pod", "kubernetes_pod_name"])
@pytest.mark.parametrize(("pod", "broker"), [("orders-kafka-3", 3), ("my-pool-0", 0), ("orders-brokers-12", 12)])
def test_a_pods_name_ends_in_the_id(label: str, pod: str, broker: int) -> None:
    assert broker_of(BrokerLabel(label))({label: pod}) == broker


@pytest.mark.parametrize("pod", ["orders-entity-operator-6d5c7b-x2x9z", "kafka", "-3", "orders-kafka-03", "orders-kafka-3-0a"])
def test_a_pods_name_that_ends_otherwise_gives_no_broker(pod: str) -> None:
    assert broker_of(BrokerLabel("pod"))({"pod": pod}) is None


def test_an_instance_on_the_list_is_its_broker_and_any_other_is_none() -> None:
    of = broker_of(BrokerInstances({"10.0.0.1:9100": 1, "10.0.0.2:9100": 2}))
    assert [of({"instance": instance}) for instance in ("10.0.0.2:9100", "10.0.0.3:9100")] == [2, None]
    assert of({}) is None


@pytest.mark.parametrize("instance", ["10.0.0.1:7071", "10.0.0.1"])
def test_another_exporter_of_the_same_host_is_the_same_broker(instance: str) -> None:
    assert broker_of(BrokerInstances({"10.0.0.1:9100": 1}))({"instance": instance}) == 1


def test_with_two_brokers_on_a_host_only_the_port_distinguishes_them() -> None:
    of = broker_of(BrokerInstances({"10.0.0.1:7071": 1, "10.0.0.1:7072": 2}))
    assert [of({"instance": f"10.0.0.1:{port}"}) for port in (7071, 7072, 9100)] == [1, 2, None]


def test_addresses_of_ipv6_are_not_cut_at_their_colons() -> None:
    of = broker_of(BrokerInstances({"fd00::1": 1, "[fd00::2]:9100": 2}))
    assert [of({"instance": instance}) for instance in ("fd00::1", "[fd00::2]:7071", "fd00::3")] == [1, 2, None]


def test_matchers_ask_for_series_with_a_broker() -> None:
    assert broker_matcher(BrokerLabel("broker")) == 'broker!=""'
    assert broker_matcher(BrokerLabel("pod")) == 'pod=~".+-[0-9]+"'
    assert broker_matcher(BrokerInstances({"10.0.0.1:9100": 1, "b": 2})) == r'instance=~"10\\.0\\.0\\.1(:[0-9]+)?|b(:[0-9]+)?"'


def test_a_long_list_does_not_make_an_address_that_a_proxy_refuses() -> None:
    assert broker_matcher(BrokerInstances({f"broker-{n}.example.com:9100": n for n in range(500)})) == 'instance!=""'
