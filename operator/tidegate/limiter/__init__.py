"""A limiter of bytes per second for traffic of several priorities. Standard library only.

Tier 0 never waits and is paid for by the others; tiers 1 to 3 share what it leaves, the more
important ones first. `Bucket` is the arithmetic, with time passed in; `Limiter` runs it in real
time for any number of threads.

    limiter = Limiter(100e6)
    limiter.acquire(len(data), tier=1)  # waits for its turn
    send(data)

A process with threads that compute for long should call `sys.setswitchinterval(0.0005)`: by
default a thread that wakes up may wait 5 ms for Python's lock.
"""

from tidegate.limiter.bucket import TIERS, Bucket, Ticket
from tidegate.limiter.realtime import Limiter

__all__ = ["TIERS", "Bucket", "Limiter", "Ticket"]
