"""A task asks for everything that it needs of its broker at once, and takes nothing of other
brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tidegate.prometheus.settings import MetricsSettings, Preset, PrometheusServer, Queries
from tidegate.rollup.fold.windows import Reading
from tidegate.rollup.ingest import read_broker, read_source
from tidegate.rollup.samples import ReadRequest, Selection, SeriesSamples
from tidegate.rollup.schemas import HOUR_MS

READING = Reading(counters=(0, 100_000), gauges=(20_000, 80_000))
SERVER = PrometheusServer("http://127.0.0.1:9")
COUNTERS = ["nics", "client_bytes", "replication_bytes", "starts"]
ROLES = ["starts", "throttle_times", "rates", "nics", "replication_bytes", "client_bytes"]


@dataclass
class Numbered:
    """Gives for the n-th question a series with the value n of each broker; remembers what was
    asked together.
    """

    together: list[Sequence[ReadRequest]] = field(default_factory=list)
    name: str = "numbered"
    exact: bool = True

    def read(self, selection: Selection, start_ms: int, end_ms: int) -> list[SeriesSamples]:
        return self.read_all([ReadRequest(selection, start_ms, end_ms)])[0]

    def read_all(self, asked: Sequence[ReadRequest]) -> list[list[SeriesSamples]]:
        self.together.append(asked)
        return [
            [
                SeriesSamples({"broker": broker}, np.array([30_000]), np.array([float(number)]))
                for broker in ("1", "2", "12")
            ]
            for number in range(len(asked))
        ]

    def close(self) -> None:
        """Nothing is open."""


def test_both_directions_are_asked_for_together_and_each_answer_comes_to_its_place() -> None:
    transport = Numbered()
    found = read_broker(transport, MetricsSettings(SERVER), 2, READING)
    (asked,) = transport.together
    asked_for = [
        (way, role, *getattr(found[way], role)) for way in ("produce", "fetch") for role in ROLES
    ]
    assert [(one.labels["broker"], one.values.tolist()) for _, _, one in asked_for] == [
        ("2", [float(number)]) for number in range(12)
    ]
    ranges = [READING.counters if role in COUNTERS else READING.gauges for _, role, _ in asked_for]
    assert [(one.start_ms, one.end_ms) for one in asked] == ranges
    spoken = [f"{one.selection}" for one in asked]
    assert [
        "Produce" in spoken[2],
        "receive" in spoken[3],
        "replicationbytesin" in spoken[4],
        "bytesin" in spoken[5],
    ] == [True] * 4
    assert [
        "Fetch" in spoken[8],
        "transmit" in spoken[9],
        "replicationbytesout" in spoken[10],
        "bytesout" in spoken[11],
    ] == [True] * 4


def test_what_a_policy_names_no_series_for_is_not_asked_and_empty() -> None:
    transport = Numbered()
    settings = MetricsSettings(SERVER, preset=Preset.CUSTOM, queries=Queries(fetch_rate="rates"))
    found = read_broker(transport, settings, 2, READING)
    (asked,) = transport.together
    assert len(asked) == 7  # the brokers' own counters and starts, and the rates
    assert [len(getattr(found["fetch"], role)) for role in ROLES] == [1, 0, 1, 0, 1, 1]
    assert [len(getattr(found["produce"], role)) for role in ROLES] == [1, 0, 0, 0, 1, 1]


def test_every_selection_is_narrowed_to_the_matchers_of_the_policy() -> None:
    transport = Numbered()
    read_broker(transport, MetricsSettings(SERVER, matchers={"cluster": 'or"ders'}), 2, READING)
    (asked,) = transport.together
    assert {one.selection.equal["cluster"] for one in asked} == {'or"ders'}


def test_the_source_is_the_brokers_and_their_counters_samples_by_hour() -> None:
    @dataclass
    class TwoHours(Numbered):
        def read(self, selection: Selection, start_ms: int, end_ms: int) -> list[SeriesSamples]:
            times = np.arange(start_ms, end_ms + 1, 900_000)  # the last one is past the end
            return [
                SeriesSamples({"broker": broker}, times, np.zeros(len(times)))
                for broker in ("2", "1", "none")
            ]

    found = read_source(TwoHours(), MetricsSettings(SERVER), HOUR_MS, 3 * HOUR_MS)
    assert found.brokers == (1, 2)
    # 2 brokers, clients' and NIC's counters in 2 directions, 4 samples an hour
    assert found.samples == {HOUR_MS: 32, 2 * HOUR_MS: 32}
