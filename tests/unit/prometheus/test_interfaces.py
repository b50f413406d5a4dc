"""Of a machine's interfaces those with a cable are added up, or none is: never the same bytes
twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import numpy as np
import pytest

from tests.unit.hands import Hands
from tests.unit.prometheus.hosts import HOSTS, UNCLEAR
from tests.unit.prometheus.lying_server import Request, serving
from tidegate.prometheus.interfaces import (
    WITHOUT_CABLE,
    Alike,
    alike,
    rate_of,
    wired_of,
)
from tidegate.prometheus.queries import queries_of
from tidegate.prometheus.reader import PrometheusReader
from tidegate.prometheus.series import Series
from tidegate.prometheus.settings import MetricsSettings, Preset, PrometheusServer, Queries
from tidegate.rollup.fold.broker import DirectionSamples
from tidegate.rollup.ingest import cables_of
from tidegate.rollup.samples import SeriesSamples, selection_of
from tidegate_logic.model import Direction, Interface, Readings
from tidegate_logic.reasons import Reason

SERVER = PrometheusServer("http://prometheus:9090")
NODE, POD = MetricsSettings(SERVER), MetricsSettings(SERVER, Preset.CADVISOR)
MB = 1_000_000.0


def rates(names: Sequence[str], *, all_together: float) -> dict[str, float]:
    """Those that Prometheus is asked for."""
    seen = [one for one in names if not re.fullmatch("|".join(WITHOUT_CABLE), one)]
    return {one: all_together / len(seen) for one in seen}


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("total", [0.0, 5_000.0, 130 * MB])
def test_cables_are_told_from_what_carries_the_same_bytes(host: str, total: float) -> None:
    cables, twins = HOSTS[host]
    found = rates(cables, all_together=total)
    for twin in twins:
        found |= rates([twin], all_together=total)
    assert wired_of(found, NODE).counted == set(cables)


@pytest.mark.parametrize("case", UNCLEAR)
def test_what_may_or_may_not_have_a_cable_makes_the_load_unknown(case: str) -> None:
    names = UNCLEAR[case]
    found = {name: 100 * MB / (10 if name == "eno1" else 1) for name in names}
    wired = wired_of(found, NODE)
    assert (wired.counted, wired.unclear) == (frozenset(), frozenset(names))


@pytest.mark.parametrize("case", UNCLEAR)
def test_names_that_people_give_settle_it(case: str) -> None:
    settings = MetricsSettings(SERVER, interfaces=(UNCLEAR[case][0],))
    matched = selection_of(queries_of(settings).egress or "").matching["device"]
    assert re.fullmatch(matched, UNCLEAR[case][0])
    assert not any(re.fullmatch(matched, name) for name in UNCLEAR[case][1:])
    assert wired_of({UNCLEAR[case][0]: 1.0}, settings).counted == {UNCLEAR[case][0]}


def test_a_star_stands_for_any_signs_and_a_point_for_itself() -> None:
    settings = MetricsSettings(SERVER, interfaces=("eno*", "eth0.100"))
    for query in (queries_of(settings).egress, queries_of(settings).ingress):
        matched = selection_of(query or "").matching["device"]
        for name, wanted in {
            "eno1": True,
            "eno": True,
            "eth0.100": True,
            "eth0x100": False,
        }.items():
            assert bool(re.fullmatch(matched, name)) == wanted


def test_a_trace_beside_a_cable_is_left_out_until_it_is_more() -> None:
    assert wired_of({"ens5": 100 * MB, "foo": 0.9 * MB}, NODE).counted == {"ens5"}
    assert wired_of({"ens5": 100 * MB, "foo": 1.1 * MB}, NODE).unclear == {"ens5", "foo"}


def test_in_a_pod_a_second_interface_of_multus_may_be_a_nic() -> None:
    assert wired_of({"eth0": MB, "net1": MB}, POD).unclear == {"eth0", "net1"}
    assert wired_of({"eth0": MB}, POD).counted == {"eth0"}


def test_the_rate_of_a_counter_needs_two_samples_and_leaves_a_reset_out() -> None:
    assert rate_of(Series({}, ((0.0, 7.0),))) == 0.0
    assert rate_of(Series({}, ((0.0, 100.0), (10.0, 200.0), (20.0, 50.0), (30.0, 250.0)))) == 10.0


def test_the_same_bytes_are_seen_by_their_rates() -> None:
    nic, twin, member = (
        Interface("eth0", 100 * MB, 30 * MB),
        Interface("eth1", 30 * MB, 101 * MB),
        Interface("eth2", 99 * MB, 30 * MB),
    )
    assert alike([nic, twin]) == [Alike("eth0", "eth1", mirrored=True)]
    assert alike([nic, member]) == [Alike("eth0", "eth2", mirrored=False)]
    assert alike([nic, Interface("eth3", 60 * MB, 30 * MB)]) == []
    assert alike([Interface("eth0", 10.0, 10.0), Interface("eth1", 10.0, 10.0)]) == []


# --- readings -------------------------------------------------------------------------------------

NOW = 1000.0
TIMES = (940.0, 955.0, 970.0, 985.0)


def counter(name: str, per_second: float, times: Sequence[float] = TIMES) -> dict[str, object]:
    return {
        "metric": {"broker": "1", "device": name, "instance": "a:9100"},
        "values": [[at, str(per_second * (at - 900))] for at in times],
    }


def read(
    egress: list[dict[str, object]], ingress: list[dict[str, object]], **settings: object
) -> Readings:
    def respond(request: Request) -> None:
        query = request.server.seen[-1].query
        found = egress if "transmit" in query else ingress if "receive" in query else []
        data = {"resultType": "matrix", "result": found}
        request.send(200, json.dumps({"status": "success", "data": data}))

    with serving(respond) as server:
        made = MetricsSettings(PrometheusServer(server.url), **settings)  # type: ignore[arg-type]
        reader = PrometheusReader(made, clock=Hands(NOW))
        try:
            return reader.read((1,))
        finally:
            reader.close()


def mean(readings: Readings, way: Direction) -> float:
    (rate,) = {span.bytes_per_second for span in readings.nic[1, way]}
    return rate


def test_a_reading_adds_up_cables_and_names_them() -> None:
    readings = read(
        [counter("eno1", 50), counter("eno2", 50), counter("lacp0", 100)],
        [counter("eno1", 20), counter("eno2", 10), counter("lacp0", 30)],
    )
    assert (mean(readings, Direction.EGRESS), mean(readings, Direction.INGRESS)) == (100, 30)
    assert readings.interfaces == {
        1: (Interface("eno1", 50.0, 20.0), Interface("eno2", 50.0, 10.0))
    }


def test_a_reading_of_unclear_interfaces_is_unknown_with_their_names_both_ways() -> None:
    readings = read([counter("ens5", MB)], [counter("ens5", MB), counter("foo", MB)])
    assert not readings.nic
    assert not readings.interfaces
    (problem,) = [one for one in readings.problems if one.reason is Reason.INTERFACES_UNCLEAR]
    assert "ens5, foo" in problem.message
    assert problem.broker == 1
    assert Reason.METRICS_MISSING not in {one.reason for one in readings.problems}


@pytest.mark.parametrize("times", [TIMES[2:], TIMES[3:], TIMES[:2]])
@pytest.mark.parametrize("wanted", [(), ("eth*",)])
def test_an_interface_that_comes_or_goes_makes_the_load_unknown_first(
    times: Sequence[float], wanted: tuple[str, ...]
) -> None:
    readings = read(
        [counter("eth0", MB), counter("eth1", MB, times)],
        [counter("eth0", MB), counter("eth1", MB)],
        interfaces=wanted,
    )
    assert not readings.nic
    (problem,) = [one for one in readings.problems if one.reason is Reason.INTERFACES_UNCLEAR]
    assert "eth1" in problem.message
    assert "eth0" not in problem.message


def test_one_that_appears_and_does_not_count_changes_nothing() -> None:
    readings = read(
        [counter("eth0", MB), counter("foo", MB, TIMES[3:])],
        [counter("eth0", MB), counter("foo", 10.0, TIMES[3:])],
    )
    assert mean(readings, Direction.EGRESS) == MB


def test_where_a_query_replaces_the_presets_nothing_is_judged() -> None:
    readings = read(
        [counter("foo", MB), counter("bar", MB)],
        [counter("eth0", MB)],
        queries=Queries(egress="transmit"),
    )
    assert mean(readings, Direction.EGRESS) == 2 * MB
    assert mean(readings, Direction.INGRESS) == MB


# --- usage tables ---------------------------------------------------------------------------------


def history(name: str, per_second: float) -> SeriesSamples:
    times = np.arange(0, 3_600_000, 15_000, dtype=np.int64)
    return SeriesSamples({"broker": "1", "device": name}, times, times / 1000.0 * per_second)


def test_usage_tables_tell_the_same_interfaces_apart() -> None:
    samples = {
        "fetch": DirectionSamples(nics=[history("eno1", MB), history("lacp0", MB)]),
        "produce": DirectionSamples(nics=[history("eno1", MB), history("lacp0", MB)]),
    }
    for nics in cables_of(samples, NODE).values():  # type: ignore[arg-type]
        assert [one.labels["device"] for one in nics] == ["eno1"]
    samples["fetch"] = DirectionSamples(nics=[history("eno1", MB), history("foo", MB)])
    assert list(cables_of(samples, NODE).values()) == [[], []]  # type: ignore[arg-type]
    custom = MetricsSettings(SERVER, Preset.CUSTOM, Queries(egress="a", ingress="b"))
    assert len(cables_of(samples, custom)["fetch"]) == 2  # type: ignore[arg-type]
