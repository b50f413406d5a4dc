"""The checksum is the one of RFC 3720, whatever the length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.rollup.transport.wire import crc32c


@pytest.mark.parametrize(
    ("content", "checksum"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_known_checksums(content: bytes, checksum: int) -> None:
    assert crc32c(content) == checksum


@given(st.binary(max_size=40), st.integers(0, 60))
def test_it_is_what_one_bit_after_the_other_gives(content: bytes, times: int) -> None:
    assert crc32c(content * times) == bit_by_bit(content * times)


def bit_by_bit(content: bytes) -> int:
    checksum = 0xFFFFFFFF
    for byte in content:
        checksum ^= byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (0x82F63B78 if checksum & 1 else 0)
    return checksum ^ 0xFFFFFFFF
