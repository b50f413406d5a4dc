"""How long a broker mutes a client whose quota is lowered, and how far a step may go.

A broker keeps a ring of samples per bucket and measures the rate over those it still holds.
Lowering a quota therefore mutes a client for bytes it sent under the old one, and no later raise
frees it.
"""

from tidegate_logic.model import QuotaWindow


def predicted_mute_seconds(exposure: int, target: int, window: QuotaWindow) -> float:
    """The longest mute when a bucket that may hold a full window at `exposure` is set to `target`.

    Both are bytes/s above 0. W x E / T - (n - 1) samples, W the whole window: 11 E / T - 10 with
    Kafka's defaults (control.md 1.2). Never below 0.
    """
    return max(
        0.0, window.seconds * exposure / target - (window.samples - 1) * window.sample_seconds
    )


def largest_safe_step(exposure: int, max_mute_seconds: int, window: QuotaWindow) -> int:
    """The lowest quota in bytes/s that may follow `exposure` with no mute above `max_mute_seconds`.

    ceil(E / rho), rho = (max_mute + (n - 1) samples) / W; half of E with Kafka's defaults and 12 s.
    Where even an unchanged quota may mute for longer than allowed (one sample is longer than
    max_mute), the answer is `exposure`: no step is safe.
    """
    allowed_seconds = max_mute_seconds + (window.samples - 1) * window.sample_seconds
    return min(exposure, -(-exposure * window.seconds // allowed_seconds))


def shortest_bound(longest_mute_seconds: int, window: QuotaWindow) -> int:
    """The bound, or the shortest one with which a quota can be lowered at all."""
    return max(longest_mute_seconds, window.sample_seconds + 1)
