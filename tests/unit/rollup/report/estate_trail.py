"""The estate's audit trail: one episode in which L3, then L2, then L1 give way on fetch, and are released again."""

from collections.abc import Iterator, Sequence
from typing import Any

from tidegate.control.audit.trail import EVENT, utc

_MINUTE = 60_000
EPISODE_MS = (200 * _MINUTE, 260 * _MINUTE)  # since the period's start; whole five-minute windows
_CONTRACTS = {"lake-export": 35_000_000, "reports": 28_500_000, "indexer": 24_000_000, "orders": 15_500_000}
_MEMBERS = {
    "lake-export": ("streaming/analytics", "L3"),
    "reports": ("streaming/analytics", "L3"),
    "indexer": ("streaming/search", "L2"),
    "orders": ("streaming/logistics", "L1"),
}
# minute since the episode's start, who, to what share of the contract
_STORY = (
    (0, "lake-export", 0.5),
    (0, "reports", 0.5),
    (4, "lake-export", 0.2),
    (4, "reports", 0.25),
    (10, "indexer", 0.4),
    (18, "orders", 0.6),
    (30, "orders", 1.0),
    (38, "indexer", 0.7),
    (44, "indexer", 1.0),
    (48, "reports", 0.6),
    (50, "lake-export", 0.55),
    (55, "reports", 1.0),
    (60, "lake-export", 1.0),
)


def trail_lines(start_ms: int, *, policy: str = "streaming/main") -> Sequence[dict[str, Any]]:
    """As `tidegate audit` reads them."""
    return list(_lines(start_ms, policy))


def _lines(start_ms: int, policy: str) -> Iterator[dict[str, Any]]:
    quotas: dict[str, int] = dict(_CONTRACTS)
    for name, contract in _CONTRACTS.items():
        yield _write(start_ms + _MINUTE, policy, name, before=None, after=contract) | {"reason": "FirstQuota", "round": None}
    for minute, name, share in _STORY:
        at_ms, after = start_ms + EPISODE_MS[0] + minute * _MINUTE, round(_CONTRACTS[name] * share)
        yield _round(at_ms - 40, policy, over=share < 1)
        yield _write(at_ms, policy, name, before=quotas[name], after=after)
        yield _effect(at_ms + 24_000, policy, name)
        quotas[name] = after


def _line(at_ms: int, policy: str, kind: str) -> dict[str, Any]:
    return {"event": EVENT, "kind": kind, "t": utc(at_ms / 1000), "policy": policy, "cluster": "TKoiCUaHR863B-PYhCoewA"}


def _write(at_ms: int, policy: str, name: str, *, before: int | None, after: int) -> dict[str, Any]:
    tier, level = _MEMBERS[name]
    lowers = before is not None and after < before
    told = {
        "entity": f"user={name}",
        "key": "consumer_byte_rate",
        "from": before,
        "to": after,
        "level": level,
        "tier": tier,
        "member": name,
    }
    told |= {"reason": "Throttled" if lowers else "Released", "writeKind": "Lowering" if lowers else "Raise", "contract": _CONTRACTS[name]}
    told |= {"predictedMute_s": 12.0 if lowers else 0.0, "round": "egress-1", "outcome": "applied"}
    return _line(at_ms, policy, "write") | told


def _round(at_ms: int, policy: str, *, over: bool) -> dict[str, Any]:
    broker = {"id": 4, "threshold": 150_000_000, "need": 41_500_000 if over else 0.0, "nic": 191_500_000 if over else 90_000_000}
    return _line(at_ms, policy, "round") | {"id": "egress-1", "dir": "egress", "phase": "Cutting", "brokers": [broker]}


def _effect(at_ms: int, policy: str, name: str) -> dict[str, Any]:
    entity = {"entity": f"user={name}", "tier": _MEMBERS[name][1], "kind": "cut", "predictedMute_s": 12.0, "observedMute_s": 8.851}
    return _line(at_ms, policy, "effect") | {"round": "egress-1", "dir": "egress", "entities": [entity]}
