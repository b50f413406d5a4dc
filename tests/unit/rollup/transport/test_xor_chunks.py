"""Chunks decode to the samples that Prometheus' appender put in, bit by bit; damaged ones are
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.rollup.transport.chunk_writer import xor_chunk
from tests.unit.rollup.transport.histories import Samples, bits, samples
from tidegate.rollup.transport.encoding import (
    ChunkPlaces,
    DecodedChunks,
    Malformed,
    decode_xor_chunks,
)

# the data of the chunk that promtool 2.42 makes of 1, 2.5, 2.5, NaN and -0
GOLDEN = bytes.fromhex(
    "000580a0abfef9623ff00000000000009875c26fff4cd6d8c5f7ff8000000000003dddd23800fff800000000000100"
)


def decode(chunks: Sequence[bytes], *, before: bytes = b"\xff") -> DecodedChunks:
    ends = len(before) + np.cumsum([len(chunk) for chunk in chunks], dtype=np.int64)
    starts = ends - np.array([len(chunk) for chunk in chunks], np.int64)
    return decode_xor_chunks(before + b"".join(chunks), ChunkPlaces(starts, ends))


@settings(max_examples=60)
@given(st.lists(samples(max_size=40), min_size=1, max_size=6))
def test_samples_come_back_bit_by_bit(chunks: list[Samples]) -> None:
    decoded = decode([xor_chunk(chunk) for chunk in chunks])
    assert decoded.counts.tolist() == [len(chunk) for chunk in chunks]
    assert decoded.times_ms.tolist() == [time_ms for chunk in chunks for time_ms, _ in chunk]
    assert decoded.values.tobytes() == b"".join(
        bits(value) for chunk in chunks for _, value in chunk
    )


def test_a_chunk_that_a_real_prometheus_wrote() -> None:
    decoded = decode([GOLDEN])
    assert decoded.times_ms.tolist() == [
        1_700_000_000_000 + after_ms for after_ms in (0, 15_000, 30_000, 100_000, 100_001)
    ]
    assert [repr(value) for value in decoded.values.tolist()] == [
        "1.0",
        "2.5",
        "2.5",
        "nan",
        "-0.0",
    ]


def test_chunks_without_samples_and_no_chunks_at_all_give_nothing() -> None:
    assert decode([]).times_ms.tolist() == []
    assert decode([b"\0\0", xor_chunk([(5, 1.0)])]).counts.tolist() == [0, 1]


def test_more_chunks_than_are_decoded_at_once_come_back_in_their_order() -> None:
    chunks = [
        [(1000 * number + step, float(number)) for step in range(1 + number % 3)]
        for number in range(3000)
    ]
    decoded = decode([xor_chunk(chunk) for chunk in chunks] * 100)
    assert decoded.times_ms.tolist() == [time_ms for chunk in chunks for time_ms, _ in chunk] * 100


@pytest.mark.parametrize(
    "chunk",
    [
        pytest.param(b"\0", id="less than a header"),
        pytest.param(b"\xff\xff\0\0", id="more samples than bytes"),
        pytest.param(b"\0\1" + b"\xff" * 20, id="a number without an end"),
        pytest.param(b"\0\2" + xor_chunk([(5, 1.0)])[2:], id="fewer samples than announced"),
    ],
)
def test_a_damaged_chunk_is_refused(chunk: bytes, golden: Callable[[str], None]) -> None:
    with pytest.raises(Malformed) as refused:
        decode([chunk])
    golden(str(refused.value))
