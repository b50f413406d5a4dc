"""Time, as the control pass gets it: handed in, so that tests turn the hands themselves."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """`wall` is seconds since the epoch (what is written down), `monotonic` never jumps (what is waited for)."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
