"""`tidegate import --from-usage` on a made-up cluster and a Prometheus in memory: who gets a
contract by usage, of which rate, and whose series count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.usage_history import UsageHistory
from tests.unit.prometheus.lying_server import LyingServer, serving
from tidegate.commands.import_tiers import Proposal, text_of, tiers_of
from tidegate.commands.import_usage import LEAST_BYTES_PER_SECOND, readable
from tidegate.errors import InvalidResource, Unreachable
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS
from tidegate.resources.kinds import parse_object
from tidegate.resources.rates import parse_byte_rate
from tidegate_logic.model import Default, Entity, Level, QuotaKey
from tidegate_logic.reasons import Reason

FETCH, PRODUCE = QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.PRODUCER_BYTE_RATE
HOUR, DAY = 3600, 86_400
NOW = 1_700_000_123.0
END = 1_700_000_100
START = END - 7 * DAY
ZOOKEEPER = ("--zookeeper", "zk-1:2181/kafka")
USAGE = ("--from-usage", "2d")
ORDERS = {"cluster": "orders", "job": "kafka"}


def always(rate: float) -> Callable[[int], float]:
    return lambda at: rate


def between(start: int, end: int, rate: float) -> Callable[[int], float | None]:
    return lambda at: rate if start < at <= end else None


def add(
    history: UsageHistory,
    metric: str,
    resource: str,
    values: Callable[[int], float | None],
    *,
    broker: int = 1,
    **labels: str,
) -> None:
    """A series by the names of this project's rules, from the broker's own exporter."""
    named = {"__name__": f"kafka_quota_{metric}", "resource": resource, "broker": str(broker)}
    history.add("", values, **{**named, "instance": f"k{broker}:9404", **ORDERS, **labels})


@pytest.fixture
def history() -> UsageHistory:
    """Clients of three brokers over a week, and one of another cluster on the same Prometheus."""
    made = UsageHistory()
    for broker in (1, 2, 3):
        add(made, "byte_rate", "Fetch", always(4e6 * broker), broker=broker, user="search")
        add(made, "byte_rate", "Produce", always(0.0), broker=broker, user="search")
        add(made, "byte_rate", "Fetch", always(7e6), broker=broker, user="checkout")
    add(made, "byte_rate", "Produce", nightly, broker=2, user="nightly-etl")
    late = between(END - 5 * HOUR, END, 40_000.0)
    add(made, "byte_rate", "Produce", late, broker=3, user="newcomer")
    add(made, "byte_rate", "Fetch", always(0.0), broker=3, user="idle")
    add(made, "byte_rate", "Produce", always(6e3), user="checkout", client_id="mirror")
    delays = between(END - 2 * DAY, END, 900.0)
    add(made, "throttle_time", "Fetch", delays, broker=3, user="search")
    add(made, "byte_rate", "Fetch", always(9e9), user="stranger", cluster="other", instance="o:1")
    return made


def nightly(at: int) -> float:
    """Five minutes a day."""
    return 2e6 if (at - START) % DAY == 300 else 0.0


@pytest.fixture
def server(history: UsageHistory) -> Iterator[LyingServer]:
    with serving(history) as started:
        yield started


@pytest.fixture
def measured(policy: Any, server: LyingServer) -> Any:
    """The policy with its Prometheus and a selector."""
    policy["spec"]["metrics"] = {
        "prometheus": {"url": server.url},
        "matchers": {"cluster": "orders"},
    }
    return policy


@pytest.fixture
def cluster(world: Any, measured: Any) -> Any:
    """A cluster where one user has a quota, and everybody is metered."""
    world.now = NOW
    world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, measured)
    world.store.put(Entity("checkout"), {FETCH: "50000000"})
    world.store.put(Entity(Default.DEFAULT), {FETCH: "9007199254740991"})
    return world


def tiers(text: str) -> dict[str, Any]:
    found = {one["metadata"]["name"]: one for one in yaml.safe_load_all(text)}
    for one in found.values():
        parse_object(one, strict=True)
    return found


def contracts(text: str) -> dict[str, dict[str, str]]:
    return {
        member["name"]: member["contract"]["perBroker"]
        for one in tiers(text).values()
        for member in one["spec"]["members"]
    }


def comments(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.lstrip().startswith("#")]


def test_clients_without_a_quota_get_contracts_by_what_they_moved(
    cluster: Any, golden: Callable[..., None]
) -> None:
    before = cluster.snapshot()
    answer = cluster.run("import", "--from-usage", "7d")
    assert answer.code == 0, answer.err
    assert cluster.snapshot() == before
    assert contracts(answer.out) == {
        "checkout": {"fetch": "50M"},  # its quota as it stands, whatever it moved
        "search": {"fetch": "15.6M"},  # 12 MB/s on broker 3, and 30 %
        "nightly-etl": {"produce": "2.6M"},  # five minutes a day
        "newcomer": {"produce": "100k"},
    }
    assert {name.split("-")[0] for name in tiers(answer.out)} == {"imported", "usage"}
    golden(answer.out, "tiers")
    golden(answer.err, "notes")


def test_comments_say_the_peak_the_period_and_how_much_is_known(cluster: Any) -> None:
    said = "\n".join(comments(cluster.run("import", "--from-usage", "7d").out))
    assert "12 MB/s on broker 3" in said
    assert "throttled on 2 days, so it wanted more" in said
    assert "produce: nothing was moved, so none is proposed" in said
    assert "fetch: no rate was seen, so none is proposed" in said
    assert "2023-11-07T22:15:00Z to 2023-11-14T22:15:00Z: seen for 168 h" in said
    assert "seen for 5 h; rates of its brokers are known for 168 h of 168 h" in said
    assert said.count("seen for less than a day") == 1


def test_who_gets_none_is_said(cluster: Any) -> None:
    said = cluster.run("import", *USAGE).err
    assert "1 client had no traffic in this time" in said
    assert "user=checkout, client-id=mirror" in said
    assert "1 client seen for less than a day" in said


def test_another_cluster_on_the_same_prometheus_never_counts(
    cluster: Any, history: UsageHistory
) -> None:
    assert "stranger" not in cluster.run("import", *USAGE).out
    assert {one.matchers["cluster"] for one in history.asked} == {("=", "orders")}


def test_two_clusters_that_the_selector_does_not_tell_apart_are_refused(
    cluster: Any, history: UsageHistory
) -> None:
    add(history, "byte_rate", "Fetch", always(5.0), user="x", instance="z:1")
    answer = cluster.run("import", *USAGE)
    assert (answer.code, answer.out) == (1, "")
    assert "Two sources speak for broker 1 at the same time" in answer.err


def test_brokers_of_others_are_left_out_with_a_note(cluster: Any, history: UsageHistory) -> None:
    add(history, "byte_rate", "Fetch", always(5e6), broker=101, user="x")
    answer = cluster.run("import", *USAGE)
    assert "x" not in contracts(answer.out)
    assert "Broker 101: there are rates of a broker that the cluster does not have" in answer.err


def test_members_of_tiers_get_none(cluster: Any, tier: Any) -> None:
    tier["spec"]["members"][0]["user"] = "search"
    cluster.kubernetes.create(BUSINESS_TIERS, tier)
    assert "search" not in contracts(cluster.run("import", *USAGE).out)


def test_levels_and_patterns_count_as_for_quotas(cluster: Any) -> None:
    answer = cluster.run(
        *("import", *USAGE, "--match", "se*", "--match", "night*"),
        *("--level-of", "search=L0"),
    )
    assert contracts(answer.out).keys() == {"search", "nightly-etl"}
    assert {one["spec"]["level"] for one in tiers(answer.out).values()} == {"L0", "L3"}


def test_the_headroom_is_the_policys_or_the_commands(cluster: Any) -> None:
    answer = cluster.run("import", *USAGE, "--headroom-percent", "25")
    assert contracts(answer.out)["search"] == {"fetch": "15M"}
    assert "plus 25 %" in answer.out


def test_a_shorter_time_is_asked_for_as_such(cluster: Any, history: UsageHistory) -> None:
    answer = cluster.run("import", "--from-usage", "12h")
    assert answer.code == 0, answer.err
    assert {one.start for one in history.asked if one.form == "count"} == {END - 12 * HOUR}
    assert "nightly-etl" not in contracts(answer.out)


def test_files_need_no_kubernetes(world: Any, cluster: Any, measured: Any) -> None:
    file = cluster.write_files(measured)
    asked = len(world.asked_as)
    answer = cluster.run("import", *USAGE, "-f", file)
    assert "search" in contracts(answer.out)
    assert len(world.asked_as) == asked


def test_an_address_on_the_command_line_takes_the_place_of_the_policys(
    cluster: Any, measured: Any, server: LyingServer
) -> None:
    measured["spec"]["metrics"]["prometheus"]["url"] = "http://127.0.0.1:1"
    file = cluster.write_files(measured)
    answer = cluster.run("import", *USAGE, "-f", file, "--prometheus", server.url)
    assert "search" in contracts(answer.out)


def test_without_a_policy_the_address_and_a_selector_are_enough(
    world: Any, server: LyingServer
) -> None:
    world.now = NOW
    options = (*USAGE, "--prometheus", server.url)
    answer = world.run("import", "n/orders", *ZOOKEEPER, *options, "--matcher", "cluster=orders")
    assert answer.code == 0, answer.err
    assert contracts(answer.out)["search"] == {"fetch": "15.6M"}
    assert {one["metadata"]["namespace"] for one in tiers(answer.out).values()} == {"n"}
    assert "stranger" not in answer.out


def test_without_a_selector_it_says_what_to_give(
    cluster: Any, measured: Any, history: UsageHistory
) -> None:
    del measured["spec"]["metrics"]["matchers"]
    answer = cluster.run("import", *USAGE, "-f", cluster.write_files(measured))
    assert (answer.code, answer.out, history.asked) == (1, "", [])
    assert "Set spec.metrics.matchers in the policy, or give --matcher LABEL=VALUE" in answer.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((*USAGE, *ZOOKEEPER), "--prometheus URL and --matcher LABEL=VALUE"),
        (("--from-usage", "week"), "Write it as 12h or 7d"),
        (("--from-usage", "31d"), "30 days at most"),
        ((*USAGE, "--strimzi"), "Run import once with each of them"),
        ((*USAGE, "--matcher", "cluster"), "LABEL=VALUE"),
        ((*USAGE, "--matcher", "cluster=other"), "contradicts the policy"),
        (("--prometheus", "http://x:9090"), "Add --from-usage 7d"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_printed(
    cluster: Any, options: tuple[str, ...], said: str
) -> None:
    answer = cluster.run("import", *options)
    assert (answer.code, answer.out) == (1, "")
    assert said in answer.err


def test_a_policy_without_metrics_says_what_to_give(cluster: Any, measured: Any) -> None:
    del measured["spec"]["metrics"]
    answer = cluster.run("import", *USAGE, "-f", cluster.write_files(measured))
    assert (answer.code, answer.out) == (1, "")
    assert "Policy streaming/orders has no spec.metrics" in answer.err


def test_a_prometheus_that_has_nothing_is_an_error_and_no_empty_answer(
    cluster: Any, history: UsageHistory
) -> None:
    history.series.clear()
    answer = cluster.run("import", *USAGE)
    assert (answer.code, answer.out) == (1, "")
    assert "Kafka meters only clients that some quota covers" in answer.err


def test_a_prometheus_that_keeps_less_is_said(cluster: Any, history: UsageHistory) -> None:
    history.series = [
        (metric, labels, lambda at, values=values: values(at) if at > END - 3 * DAY else None)
        for metric, labels, values in history.series
    ]
    answer = cluster.run("import", "--from-usage", "7d")
    assert "Rates are not known for all of the 168 h asked for: broker 1 72 h" in answer.err
    assert "known for 72 h of 168 h" in answer.out


def test_brokers_that_do_not_answer_are_a_note(cluster: Any) -> None:
    def silent(patterns: object) -> None:
        raise Unreachable(Reason.BROKERS_UNREACHABLE, "No broker answered.")

    made = cluster.topology()
    made.read = silent
    cluster.topology = lambda: made
    answer = cluster.run("import", *USAGE)
    assert "search" in contracts(answer.out)
    assert "Which brokers live is not known" in answer.err


def test_a_plan_with_the_printed_tiers_leaves_existing_quotas(
    cluster: Any, measured: Any, tmp_path: Path
) -> None:
    file = tmp_path / "tiers.yaml"
    file.write_text(cluster.run("import", *USAGE).out)
    policies = tmp_path / "policy.yaml"
    policies.write_text(yaml.safe_dump(measured))
    answer = cluster.run("plan", "-f", str(policies), "-f", str(file), "-o", "json")
    changed = {one["entity"]["user"] for one in yaml.safe_load(answer.out)["changes"]}
    assert changed == {"search", "nightly-etl", "newcomer"}


@given(st.integers(LEAST_BYTES_PER_SECOND, 10**13))
def test_a_proposed_rate_is_written_exactly(rate: int) -> None:
    assert parse_byte_rate(readable(rate)) == rate


@pytest.mark.parametrize(
    ("rate", "text"),
    [(100_000, "100k"), (1_240_000, "1.24M"), (15_600_000, "15.6M"), (2 * 10**9, "2G")],
)
def test_a_proposed_rate_is_short(rate: int, text: str) -> None:
    assert readable(rate) == text


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=200), max_size=4))
def test_comments_never_change_what_the_yaml_says(users: list[str]) -> None:
    members = [
        Proposal(
            Level.L2,
            {"name": f"m{at}", "user": user, "contract": {"perBroker": {"fetch": "1M"}}},
            {"fetch": 10**6},
            (f"fetch: number {at}",),
        )
        for at, user in enumerate(users)
    ]
    try:
        made = tiers_of(members, "n/orders", throttled_percent=20, prefix="usage")
    except InvalidResource:  # a name that Kafka cannot have
        return
    assert list(yaml.safe_load_all(text_of(made))) == [manifest for manifest, _ in made]
