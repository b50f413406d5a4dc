"""Prometheus' side of remote read, written sample by sample as its appender does it, for the
decoders to be held against.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

import google_crc32c

from tidegate.rollup.transport.encoding import packed

Samples = Sequence[tuple[int, float]]
XOR, HISTOGRAM = 1, 2


def write_varint(value: int) -> bytes:
    """The bytes of an integer; negative ones as protocol buffers' int64, in ten bytes."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def varint_field(number: int, value: int) -> bytes:
    """A field that holds an integer."""
    return write_varint(number << 3) + write_varint(value)


def bytes_field(number: int, content: bytes) -> bytes:
    """A field that holds text, bytes or a message."""
    return write_varint(number << 3 | 2) + write_varint(len(content)) + content


class _Bits:
    def __init__(self) -> None:
        self._value, self._length = 1, 0  # a 1 in front keeps zeros that lead

    def add(self, value: int, width: int) -> None:
        self._value = self._value << width | value & (1 << width) - 1
        self._length += width

    def add_bytes(self, content: bytes) -> None:
        for byte in content:
            self.add(byte, 8)

    def done(self) -> bytes:
        padding = -self._length % 8
        whole = self._value << padding
        return whole.to_bytes((self._length + padding) // 8 + 1, "big")[1:]


def xor_chunk(samples: Samples) -> bytes:
    """One chunk of these samples."""
    bits = _Bits()
    time_before = distance = value_before = 0
    span: tuple[int, int] | None = None  # zeros in front, zeros behind
    for index, (time_ms, value) in enumerate(samples):
        raw = struct.unpack(">Q", struct.pack(">d", value))[0]
        if index == 0:
            bits.add_bytes(write_varint(time_ms << 1 ^ time_ms >> 63))
            bits.add(raw, 64)
        else:
            change = time_ms - time_before - distance
            distance = time_ms - time_before
            bits.add_bytes(write_varint(distance)) if index == 1 else _add_change(bits, change)
            span = _add_difference(bits, raw ^ value_before, span)
        time_before, value_before = time_ms, raw
    return struct.pack(">H", len(samples)) + bits.done()


def _add_change(bits: _Bits, change: int) -> None:
    if change == 0:
        bits.add(0, 1)
        return
    for prefix, prefix_width, width in ((0b10, 2, 14), (0b110, 3, 17), (0b1110, 4, 20)):
        if -(1 << width - 1) + 1 <= change <= 1 << width - 1:
            bits.add(prefix, prefix_width)
            bits.add(change, width)
            return
    bits.add(0b1111, 4)
    bits.add(change, 64)


def _add_difference(
    bits: _Bits, difference: int, span: tuple[int, int] | None
) -> tuple[int, int] | None:
    if difference == 0:
        bits.add(0, 1)
        return span
    front = min(64 - difference.bit_length(), 31)
    behind = (difference & -difference).bit_length() - 1
    if span is not None and front >= span[0] and behind >= span[1]:
        bits.add(0b10, 2)
        bits.add(difference >> span[1], 64 - span[0] - span[1])
        return span
    width = 64 - front - behind
    bits.add(0b11, 2)
    bits.add(front, 5)
    bits.add(width, 6)  # 64 becomes 0
    bits.add(difference >> behind, width)
    return front, behind


def labels_bytes(labels: Mapping[str, str]) -> bytes:
    """The field `labels`, once for each."""
    return b"".join(
        bytes_field(1, bytes_field(1, name.encode()) + bytes_field(2, value.encode()))
        for name, value in sorted(labels.items())
    )


def chunk_bytes(samples: Samples, *, encoding: int = XOR) -> bytes:
    """The message Chunk."""
    return (
        varint_field(1, samples[0][0])
        + varint_field(2, samples[-1][0])
        + varint_field(3, encoding)
        + bytes_field(4, xor_chunk(samples))
    )


def chunked_series(labels: Mapping[str, str], *chunks: Samples, encoding: int = XOR) -> bytes:
    """The message ChunkedSeries."""
    return labels_bytes(labels) + b"".join(
        bytes_field(2, chunk_bytes(chunk, encoding=encoding)) for chunk in chunks
    )


def damaged_series(labels: Mapping[str, str], samples: Samples) -> bytes:
    """The same with a chunk that was cut off before it was sent, so that the frame's checksum is
    right.
    """
    cut = (
        varint_field(1, samples[0][0])
        + varint_field(2, samples[-1][0])
        + varint_field(3, XOR)
        + bytes_field(4, xor_chunk(samples)[:-1])
    )
    return labels_bytes(labels) + bytes_field(2, cut)


def frame(*series: bytes, query: int = 0) -> bytes:
    """One frame of a streamed answer: length, checksum, the message ChunkedReadResponse.

    Proto3 leaves the number of the first query out.
    """
    message = b"".join(bytes_field(1, one) for one in series)
    return framed(message + (varint_field(2, query) if query else b""))


def framed(message: bytes) -> bytes:
    """A message with its length and checksum."""
    return write_varint(len(message)) + struct.pack(">I", google_crc32c.value(message)) + message


def sample_bytes(time_ms: int, value: float) -> bytes:
    """The message Sample; proto3 leaves out what is zero."""
    raw = struct.pack("<d", value)
    content = b"" if value == 0 else b"\x09" + raw
    return content + (varint_field(2, time_ms) if time_ms else b"")


def time_series(labels: Mapping[str, str], samples: Samples) -> bytes:
    """The message TimeSeries."""
    return labels_bytes(labels) + b"".join(
        bytes_field(2, sample_bytes(*sample)) for sample in samples
    )


def samples_answer(*series: bytes) -> bytes:
    """The message ReadResponse with one result, packed as it is sent."""
    result = b"".join(bytes_field(1, one) for one in series)
    return packed(bytes_field(1, result))


def write_request(series: Iterable[tuple[Mapping[str, str], Samples]]) -> bytes:
    """The message WriteRequest of remote write, packed as it is sent: how tests put samples into a
    real Prometheus.
    """
    return packed(
        b"".join(bytes_field(1, time_series(labels, samples)) for labels, samples in series)
    )
