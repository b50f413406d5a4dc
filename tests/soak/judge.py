"""What must hold at every moment of a soak, by what was declared and what a broker says each second.

These are the rules of `tests/simulation` that show from outside on real brokers. Not judged here:
the write budget, suspended policies, stale samples, replication.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate_logic.model import QuotaKey, QuotaWindow
from tidegate_logic.quotas.mute import predicted_mute_seconds

Texts = Mapping[QuotaKey, str]
FETCH, PRODUCE = QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.PRODUCER_BYTE_RATE

# a list of tiers may be this old before nothing is decided on it any more (as in the simulation)
KNOWN_SECONDS = 960.0
# how long another writer's value may stand, and what follows from it
REPAIRED_WITHIN_SECONDS = 120.0
# from when on a load that does not change is known to the operator
STEADY_AFTER_SECONDS = 90.0
_LONGEST_BETWEEN_LOOKS_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Look:
    """One moment: quotas by user, the most that each sent on a broker, the fullest NIC (bytes/s)."""

    at_seconds: float
    quotas: Mapping[str, Texts]
    sent: Mapping[str, float]
    fullest: float


@dataclass
class Judge:
    """Takes what happens in order of time; `violations` has a sentence for each breach.

    A quota is at least `fewest_leaders` times a contract per partition. `strangers` are quotas that
    no tier names. `seen_within_seconds` is how late the operator knows what was sent.
    """

    l0: frozenset[str]
    fewest_leaders: int
    strangers: Mapping[str, Texts]
    limit: float
    max_mute_seconds: float
    seen_within_seconds: float
    violations: list[str] = field(default_factory=list)
    _window: QuotaWindow = field(default_factory=QuotaWindow)
    _declared: list[tuple[float, Mapping[str, int]]] = field(default_factory=list)
    _disturbed: dict[str, float] = field(default_factory=dict)
    _steady_since: float = 0.0
    _looks: deque[Look] = field(default_factory=deque)

    def declared(self, at_seconds: float, rates: Mapping[str, int]) -> None:
        """From now on these are the contracts, in bytes/s per partition."""
        self._declared.append((at_seconds, dict(rates)))
        self.changed(at_seconds)

    def disturbed(self, at_seconds: float, user: str) -> None:
        """Another writer set a quota of this user."""
        self._disturbed[user] = at_seconds
        self.changed(at_seconds)

    def changed(self, at_seconds: float) -> None:
        """Load or leaders are others now."""
        self._steady_since = at_seconds

    def see(self, look: Look) -> None:
        """Judge this moment by those before it."""
        before = self._looks[-1] if self._looks else None
        for user, texts in self.strangers.items():
            if look.quotas.get(user, {}) != texts:
                self._violated(look, f"{user}, whom no tier names, has {look.quotas.get(user)}")
        for user in sorted(self.l0):
            self._judge_l0(look, user)
        if before is not None:
            self._judge_changes(before, look)
        self._looks.append(look)
        since = look.at_seconds - self._window.seconds - self.seen_within_seconds
        while self._looks[0].at_seconds < since:
            self._looks.popleft()

    def _violated(self, look: Look, what: str) -> None:
        if not any(one.endswith(what) for one in self.violations):  # once, not every second
            self.violations.append(f"{look.at_seconds:.0f}: {what}")

    def _is_disturbed(self, look: Look, user: str) -> bool:
        at = self._disturbed.get(user)
        return at is not None and look.at_seconds - at < REPAIRED_WITHIN_SECONDS

    def _judge_l0(self, look: Look, user: str) -> None:
        since = look.at_seconds - KNOWN_SECONDS
        older = [rates for at, rates in self._declared if at < since]
        known = [*older[-1:], *(rates for at, rates in self._declared if at >= since)]
        if self._is_disturbed(look, user) or not all(user in rates for rates in known):
            return
        least = min(rates[user] for rates in known) * self.fewest_leaders
        for key, text in look.quotas.get(user, {}).items():
            if key in (FETCH, PRODUCE) and int(text) < least:
                self._violated(look, f"{user} is of L0 and has {key.value} {text}, below {least}")

    def _judge_changes(self, before: Look, look: Look) -> None:
        if look.at_seconds - before.at_seconds > _LONGEST_BETWEEN_LOOKS_SECONDS:
            return  # several steps may lie between
        is_raised = False
        for user in sorted(before.quotas.keys() & look.quotas.keys() - self.strangers.keys()):
            for key in (FETCH, PRODUCE):
                old, new = before.quotas[user].get(key), look.quotas[user].get(key)
                if old is None or new is None or old == new or self._is_disturbed(look, user):
                    continue
                is_raised |= int(new) > int(old)
                self._judge_mute(look, user, key, int(old), int(new))
        is_steady = look.at_seconds - self._steady_since > STEADY_AFTER_SECONDS
        if is_raised and is_steady and before.fullest <= self.limit < look.fullest:
            self._violated(look, f"a raise led to {look.fullest / 1e6:.1f} MB/s, over the limit")

    def _judge_mute(self, look: Look, user: str, key: QuotaKey, old: int, new: int) -> None:
        exposure = float(old)
        if key is FETCH:  # a throttle counts what was sent
            exposure = min(exposure, max(one.sent.get(user, 0.0) for one in self._looks))
        if new >= old or exposure < 1.0:
            return
        seconds = predicted_mute_seconds(int(exposure), new, self._window)
        if seconds > self.max_mute_seconds + 0.01:
            self._violated(
                look,
                f"{user} {key.value} {old} -> {new} may mute for {seconds:.1f} s, "
                f"{self.max_mute_seconds:g} s are allowed",
            )
