"""The plain answer gives the samples it holds, whether they are cut out in bulk, stepped through or
walked through.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.unit.rollup.transport.chunk_writer import (
    bytes_field,
    sample_bytes,
    samples_answer,
    time_series,
    varint_field,
)
from tests.unit.rollup.transport.histories import BASE_MS, Samples, samples
from tidegate.rollup.transport.encoding import Malformed, unpacked
from tidegate.rollup.transport.remote_read import Histograms, read_samples
from tidegate.rollup.transport.series import StoredSeries

A = {"a": "1"}
STEADY = [(BASE_MS + 15_000 * step, 1.5 * step + 1) for step in range(20)]


def read(*series: bytes) -> StoredSeries:
    return read_samples(unpacked(samples_answer(*series)))


def same(found: StoredSeries, expected: Samples) -> bool:
    values = np.array([value for _, value in expected])
    return found.times_ms.tolist() == [at for at, _ in expected] and np.array_equal(
        found.values, values, equal_nan=True
    )


@settings(max_examples=60)
@given(samples(max_size=30), samples(max_size=30))
def test_samples_come_back(one: Samples, other: Samples) -> None:
    found = read(time_series(A, one), time_series({"a": "2"}, other))
    assert [labels["a"] for labels in found.labels] == ["1", "2"]
    assert found.counts.tolist() == [len(one), len(other)]
    assert same(found, one + other)


@pytest.mark.parametrize(
    "history",
    [
        STEADY,
        [(at, 0.0) for at, _ in STEADY],  # as long as steady ones, but half as many bytes each
        [(at, value if index % 3 else 0.0) for index, (at, value) in enumerate(STEADY)],
        [(at % 1000, value) for at, value in STEADY],
        [(-at, value) for at, value in STEADY],
        [],
    ],
    ids=["usual", "zeros", "some zeros", "short times", "before 1970", "none"],
)
def test_every_length_of_sample_is_read(history: Samples) -> None:
    assert same(read(time_series(A, history)), history)


def test_no_series_is_an_answer() -> None:
    assert list(read().labels) == []


def test_unknown_fields_among_samples_are_stepped_over() -> None:
    message = (
        time_series(A, STEADY[:2])
        + varint_field(9, 1)
        + bytes_field(2, sample_bytes(*STEADY[2]) + varint_field(9, 1))
    )
    assert same(read(message), STEADY[:3])


def test_native_histograms_are_a_clear_error() -> None:
    for message in (
        time_series(A, STEADY) + bytes_field(4, b""),
        time_series(A, []) + bytes_field(4, b""),
    ):
        with pytest.raises(Histograms):
            read(message)


def test_what_breaks_off_is_refused() -> None:
    with pytest.raises(Malformed):
        read_samples(bytes_field(1, bytes_field(1, time_series(A, STEADY)))[:-5])
    with pytest.raises(Malformed):
        read(time_series(A, STEADY)[:-5])
