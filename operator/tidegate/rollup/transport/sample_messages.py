"""The plain answer of remote read: a message of series with samples, cut out in bulk where samples have their usual length.

    ReadResponse { repeated QueryResult results = 1 }    QueryResult { repeated TimeSeries timeseries = 1 }
    TimeSeries { repeated Label labels = 1; repeated Sample samples = 2; repeated Histogram histograms = 4 }
    Sample { double value = 1; int64 timestamp = 2 }

A sample is 18 bytes, `12 10 09 <value> 10 <time>`, as long as its time has six bytes (1971 to 2109). A value of zero is left out, which
makes it `12 07 10 <time>`: clients at rest are full of them. Series with other samples are walked through field by field.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegate.rollup.transport.label_messages import read_labels
from tidegate.rollup.transport.series import StoredSeries
from tidegate.rollup.transport.wire import BYTES, FIXED64, Field, Malformed, fields, signed

_USUAL_BYTES, _USUAL_LENGTH, _ZERO_LENGTH = 18, 16, 7
_LABELS, _SAMPLES, _HISTOGRAMS = 1, 2, 4
_SAMPLE_KEY = 0x12
_double = struct.Struct("<d").unpack_from

Times = NDArray[np.int64]
Values = NDArray[np.float64]


class Histograms(ValueError):
    """A series of native histograms, which have no single value."""


@dataclass(frozen=True, slots=True)
class _Series:
    """`samples` is the part of its message that holds nothing but samples."""

    labels: Mapping[str, str]
    samples: tuple[int, int]


def read_samples(answer: bytes) -> StoredSeries:
    """All series of an unpacked answer; raises Malformed when it is no such message, Histograms when it has native ones."""
    series = list(_series(answer))
    parts = [_samples(answer, *one.samples) for one in series]
    counts = np.array([len(times) for times, _ in parts], np.int64)
    times_ms = np.concatenate([np.zeros(0, np.int64), *(times for times, _ in parts)])
    return StoredSeries([one.labels for one in series], counts, times_ms, np.concatenate([np.zeros(0), *(values for _, values in parts)]))


def _series(answer: bytes) -> Iterator[_Series]:
    for result in fields(answer, 0, len(answer)):
        if result.number != 1 or result.wire_type != BYTES:
            continue
        for series in fields(answer, result.start, result.end):
            if series.number == 1 and series.wire_type == BYTES:
                yield _one_series(answer, series.start, series.end)


def _one_series(answer: bytes, start: int, end: int) -> _Series:
    labels: list[tuple[int, int]] = []
    at = start
    for part in fields(answer, start, end):
        if part.number == _LABELS and part.wire_type == BYTES:
            labels.append((part.start, part.end))
        elif part.number == _SAMPLES:
            break  # nothing but samples from here on, as servers write it; `_walked` makes sure
        elif part.number == _HISTOGRAMS:
            raise Histograms("native histograms")
        at = part.end
    return _Series(read_labels(answer, labels), (at, end))


def _samples(answer: bytes, start: int, end: int) -> tuple[Times, Values]:
    usual = _sliced(answer, start, end) if (end - start) % _USUAL_BYTES == 0 else None
    return usual or _stepped(answer, start, end) or _walked(answer, start, end)


def _sliced(answer: bytes, start: int, end: int) -> tuple[Times, Values] | None:
    """The samples when all of them have the usual length; None when one has not."""
    rows = np.frombuffer(answer, np.uint8, end - start, start).reshape(-1, _USUAL_BYTES)
    time_bytes = rows[:, 12:]
    if not ((rows[:, :3] == (_SAMPLE_KEY, _USUAL_LENGTH, 9)).all() and (rows[:, 11] == 0x10).all() and _six_bytes(time_bytes)):
        return None
    return _times_ms(time_bytes), _doubles(rows[:, 3:11])


def _stepped(answer: bytes, start: int, end: int) -> tuple[Times, Values] | None:
    """The samples when each has the usual length or lacks its value only; None when one is different."""
    places, at = [], start
    while at + 1 < end:
        places.append(at)
        at += 2 + answer[at + 1]
    if at != end:
        return None
    data, begin = np.frombuffer(answer, np.uint8), np.array(places, np.int64)
    zero = data[begin + 1] == _ZERO_LENGTH
    time_at = begin + np.where(zero, 3, 12)
    if time_at.max(initial=0) + 6 > end or not ((data[begin] == _SAMPLE_KEY).all() and (data[time_at - 1] == 0x10).all()):
        return None
    full, time_bytes = begin[~zero], data[time_at[:, None] + np.arange(6)]
    if not ((data[full + 1] == _USUAL_LENGTH).all() and (data[full + 2] == 9).all() and _six_bytes(time_bytes)):
        return None
    values = np.zeros(len(begin))
    values[~zero] = _doubles(data[full[:, None] + np.arange(3, 11)])
    return _times_ms(time_bytes), values


def _six_bytes(time_bytes: NDArray[np.uint8]) -> bool:
    return bool((time_bytes[:, :5] >= 0x80).all() and (time_bytes[:, 5] < 0x80).all())


def _times_ms(time_bytes: NDArray[np.uint8]) -> Times:
    times_ms = np.zeros(len(time_bytes), np.int64)
    for place in range(6):
        times_ms |= (time_bytes[:, place].astype(np.int64) & 0x7F) << (7 * place)
    return times_ms


def _doubles(value_bytes: NDArray[np.uint8]) -> Values:
    return np.ascontiguousarray(value_bytes).view("<f8").reshape(-1).astype(np.float64)


def _walked(answer: bytes, start: int, end: int) -> tuple[Times, Values]:
    times_ms: list[int] = []
    values: list[float] = []
    for part in fields(answer, start, end):
        if part.number == _HISTOGRAMS:
            raise Histograms("native histograms")
        if part.number == _SAMPLES and part.wire_type == BYTES:
            time_ms, value = _sample(answer, part)
            times_ms.append(time_ms)
            values.append(value)
        elif part.number == _LABELS:
            raise Malformed("a series in it has labels behind its samples")
    return np.array(times_ms, np.int64), np.array(values, np.float64)


def _sample(answer: bytes, sample: Field) -> tuple[int, float]:
    time_ms, value = 0, 0.0
    for part in fields(answer, sample.start, sample.end):
        if part.number == 1 and part.wire_type == FIXED64:
            (value,) = _double(answer, part.start)
        elif part.number == 2:
            time_ms = signed(part.value)
    return time_ms, value
