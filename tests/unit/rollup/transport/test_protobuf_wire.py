"""Fields of messages come out as they were written, and what is no message is refused."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.rollup.transport.encoding import (
    BYTES,
    VARINT,
    Malformed,
    bytes_field,
    fields,
    read_varint,
    signed,
    varint_field,
    write_varint,
)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_an_integer_comes_back(value: int) -> None:
    written = write_varint(value)
    number, end = read_varint(written, 0, len(written))
    assert (signed(number), end) == (value, len(written))


@given(st.integers(1, 1000), st.integers(0, 1 << 62), st.binary(max_size=300))
def test_fields_come_back_in_order_with_their_places(
    number: int, value: int, content: bytes
) -> None:
    message = varint_field(number, value) + bytes_field(number + 1, content)
    first, second = fields(message, 0, len(message))
    assert (first.number, first.wire_type, first.value) == (number, VARINT, value)
    assert (second.number, second.wire_type, message[second.start : second.end]) == (
        number + 1,
        BYTES,
        content,
    )


def test_unknown_fields_are_skipped() -> None:
    message = b"\x0d" + bytes(4) + b"\x11" + bytes(8) + varint_field(7, 3)
    assert [field.number for field in fields(message, 0, len(message))] == [1, 2, 7]


NO_MESSAGES = (b"\x80", b"\xff" * 11, b"\x0a\x05ab", b"\x09\x00", b"\x00\x01", b"\x0b")


@pytest.mark.parametrize("message", NO_MESSAGES)
def test_what_is_no_message_is_refused(message: bytes) -> None:
    with pytest.raises(Malformed):
        list(fields(message, 0, len(message)))


def test_what_is_no_message_reads_like_this(golden: Callable[[str], None]) -> None:
    refusals = []
    for message in NO_MESSAGES:
        with pytest.raises(Malformed) as refused:
            list(fields(message, 0, len(message)))
        refusals.append(f"{message.hex()}: {refused.value}")
    golden("\n".join(refusals))
