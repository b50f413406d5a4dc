"""`tidegate top` from end to end, on the in-memory twin: what is over, who is below the contract
and why, and what is not known.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.goldens.golden import numbers
from tests.unit.commands.conftest import Terminal
from tidegate.errors import Unreachable
from tidegate_logic.model import (
    ClientRate,
    Direction,
    Entity,
    LedgerEntry,
    LedgerRecord,
    NicSpan,
    QuotaKey,
    QuotaWrite,
    ReadingProblem,
    Readings,
    StoredQuota,
    WriteKind,
)
from tidegate_logic.reasons import Reason

FETCH = QuotaKey.CONSUMER_BYTE_RATE
OUT = Direction.EGRESS
ETL, PAY = Entity("etl"), Entity("pay")
METRICS = {"prometheus": {"url": "http://prometheus:9090"}}


def member(name: str, rate: str) -> dict[str, Any]:
    return {
        "name": name,
        "user": name,
        "topics": ["acc"],
        "contract": {"perBroker": {"fetch": rate}},
    }


@pytest.fixture
def files(world: Any, policy: Any, tier: Any) -> str:
    """etl (L3, 60 MB/s promised, 25 in force since 40 s) and pay (L0); broker 1 carries 65 of 50
    MB/s, broker 2 30, broker 3 is unknown.
    """
    level = {
        "level": "L3",
        "state": "Throttled",
        "since": "2026-11-21T11:00:00Z",
        "because": "since 10:59:00 UTC broker 1 egress 65 of 50 MB/s; now 49.3 MB/s",
    }
    policy["status"] = {"levels": [level]}
    policy["spec"] |= {"metrics": METRICS, "brokers": {"egress": {"limit": "50M"}}}
    tier["spec"]["members"] = [member("pay", "60M")]
    batch = {**tier, "metadata": {"name": "batch", "namespace": "streaming"}}
    throttled = {"perBroker": {"fetch": "1M"}}
    batch["spec"] = {
        "policyRef": {"name": "orders"},
        "level": "L3",
        "throttledRates": throttled,
        "members": [member("etl", "60M")],
    }
    in_force(world, PAY, 60_000_000, Reason.FIRST_QUOTA)
    in_force(world, ETL, 25_000_000, Reason.THROTTLED, of_contract=60_000_000)
    world.readings = lambda: measured(world.now)
    return str(world.write_files(policy, tier, batch))


def in_force(
    world: Any, entity: Entity, rate: int, reason: Reason, *, of_contract: int | None = None
) -> None:
    """A quota that we wrote 40 s ago."""
    entry = LedgerEntry(None, str(rate), None, world.now - 40, reason, of_contract=of_contract)
    ledger = LedgerRecord(entity, "streaming/orders", "uid", {FETCH: entry})
    write = QuotaWrite(
        entity,
        {FETCH: str(rate)},
        StoredQuota(entity, {}),
        ledger,
        WriteKind.FIRST,
        reason,
        "",
        charged=True,
    )
    (outcome,) = world.store.write([write], "memory-cluster")
    assert outcome.applied


def measured(now: float) -> Readings:
    nics = {1: 65e6, 2: 30e6}
    nic = {
        (broker, OUT): tuple(NicSpan(now - 15 * ago, 15.0, rate) for ago in (2, 1, 0))
        for broker, rate in nics.items()
    }
    clients = {
        (ETL, 1, OUT): ClientRate(now, 24e6, 11_300.0),
        (ETL, 2, OUT): ClientRate(now, 20e6, 0.0),
        (PAY, 1, OUT): ClientRate(now, 40e6, 0.0),
    }
    problem = ReadingProblem(Reason.METRICS_MISSING, "broker 3 has no reading of its NIC", 3)
    return Readings(now, 15.0, nic, clients, (problem,))


def shown(world: Any, files: str, *arguments: str, code: int = 0) -> list[str]:
    answer = world.run("top", "--once", "-f", files, *arguments)
    assert answer.code == code, answer.err
    return str(answer.out).splitlines()


def line_with(lines: list[str], *words: str) -> str:
    """The first line that begins with the first of these words and has the others, with single
    spaces.
    """
    found = (line.split() for line in lines if line.strip())
    return next(
        " ".join(line) for line in found if words[0] in line[:2] and set(words) <= set(line)
    )


def test_a_broker_over_its_limit_is_shown_with_what_it_rests_on(
    world: Any, files: str, golden: Callable[[str], None]
) -> None:
    lines = shown(world, files)
    over, within = (
        line_with(lines, "1", "egress", "Over"),
        line_with(lines, "2", "egress", "Within"),
    )
    assert (numbers(over), numbers(within)) == (
        {1, 65.0, 50.0, 130, 64.0, 0, 3},
        {2, 30.0, 50.0, 60, 20.0, 0},
    )
    assert numbers(lines[0]) >= {1, 3}
    golden("\n".join(lines))


def test_a_broker_that_is_not_known_says_why(world: Any, files: str) -> None:
    lines = shown(world, files)
    document = json.loads("\n".join(shown(world, files, "-o", "json")))
    assert numbers(line_with(lines, "3", "egress", "Unknown")) == {3, 50.0}
    (problem,) = document["problems"]
    assert f"warning: {problem['reason']}: {problem['message']}" in lines


def test_whoever_is_below_the_contract_comes_first_with_why(world: Any, files: str) -> None:
    lines = shown(world, files)
    assert numbers(line_with(lines, "etl", "fetch", "L3", "Throttled")) == {
        44.0,
        25.0,
        60.0,
        11.3,
        40,
    }
    assert numbers(next(line for line in lines if line.startswith("etl (user=etl): "))) == {
        25.0,
        60.0,
        1.0,
    }
    assert numbers(line_with(lines, "pay", "fetch", "L0")) == {40.0, 60.0, 0.0}
    assert [
        line.split()[1]
        for line in lines
        if line.startswith(("L3", "L0")) and "fetch" in line.split()
    ] == ["etl", "pay"]


def test_levels_are_added_up(world: Any, files: str) -> None:
    lines = shown(world, files)
    assert numbers(line_with(lines, "L3", "1", "44", "Throttled")) >= {1, 44.0, 11.3}
    assert "L3: since 10:59:00 UTC broker 1 egress 65 of 50 MB/s; now 49.3 MB/s" in lines
    assert numbers(line_with(lines, "L0", "1", "40")) == {1, 0, 40.0}


def test_everything_fits_into_a_hundred_columns(
    world: Any, files: str, policy: Any, tier: Any
) -> None:
    for name in ("e" * 60, "f" * 60):
        tier["spec"]["members"].append(member(name, "1250M"))
    policy["spec"]["brokers"] = {"egress": {"limit": "3125M"}}
    tables = [
        line
        for line in shown(world, str(world.write_files(policy, tier)))
        if line.startswith(("LEVEL", "BROKER", "L0", "     "))
    ]
    assert len(tables) > 5
    assert max(map(len, tables)) <= 100


def test_without_metrics_load_is_unknown_and_quotas_are_shown(
    world: Any, files: str, policy: Any, tier: Any, golden: Callable[[str], None]
) -> None:
    del policy["spec"]["metrics"]
    lines = shown(world, str(world.write_files(policy, tier)))
    (warning,) = [line for line in lines if line.startswith("warning: ")]
    assert numbers(line_with(lines, "pay", "fetch", "L0")) == {60.0}
    golden(warning)


def test_what_stands_in_kafka_is_shown_and_not_what_will(world: Any, files: str) -> None:
    world.store.put(PAY, {FETCH: "70000000"})
    assert numbers(line_with(shown(world, files), "pay", "fetch", "L0")) == {40.0, 70.0, 60.0, 0.0}


def test_a_prometheus_that_is_away_is_said(world: Any, files: str) -> None:
    error = Unreachable(
        Reason.PROMETHEUS_UNREACHABLE, "http://prometheus:9090 did not answer within 10 s."
    )

    def away() -> Readings:
        raise error

    world.readings = away
    lines = shown(world, files, code=1)
    assert f"warning: {error.reason.value}: {error.message}" in lines
    assert numbers(line_with(lines, "1", "egress")) == {1, 50.0}


def test_more_members_than_asked_for_are_counted(world: Any, files: str) -> None:
    lines = shown(world, files, "--members", "1")
    (more,) = [line for line in lines if "--members" in line]
    assert numbers(more) == {1, 0}
    assert not any("pay" in line.split() for line in lines)


def test_json_has_everything_and_null_is_unknown(world: Any, files: str) -> None:
    document = json.loads("\n".join(shown(world, files, "-o", "json", "--members", "1")))
    broker = {row["id"]: row for row in document["brokers"]}
    assert (broker[1]["bytesPerSecond"], broker[1]["pressure"]) == (65e6, "Over")
    assert broker[3]["bytesPerSecond"] is None
    assert broker[3]["why"]
    etl, pay = document["members"]
    assert (etl["member"], etl["quota"], etl["contract"], etl["belowContract"]) == (
        "etl",
        25_000_000,
        60_000_000,
        True,
    )
    because = {
        level["level"]: level["said"] and numbers(level["said"]["because"])
        for level in document["levels"]
    }
    assert because == {"L0": None, "L3": {1, 65.0, 50.0, 49.3}}
    assert etl["written"] == {"reason": "Throttled", "atSeconds": world.now - 40}
    assert pay["belowContract"] is False
    assert document["problems"][0]["broker"] == 3


def budget(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BandwidthBudget",
        "metadata": {"name": name, "namespace": "streaming"},
        "spec": {"policyRef": {"name": "orders"}, **spec},
    }


def with_budgets(world: Any, policy: Any, tier: Any) -> str:
    """Both members in budget search, which is a part of retail."""
    policy["spec"] |= {"metrics": METRICS, "brokers": {"egress": {"limit": "50M"}}}
    policy["status"] = {"budgets": 2}
    tier["spec"]["members"] = [member("pay", "60M")]
    batch = {**tier, "metadata": {"name": "batch", "namespace": "streaming"}}
    throttled = {"perBroker": {"fetch": "1M"}}
    batch["spec"] = {
        "policyRef": {"name": "orders"},
        "level": "L3",
        "throttledRates": throttled,
        "members": [member("etl", "60M")],
    }
    in_force(world, PAY, 60_000_000, Reason.FIRST_QUOTA)
    in_force(world, ETL, 25_000_000, Reason.CONTRACT_CHANGED, of_contract=25_000_000)
    world.readings = lambda: measured(world.now)
    search = budget(
        "search",
        total={"fetch": "100M"},
        members={"tiers": [tier["metadata"]["name"], "batch"]},
        parent={"name": "retail"},
    )
    retail = budget("retail", total={"fetch": "200M"})
    return str(world.write_files(policy, tier, batch, search, retail))


def test_by_budget_each_one_is_below_its_parent_with_what_it_has_and_who_is_limited(
    world: Any, policy: Any, tier: Any
) -> None:
    files = with_budgets(world, policy, tier)
    lines = shown(world, files, "--by", "budget", code=0)
    (at,) = [number for number, line in enumerate(lines) if line.startswith("BUDGET")]
    retail, search = (line.split() for line in lines[at + 1 : at + 3])
    assert (retail[:4], search[:4]) == (
        ["retail", "fetch", "200", "MB/s"],
        ["search", "fetch", "100", "MB/s"],
    )
    assert search[-4:] == ["1", "of", "2", "retail"]
    assert "0" not in retail  # it has no members of its own, so nothing to permit
    assert not any("Delayed" in line for line in lines)
    found = json.loads("\n".join(shown(world, files, "-o", "json")))["budgets"]
    assert [(one["budget"], one["parent"], one["bytesPerSecond"]) for one in found] == [
        ("streaming/retail", None, 84e6),
        ("streaming/search", "streaming/retail", 84e6),
    ]
    assert (found[1]["limitedMembers"], found[1]["members"]) == (1, 2)
    assert [one["permitted"] for one in found] == [None, 255_000_000]


def test_by_budget_it_says_that_there_are_none(world: Any, files: str) -> None:
    assert any("no BandwidthBudget" in line for line in shown(world, files, "--by", "budget"))


def test_by_budget_what_is_not_known_is_not_zero(world: Any, policy: Any, tier: Any) -> None:
    several = with_budgets(world, policy, tier)
    world.readings = lambda: Readings(world.now, 15.0)
    answer = world.run("top", "--once", "-f", several, "-o", "json")
    assert {one["bytesPerSecond"] for one in json.loads(answer.out)["budgets"]} == {None}


def test_it_writes_nothing(world: Any, files: str) -> None:
    before = world.snapshot()
    shown(world, files)
    assert world.snapshot() == before


def ends_after(world: Any, looks: int) -> Callable[[], None]:
    def press() -> None:
        if len(world.waits) == looks:
            raise KeyboardInterrupt

    return press


def test_it_looks_again_every_so_often_until_somebody_ends_it(world: Any, files: str) -> None:
    world.during_wait = ends_after(world, 3)
    answer = world.run("top", "-f", files, "--interval", "7", "-o", "json")
    assert (answer.code, world.waits) == (0, [7, 7, 7])
    assert [json.loads(line)["atSeconds"] for line in answer.out.splitlines()] == [
        1_000_000,
        1_000_007,
        1_000_014,
    ]


def test_an_edited_limit_is_seen_at_the_next_look(
    world: Any, files: str, policy: Any, tier: Any
) -> None:
    def edit() -> None:
        policy["spec"]["brokers"] = {"egress": {"limit": "80M"}}
        world.write_files(policy, tier)
        ends_after(world, 2)()

    world.during_wait = edit
    answer = world.run("top", "-f", files, "-o", "json")
    assert [json.loads(line)["brokers"][0]["limit"] for line in answer.out.splitlines()] == [
        50_000_000,
        80_000_000,
    ]


def test_a_policy_that_cannot_be_read_for_a_moment_is_taken_as_it_was(
    world: Any, files: str, golden: Callable[[str], None]
) -> None:
    def break_file() -> None:
        (world.folder / "all.yaml").write_text("{")
        ends_after(world, 2)()

    world.during_wait = break_file
    answer = world.run("top", "-f", files, "-o", "json")
    assert len(answer.out.splitlines()) == 2
    assert "all.yaml" in answer.err
    golden(answer.err.replace(str(world.folder), "FOLDER").splitlines()[-1])


def test_standard_input_can_be_looked_at_once_only(world: Any) -> None:
    answer = world.run("top", "-f", "-")
    assert (answer.code, "--once" in answer.err) == (1, True)


def test_on_a_terminal_the_table_stays_in_place(world: Any, files: str) -> None:
    world.open_out = Terminal
    world.during_wait = ends_after(world, 2)
    assert world.run("top", "-f", files).out.count("\x1b[H\x1b[J") == 2


def brokers_of(world: Any, files: str, nic: dict[Any, Any]) -> list[Any]:
    """The rows of brokers in JSON with these readings of their NICs."""
    world.readings = lambda: Readings(world.now, 15.0, nic)
    rows: list[Any] = json.loads("\n".join(shown(world, files, "-o", "json")))["brokers"]
    return rows


def spans(at: float, *rates: float) -> tuple[NicSpan, ...]:
    newest = len(rates) - 1
    return tuple(NicSpan(at - 15 * (newest - i), 15.0, rate) for i, rate in enumerate(rates))


def test_a_reading_that_is_too_old_keeps_its_age(world: Any, files: str) -> None:
    broker, *_ = brokers_of(world, files, {(1, OUT): spans(world.now - 100, 30e6, 30e6)})
    assert (broker["pressure"], broker["ageSeconds"]) == ("Unknown", 100)
    assert broker["bytesPerSecond"] is None


def test_a_broker_that_is_read_directly_has_a_word_beside_it(
    world: Any, files: str, policy: Any, tier: Any
) -> None:
    policy["status"] = {"brokers": [{"id": 1, "directSince": "2026-01-01T00:00:00Z"}, {"id": 2}]}
    files = str(world.write_files(policy, tier))
    nic = {(broker, OUT): spans(world.now, 30e6, 30e6) for broker in (1, 2)}
    found = brokers_of(world, files, nic)
    assert {one["id"] for one in found if one["direct"]} == {1}
    assert line_with(shown(world, files), "direct", "1", "egress")


def test_a_load_that_swings_is_over_where_it_is_fullest_as_the_operator_says(
    world: Any, files: str, policy: Any, tier: Any
) -> None:
    policy["spec"]["brokers"] = {"egress": {"limit": "50M"}, "ingress": {"limit": "50M"}}
    policy["status"] = {"brokers": [{"id": 1, "pressure": "Over"}]}
    nic = {
        (1, OUT): spans(world.now, 40e6, 60e6, 45e6, 45e6),
        (1, Direction.INGRESS): spans(world.now, 10e6, 10e6, 10e6, 10e6),
    }
    files = str(world.write_files(policy, tier))
    egress, ingress, *_ = brokers_of(world, files, nic)
    assert [(one["direction"], one["pressure"]) for one in (egress, ingress)] == [
        ("egress", "Over"),
        ("ingress", "Within"),
    ]
    assert (bool(egress["why"]), ingress["why"]) == (True, "")
    policy["status"] = {}
    egress, *_ = brokers_of(world, str(world.write_files(policy, tier)), nic)
    assert egress["pressure"] == "Within"
