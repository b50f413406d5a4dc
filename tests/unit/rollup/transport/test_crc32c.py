"""The checksum of frames is the one of RFC 3720, whatever the length, and computed by the C code of
its library.
"""

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st


def test_the_installed_wheel_has_the_c_implementation() -> None:
    assert google_crc32c.implementation == "c"


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
    assert google_crc32c.value(content) == checksum


@given(st.binary(max_size=40), st.integers(0, 60))
def test_it_is_what_one_bit_after_the_other_gives(content: bytes, times: int) -> None:
    assert google_crc32c.value(content * times) == bit_by_bit(content * times)


def bit_by_bit(content: bytes) -> int:
    checksum = 0xFFFFFFFF
    for byte in content:
        checksum ^= byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (0x82F63B78 if checksum & 1 else 0)
    return checksum ^ 0xFFFFFFFF
