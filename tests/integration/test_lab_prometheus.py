"""The lab's Prometheus scrapes every broker, under a label with its id."""

from __future__ import annotations

import pytest

from lab.kafka import KafkaLab
from lab.process import wait_until
from lab.prometheus import PrometheusLab

pytestmark = pytest.mark.integration


def test_every_broker_is_scraped_under_its_id(prometheus: PrometheusLab) -> None:
    assert {(result["metric"]["broker"], result["value"][1]) for result in prometheus.query("up")} == {("1", "1"), ("2", "1"), ("3", "1")}


def test_leaders_per_broker_are_visible(kafka: KafkaLab, prometheus: PrometheusLab, unique_name: str) -> None:
    before = _leaders_of_broker_2(prometheus)
    kafka.create_topic(unique_name, [[2], [2]])
    wait_until(lambda: _leaders_of_broker_2(prometheus) == before + 2, "two more leaders on broker 2", timeout_seconds=15)


def _leaders_of_broker_2(prometheus: PrometheusLab) -> int:
    return int(prometheus.query('kafka_broker_leader_count{broker="2"}')[0]["value"][1])
