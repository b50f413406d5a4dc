"""Samples as Prometheus may have stored them, for property tests: steady and odd distances, resets,
staleness markers, every float.
"""

from __future__ import annotations

import struct

from hypothesis import strategies as st

# What Prometheus writes when a series ended: a NaN of its own.
STALE: float = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
BASE_MS = 1_700_000_000_000

Samples = list[tuple[int, float]]

odd_values = st.sampled_from(
    [0.0, -0.0, float("nan"), STALE, float("inf"), float("-inf"), 5e-324, -1e308]
)
values = st.one_of(st.floats(), odd_values, st.integers(0, 10**12).map(float))
# every width of the change of distance, and its edges: 14, 17, 20 and 64 bits
distances_ms = st.one_of(
    st.just(15_000),
    st.integers(14_990, 15_010),
    st.sampled_from([1, 8192, 8193, 65_537, 524_289, 10**10]),
    st.integers(1, 10**7),
)


@st.composite
def samples(draw: st.DrawFn, max_size: int = 130) -> Samples:
    """One chunk's worth."""
    at = draw(st.integers(0, 1 << 41))
    found: Samples = []
    for distance, value in draw(
        st.lists(st.tuples(distances_ms, values), min_size=1, max_size=max_size)
    ):
        found.append((at, value))
        at += distance
    return found


def bits(value: float) -> bytes:
    """Return the bits, which distinguish one NaN from another, and -0 from 0."""
    return struct.pack("<d", value)
