"""How far above its quota Kafka's byte rate of a throttled client may read, without the client being above it.

A throttled client sends its window of n samples at once and waits for them to be forgotten. Until then the broker divides by n - 1 to n
samples, so single readings lie up to n / (n - 1) above the quota, and higher where a burst takes long: 3 to 18 % were measured with
Kafka's 11. Their mean is another matter: a burst is told for n samples, together as n x ln(n / (n - 1)) of its bytes, less what is not
told while it comes, which is 1.00 with 11. So the integral needs no correction; whoever judges a single reading needs this.
"""

from typing import Final

from controller_logic.model import QuotaWindow

_DOUBT: Final = 1.09  # makes 1.2 with 11 samples, as the control pass takes it (`bucket.sends`)


def most_excess(window: QuotaWindow) -> float:
    """Up to so many times its quota a throttled client may read without being above it."""
    return _DOUBT * window.samples / max(1, window.samples - 1)
