"""Two hours of history in Prometheus: two brokers with two users, whose even rates give every
table's expected numbers.

In the second hour there are metrics of the operator too: bob is throttled for ten minutes, and the
limit is lowered in the middle.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tests.integration.rollup.history_server import HistoryServer
from tidegate.rollup.schemas import DAY_MS, HOUR_MS
from tidegate.rollup.terms.sources import PolicyTerms
from tidegate_logic.model import (
    BrokerLimit,
    BrokerLimits,
    Contract,
    Entity,
    Level,
    Member,
    Policy,
    RateForm,
    Tier,
)

MINUTE_MS = 60_000
MIDNIGHT_MS = 1_767_225_600_000  # 2026-01-01
START_MS = MIDNIGHT_MS + 22 * HOUR_MS
SECOND_HOUR_MS = START_MS + HOUR_MS
END_MS = MIDNIGHT_MS + DAY_MS
SCRAPE_MS = 15_000
RATES = {"alice": 1_000_000, "bob": 250_000}  # bytes/s on every broker
GAUGE = 1.04  # times what is moved: Kafka's gauges are a little high as well
NIC = 1.05  # likewise
BROKERS = (1, 2)

CUT_MS, RELAXED_MS, RELEASED_MS = (SECOND_HOUR_MS + minutes * MINUTE_MS for minutes in (10, 18, 20))
THROTTLED_RATE = 100_000
CONTRACTS = {"alice": 2_000_000, "bob": 200_000}
REPORTED_FROM_MS = (
    SECOND_HOUR_MS + 90_000
)  # later than any scrape that still counts for the first hour
DECLARED_LIMIT, LIMIT, LOWER_LIMIT = 1_300_000, 1_400_000, 1_200_000  # the NICs carry 1,312,500
LOWERED_MS = SECOND_HOUR_MS + 30 * MINUTE_MS

POLICY = PolicyTerms.of(
    Policy("streaming/shop", "uid", limits=BrokerLimits(BrokerLimit(egress=DECLARED_LIMIT))),
    [
        Tier(
            f"streaming/{tier}",
            level,
            (
                Member(
                    f"member-{user}",
                    Entity(user),
                    contract=Contract(RateForm.PER_BROKER, CONTRACTS[user]),
                ),
            ),
        )
        for tier, level, user in (("gold", Level.L1, "alice"), ("bulk", Level.L3, "bob"))
    ],
)


def moved(user: str) -> int:
    """Bytes of the user on all brokers in both hours."""
    throttled_s = (RELEASED_MS - CUT_MS) // 1000 if user == "bob" else 0
    return len(BROKERS) * (
        RATES[user] * ((END_MS - START_MS) // 1000 - throttled_s) + THROTTLED_RATE * throttled_s
    )


def write_known_history(
    history: HistoryServer, *, more_labels: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Write the history of brokers, whose series have `more_labels`, and that of the operator."""
    write_brokers(history, more_labels)
    _write_operator(history)


def write_brokers(
    history: HistoryServer, more_labels: Mapping[str, str], *, as_much: float = 1.0
) -> None:
    """Clients fetch at even rates, `as_much` of the known ones.

    The gauges are 4 % too high, as Kafka's are. Each sample of theirs is about the time before it.
    """
    times = range(START_MS - HOUR_MS, END_MS + SCRAPE_MS, SCRAPE_MS)
    totals = [0.0]
    for at in times[1:]:
        moved = as_much * sum(_rate(user, at) for user in RATES)
        totals.append(totals[-1] + moved * SCRAPE_MS / 1000)
    for broker in BROKERS:
        labels = {"broker": str(broker), **more_labels}
        history.write(
            "kafka_broker_bytesout_total", (labels, list(zip(times, totals, strict=True)))
        )
        nic = {**labels, "device": "eth0"}
        history.write(
            "node_network_transmit_bytes_total",
            (nic, [(at, as_much * NIC * 1_250_000 * (at - times.start) / 1000) for at in times]),
        )
        for user in RATES:
            client = {**labels, "user": user, "resource": "Fetch"}
            history.write(
                "kafka_quota_byte_rate",
                (client, [(at, as_much * GAUGE * _rate(user, at)) for at in times]),
            )
            held = [(at, 200.0 if _is_held(user, at) else 0.0) for at in times]
            history.write("kafka_quota_throttle_time", (client, held))


def _is_held(user: str, at_ms: int) -> bool:
    return user == "bob" and CUT_MS < at_ms <= RELEASED_MS


def _rate(user: str, at_ms: int) -> int:
    return THROTTLED_RATE if _is_held(user, at_ms) else RATES[user]


def _write_operator(history: HistoryServer) -> None:
    times, policy = (
        range(REPORTED_FROM_MS, END_MS + SCRAPE_MS, SCRAPE_MS),
        {"policy_namespace": "streaming", "policy": "shop"},
    )
    for tier, user, level in (("gold", "alice", "L1"), ("bulk", "bob", "L3")):
        member = {**policy, "tier": tier, "member": f"member-{user}", "direction": "fetch"}
        history.write(
            "tidegate_member_target_bytes_per_second",
            (member, [(at, CONTRACTS[user]) for at in times]),
        )
        history.write(
            "tidegate_member_quota_bytes_per_second",
            (
                member,
                [(at, THROTTLED_RATE if _is_held(user, at) else CONTRACTS[user]) for at in times],
            ),
        )
        for state in ("Contract", "Stepping", "Throttled", "Relaxing"):
            samples = [(at, float(state == _state(user, at))) for at in times]
            history.write(
                "tidegate_tier_state", ({**policy, "level": level, "state": state}, samples)
            )
    for broker in BROKERS:
        nic = {**policy, "broker": str(broker), "direction": "egress"}
        history.write(
            "tidegate_broker_limit_bytes_per_second",
            (nic, [(at, LIMIT if at <= LOWERED_MS else LOWER_LIMIT) for at in times]),
        )


def _state(user: str, at_ms: int) -> str:
    if not _is_held(user, at_ms):
        return "Contract"
    return "Throttled" if at_ms <= RELAXED_MS else "Relaxing"
