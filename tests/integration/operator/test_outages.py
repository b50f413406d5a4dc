"""One episode through everything that can fail in it: no failure moves a quota, none is forgotten,
and throttling still reaches its end.

The episode is played once, with a quota window of 2 x 1 s so that steps follow every six seconds,
and written down; each test reads one rule off it.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from kubernetes.client import ApiClient, CoreV1Api

from lab.errors import LabError
from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.process import wait_until
from tests.goldens.golden import numbers
from tests.integration.operator.throttling import CONTRACT, HIGH, LOW, MB, THROTTLED, Stage, set_up
from tidegate_logic.model import Level

pytestmark = [pytest.mark.integration, pytest.mark.throttling]

SPELL_SECONDS = 8  # longer than from one step to the next
Quotas = dict[Level, int | None]


@dataclass
class Spell:
    """One failure: the quotas when it began and when it ended, and every value of L3 while it
    lasted.
    """

    before: Quotas
    after: Quotas
    l3: list[int | None]
    conditions: dict[str, dict[str, str]] = field(default_factory=dict)


@dataclass
class Episode:
    """What was seen of the whole."""

    spells: dict[str, Spell] = field(default_factory=dict)
    l3: list[int | None] = field(default_factory=list)
    ends: dict[str, Quotas] = field(default_factory=dict)
    throttled_status: dict[str, Any] = field(default_factory=dict)
    strangers_status: dict[str, Any] = field(default_factory=dict)
    events: str = ""


@pytest.fixture(scope="module")
def stage(
    crds: KubeApi, api_client: ApiClient, kafka: KafkaLab, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    with set_up(crds, api_client, kafka, tmp_path_factory.mktemp("outages")) as stage:
        yield stage


@contextmanager
def spell(stage: Stage, episode: Episode, name: str) -> Iterator[None]:
    since, before = time.time(), stage.load.quotas()
    yield
    episode.spells[name] = Spell(
        before, stage.load.quotas(), stage.load.values(Level.L3, since=since), stage.conditions()
    )


@pytest.fixture(scope="module")
def episode(stage: Stage) -> Episode:
    """Everything goes wrong on the way down, one thing after the other; then the limit is
    raised.
    """
    episode, load = Episode(), stage.load
    stage.start_operator("first")
    for level in Level:
        stage.comes(level, CONTRACT)
    stage.has_condition("MetricsFresh", "True")
    began = time.time()
    stage.limit(LOW)
    stage.moves(Level.L3)

    with spell(stage, episode, "operator killed"):
        assert stage.operator is not None
        stage.operator.kill()
        stage.delete_lease()
        stage.for_seconds(SPELL_SECONDS)
    # its first pass may lower again: after so long the next step is due
    stage.start_operator("second")
    stage.operator.wait_for_a_pass()
    stage.moves(Level.L3)
    os.kill(stage.prometheus.process.pid, signal.SIGSTOP)
    stage.has_condition("MetricsFresh", "False")
    with spell(stage, episode, "prometheus away"):
        stage.for_seconds(SPELL_SECONDS)
    os.kill(stage.prometheus.process.pid, signal.SIGCONT)
    load.other = 40 * MB  # so that every tier has to give all it can
    stage.moves(Level.L3)
    os.kill(stage.zookeeper.process.pid, signal.SIGSTOP)
    stage.has_condition("ClusterReachable", "False")
    with spell(stage, episode, "zookeeper away"):
        stage.for_seconds(1)
    os.kill(stage.zookeeper.process.pid, signal.SIGCONT)
    for level, rate in THROTTLED.items():
        stage.comes(level, rate)
    try:
        wait_until(
            lambda: _is_exhausted_on_readings(stage, episode),
            "the status to report that it is not enough",
            timeout_seconds=150,
            # the exporters are threads of this process, and late pages are unknown loads
            poll_seconds=0.5,
        )
    except LabError as error:
        raise LabError(f"{error} The status was {json.dumps(episode.throttled_status)}") from None

    with spell(stage, episode, "stale"):
        load.silent |= {1, 2, 3}
        load.wanted, load.other = float(MB), 0.0  # the load is gone, but no one can see it
        stage.has_condition("MetricsFresh", "False")
        stage.for_seconds(SPELL_SECONDS)
    with spell(stage, episode, "partial"):
        load.without_nic.add(2)
        load.silent.clear()
        stage.for_seconds(SPELL_SECONDS)
    with spell(stage, episode, "frozen"):
        load.wanted, load.other = 25.0 * MB, 40.0 * MB
        load.frozen.add(2)
        load.without_nic.clear()
        stage.for_seconds(SPELL_SECONDS)
        load.frozen.clear()
        stage.has_condition("MetricsFresh", "True")
    with spell(stage, episode, "another cluster's exporter"):
        load.asleep.add(2)
        load.strangers.add(2)  # within every limit, so that who believes it gives quotas back
        stage.has_condition("MetricsFresh", "False")
        stage.for_seconds(2 * SPELL_SECONDS)
        episode.strangers_status = stage.status()
    load.strangers.clear()
    load.asleep.clear()
    # once what the stranger said is older than what is read of NICs
    stage.has_condition("MetricsFresh", "True", timeout_seconds=150)
    with spell(stage, episode, "hot broker killed"):
        stage.kafka.broker(2).kill()
        load.silent.add(2)
        load.leader = 1
        stage.kafka.wait_for_leaders(stage.namespace, {0: 1})
        stage.for_seconds(SPELL_SECONDS)
    episode.l3 = stage.load.values(Level.L3, since=began)
    stage.kafka.broker(2).start()
    load.silent.clear()

    load.other = 0.0
    stage.limit(HIGH)
    for level in Level:
        stage.comes(level, CONTRACT)
    episode.ends["limit raised"] = stage.load.quotas()
    stage.limit(LOW)
    stage.moves(Level.L3)
    stage.limit(HIGH)
    stage.comes(Level.L3, CONTRACT)
    episode.ends["limit edited mid-step"] = stage.load.quotas()
    stage.limit(LOW)
    stage.moves(Level.L3)
    stage.delete_tier(Level.L3)
    stage.comes(Level.L3, None)
    stage.for_seconds(SPELL_SECONDS)
    episode.ends["tier deleted mid-step"] = stage.load.quotas()
    events = CoreV1Api(stage.api_client).list_namespaced_event(stage.namespace).items
    episode.events = "\n".join(f"{event.reason} {event.message}" for event in events)
    print(
        [
            (round(write.at_seconds - began, 1), write.user, write.after)
            for write in stage.load.watch.writes()
        ]
    )
    return episode


@pytest.mark.parametrize(
    "name",
    [
        *("operator killed", "prometheus away", "zookeeper away", "stale", "partial", "frozen"),
        "another cluster's exporter",
    ],
)
def test_what_is_not_known_moves_no_quota(episode: Episode, name: str) -> None:
    assert episode.spells[name].after == episode.spells[name].before


def test_the_exporter_of_another_clusters_broker_is_reported_and_not_believed(
    episode: Episode,
) -> None:
    fresh = episode.spells["another cluster's exporter"].conditions["MetricsFresh"]
    assert (fresh["status"], fresh["reason"]) == ("False", "SourceChanged")
    assert "'other-cluster'" in fresh["message"]
    status = episode.strangers_status
    pressures = {broker["id"]: broker["pressure"] for broker in status["brokers"]}
    assert (pressures[2], status["summary"]["overShown"]) == ("Unknown", "?")
    ready, throttling = (
        next(entry["message"] for entry in status["conditions"] if entry["type"] == kind)
        for kind in ("Ready", "Throttling")
    )
    assert "the load of broker 2 is not known" in ready
    assert " as of " in throttling


def test_l3_only_ever_goes_down_until_it_is_where_it_ends(episode: Episode) -> None:
    values = [value for value in episode.l3 if value is not None]
    assert values == sorted(values, reverse=True)
    assert values[-1] == THROTTLED[Level.L3]


def test_no_step_of_l3_is_deeper_than_its_mute_allows(episode: Episode) -> None:
    steps = [value for value in episode.l3 if value is not None][
        1:
    ]  # the first one is sized by what it sends, not by its contract
    assert len(steps) > 3
    assert all(2 * later >= earlier - 1 for earlier, later in pairwise(steps))


def test_l0_is_never_touched(episode: Episode) -> None:
    in_force = [
        quotas[Level.L0]
        for spell in episode.spells.values()
        for quotas in (spell.before, spell.after)
    ]
    in_force += [quotas[Level.L0] for quotas in episode.ends.values()]
    assert set(in_force) == {CONTRACT}


def test_each_outage_is_reported(episode: Episode) -> None:
    assert (
        episode.spells["prometheus away"].conditions["MetricsFresh"]["reason"]
        == "PrometheusUnreachable"
    )
    assert (
        episode.spells["zookeeper away"].conditions["ClusterReachable"]["reason"]
        == "ZooKeeperUnreachable"
    )
    assert episode.spells["stale"].conditions["MetricsFresh"]["status"] == "False"
    assert episode.spells["partial"].conditions["MetricsFresh"]["status"] == "False"


def test_the_throttle_outlives_the_broker_that_caused_it(episode: Episode) -> None:
    spell = episode.spells["hot broker killed"]
    assert {level: spell.after[level] for level in THROTTLED} == THROTTLED


def _is_exhausted_on_readings(stage: Stage, episode: Episode) -> bool:
    """Keep the status that says so; on a busy machine a scrape may be late, and the load unknown."""
    episode.throttled_status = status = stage.status()
    levels = {entry["level"]: entry for entry in status.get("levels") or ()}
    reasons = {one["type"]: one["reason"] for one in status.get("conditions") or ()}
    is_known = "unknown" not in levels.get("L3", {}).get("because", "unknown")
    return reasons.get("Throttling") == "QuotaExhausted" and is_known


def test_status_has_each_levels_state_and_the_broker_that_caused_it(episode: Episode) -> None:
    tiers = {entry["level"]: entry for entry in episode.throttled_status["levels"]}
    assert {entry["state"] for level, entry in tiers.items() if level != "L0"} == {"Throttled"}
    assert tiers["L0"]["state"] == "Contract"
    assert "egress" in tiers["L3"]["because"]
    assert 2 in numbers(tiers["L3"]["because"])
    throttling = next(
        entry for entry in episode.throttled_status["conditions"] if entry["type"] == "Throttling"
    )
    assert (throttling["status"], throttling["reason"]) == ("True", "QuotaExhausted")


@pytest.mark.parametrize("name", ["limit raised", "limit edited mid-step"])
def test_a_raised_limit_gives_back_exactly_the_contracts(episode: Episode, name: str) -> None:
    assert set(episode.ends[name].values()) == {CONTRACT}


def test_a_deleted_tier_is_given_back_and_the_others_go_on(episode: Episode) -> None:
    ends = episode.ends["tier deleted mid-step"]
    assert ends[Level.L3] is None
    assert ends[Level.L2] is not None
    assert ends[Level.L2] < CONTRACT


def test_every_turn_is_an_event(episode: Episode) -> None:
    for text in (
        "Throttled L3 is throttled",
        "L2 is throttled: broker 2 egress ",
        "L3 is back at its contracted rates",
        "BrokerOverLimit ",
    ):
        assert text in episode.events
