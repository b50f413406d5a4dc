"""Fields of messages come out as they were written, and what is no message is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.rollup.transport.wire import BYTES, VARINT, Malformed, bytes_field, fields, read_varint, signed, varint_field, write_varint


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_an_integer_comes_back(value: int) -> None:
    written = write_varint(value)
    number, end = read_varint(written, 0, len(written))
    assert (signed(number), end) == (value, len(written))


@given(st.integers(1, 1000), st.integers(0, 1 << 62), st.binary(max_size=300))
def test_fields_come_back_in_order_with_their_places(number: int, value: int, content: bytes) -> None:
    message = varint_field(number, value) + bytes_field(number + 1, content)
    first, second = fields(message, 0, len(message))
    assert (first.number, first.wire_type, first.value) == (number, VARINT, value)
    assert (second.number, second.wire_type, message[second.start : second.end]) == (number + 1, BYTES, content)


def test_fields_that_nobody_knows_are_stepped_over() -> None:
    message = b"\x0d" + bytes(4) + b"\x11" + bytes(8) + varint_field(7, 3)
    assert [field.number for field in fields(message, 0, len(message))] == [1, 2, 7]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"\x80", "does not end"),
        (b"\xff" * 11, "does not end"),
        (b"\x0a\x05ab", "does not fit"),
        (b"\x09\x00", "does not fit"),
        (b"\x00\x01", "does not fit"),
        (b"\x0b", "unknown kind 3"),
    ],
)
def test_what_is_no_message_is_refused(message: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        list(fields(message, 0, len(message)))
