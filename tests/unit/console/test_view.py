"""Pages as text, without a browser: what is unknown, what is ours to say, and names that are none of it."""

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.doubles import simulated_console as simulated
from tests.doubles.simulated_console import EPOCH, HOSTILE, SimulatedSource, stopped_at
from tidegate.console import broker_page, brokers_part, markup, member_page, now_page
from tidegate.console.banner import banner, strip
from tidegate.console.choices import Choices
from tidegate.console.history import History, Past
from tidegate.console.levels_part import lanes
from tidegate.console.parts import Kept, page_html
from tidegate.console.server import Console
from tidegate.console.source import read_past
from tidegate.prometheus.series import Series
from tidegate.view.policy import PolicyNow, assumed_topology, quotas_in_force
from tidegate_logic.model import Direction, Level
from tidegate_logic.throttle.nic_status import Pressure

KEY = "streaming/orders"


def now_of(console: Console, source: SimulatedSource) -> PolicyNow:
    found = console.policy(source.objects(), KEY)
    assert found is not None
    return found


def at(seconds: float) -> tuple[Console, SimulatedSource, PolicyNow]:
    console, source = stopped_at(seconds)
    return console, source, now_of(console, source)


def said(now: PolicyNow) -> str:
    return str(banner(now))


def test_a_throttled_evening_has_its_numbers() -> None:
    _, _, now = at(640)
    assert {one.level: one.state for one in now.levels} == {
        Level.L0: "Contract",
        Level.L2: "Throttled",
        Level.L3: "Throttled",
    }
    assert [(one.name, one.way) for one in now.elsewhere] == [
        ("backfill", "fetch"),
        ("indexer", "fetch"),
    ]
    backfill = now.elsewhere[0]
    assert backfill.contract == 180_000_000
    assert backfill.quota is not None
    assert backfill.quota < 60_000_000
    assert backfill.sends == pytest.approx(sum(backfill.by_broker.values()))
    assert quotas_in_force(now)[backfill.entity, Direction.EGRESS] == backfill.quota
    # of a NIC: members, foreign clients and the rest are all of it
    for nic in now.nics:
        assert nic.foreign == 0
        whole = sum(nic.by_level.values()) + (nic.foreign or 0) + (nic.rest or 0)
        assert whole >= (nic.bytes_per_second or 0) - 1


def test_what_fills_a_broker_is_all_of_it_and_its_members_are_in_order_of_bytes() -> None:
    console, _, now = at(640)
    nic = now.nics[0]
    filled = [one.bytes_per_second or 0.0 for one in broker_page.slices_of(nic)]
    assert sum(filled) == pytest.approx(nic.bytes_per_second or 0.0, rel=0.01)
    (*_, members) = broker_page.broker_page(now, 1, console.history, Kept(), Choices())
    shown = re.findall(r"member=[^\"]*?([a-z]+)\"", str(members))
    rates = {one.name: one.by_broker[1] for one in now.members}
    assert shown == sorted(rates, key=lambda name: -rates[name])
    unmeasured = broker_page.slices_of(replace(nic, foreign=None))
    assert {one.bytes_per_second for one in unmeasured} == {None}
    page = page_html(broker_page.broker_page(now, 99, console.history, Kept(), Choices()))
    assert "There is no such live broker" in page


def test_nobody_has_more_than_all_of_a_nic_whose_clients_are_measured_over_a_longer_time() -> None:
    console, _, now = at(640)
    fallen = replace(now.nics[0], bytes_per_second=1_000_000.0)
    assert sum(fallen.by_level.values()) > 1_000_000.0
    now = replace(now, nics=(fallen, *now.nics[1:]))
    page = page_html(broker_page.broker_page(now, 1, console.history, Kept(), Choices()))
    filled = page[page.index("What fills it") : page.index("Members")]
    shares = [int(one) for one in re.findall(r">(\d+) %<", filled)]
    assert 95 <= sum(shares) <= 105


def test_a_broker_that_went_over_has_the_reading_of_then_and_one_without_readings_says_so() -> None:
    console, source, now = at(308)
    page = page_html(broker_page.broker_page(now, 1, console.history, Kept(), Choices()))
    assert re.search(
        r"Over since 08:05:06 \(1 s\), then 98 of 80 MB/s; \d of 3 samples above\.", page
    )
    simulated.without_prometheus(source)
    now = now_of(console, source)
    page = page_html(broker_page.broker_page(now, 1, console.history, Kept(), Choices()))
    assert re.search(r"Unknown since [\d:]+ \(0 s\); its newest reading is \d+ s old", page)
    assert "Unknown: who transfers through this broker." in page


def test_a_member_without_readings_has_words_and_not_an_empty_chart() -> None:
    console, _, now = at(640)
    ways = [one for one in now.members if one.name == "backfill"]
    levels = member_page.not_looked_at("")
    assert 'data-key="member fetch"' in page_html(
        member_page.member_page(now, ways, console.history, levels)
    )
    page = page_html(member_page.member_page(now, ways, History(), levels))
    assert "Its rate is drawn from the second reading on." in page
    assert "data-chart" not in page
    assert "Why: broker 1 egress 98 of 80 MB/s at 08:05:06 UTC, 88.4 MB/s at 08:09:11; now " in page


def test_the_state_of_a_level_is_that_of_its_members() -> None:
    console, source, _ = at(640)
    simulated.contended(source)
    states = {one.level: one.state for one in now_of(console, source).levels}
    assert (states[Level.L3], states[Level.L2]) == ("Contended", "Throttled")
    console, source, _ = at(640)
    simulated.bend(
        source,
        lambda policy, _: [one.update(state="Contract") for one in policy["status"]["levels"]],
    )
    states = {one.level: one.state for one in now_of(console, source).levels}
    assert (states[Level.L3], states[Level.L0]) == ("Throttled", "Contract")


def test_lanes_are_always_four_with_times_and_colours_named_and_one_broker_has_a_frame() -> None:
    console, _, now = at(640)
    part = lanes(now, console.history, Choices())
    assert part.rows is not None
    assert [row.name for row in part.rows] == ["L0", "L1", "L2", "L3", "events", "ticks"]
    assert "no tier" in str(part.rows[1])
    assert str(part.rows[-1]).count('<b style="left:') == 5
    assert set(re.findall(r'<i class="state-(\w+)"', part.html)) == {
        "contract", "throttled", "relaxing", "stepping", "contended", "none"
    }  # fmt: skip
    tiles = brokers_part.heat(now, Kept(), Choices()).rows or ()
    assert [tile.name for tile in tiles] == ["1", "2", "3"]
    assert not any(">direct</small>" in tile.html for tile in tiles)
    nics = tuple(replace(nic, is_direct=nic.broker == 2) for nic in now.nics)
    direct = replace(now, nics=nics)
    tiles = brokers_part.heat(direct, Kept(), Choices()).rows or ()
    assert [">direct</small>" in tile.html for tile in tiles] == [False, True, False]
    assert sum('class="tile worst"' in tile.html for tile in tiles) == 1


@pytest.mark.parametrize(
    ("reason", "shown", "problem"),
    [
        ("InSync", True, ""),
        ("TierNotAllowed", False, ""),
        ("NamespacesUnread", False, "said nothing yet of the BusinessTiers of namespace elsewhere"),
        (None, False, "said nothing yet of the BusinessTiers of namespace elsewhere"),
    ],
)
def test_a_tier_of_another_namespace_is_shown_as_the_operator_says(
    reason: str | None, shown: bool, problem: str
) -> None:
    """The console may not read the labels of namespaces, which decide."""
    console, source, _ = at(640)

    def move(policy: dict[str, Any], tiers: list[dict[str, Any]]) -> None:
        policy["spec"]["allowedTiers"] = {
            "namespaces": "Selector",
            "selector": {"matchLabels": {"a": "b"}},
        }
        for tier in tiers:
            if tier["metadata"]["name"] == "reports":
                tier["metadata"]["namespace"] = "elsewhere"
                tier["spec"]["policyRef"] = {"name": "orders", "namespace": "streaming"}
                ready = {"type": "Ready", "status": "True", "reason": reason}
                tier["status"]["conditions"] = [] if reason is None else [ready]

    simulated.bend(source, move)
    now = now_of(console, source)
    assert any(one.tier_key == "elsewhere/reports" for one in now.members) is shown
    assert problem in " ".join(now.problems)
    assert bool(problem) == bool(now.problems)


def test_what_would_help_is_said_by_what_may_be_lowered_there() -> None:
    _, _, now = at(308)
    assert "18 MB/s</span> over its limit; L1 to L3 send" in said(now)
    assert "can be throttled" in said(now)
    little = replace(now.over[0], by_level={Level.L0: 60e6, Level.L2: 5e6})
    poor = said(replace(now, nics=(little,)))
    assert "quotas cannot help" in poor
    assert '<a href="/what-if?policy=streaming%2Forders">Try it on What if</a>' in poor
    unmeasured = replace(now.over[0], foreign=None)
    assert "which clients cause that is unknown" in said(replace(now, nics=(unmeasured,)))
    swings = replace(now.over[0], bytes_per_second=60e6)
    assert "counts as over until it stays there" in said(replace(now, nics=(swings,)))


def test_colours_and_words_of_a_broker_agree_with_its_number() -> None:
    _, _, now = at(308)
    over = now.over[0]
    limit = float(over.limit or 0)

    def shown(pressure: Pressure, share: float) -> tuple[str, str]:
        nic = replace(over, pressure=pressure, bytes_per_second=share * limit)
        page = said(replace(now, nics=(nic,)))
        return brokers_part._nic_tone(nic), "yes" if "Above its limit for now" in page else "no"

    assert shown(Pressure.OVER, 1.04) == ("over", "no")
    assert shown(Pressure.OVER, 0.8) == ("near", "no")
    assert shown(Pressure.WITHIN, 1.07) == ("near", "yes")
    assert shown(Pressure.WITHIN, 0.95) == ("near", "no")
    assert shown(Pressure.WITHIN, 0.5) == ("within", "no")


def test_what_is_stale_is_unknown_and_keeps_its_age() -> None:
    console, source, _ = at(640)
    simulated.without_prometheus(source)
    now = now_of(console, source)
    assert {one.pressure for one in now.nics} == {Pressure.UNKNOWN}
    assert all(one.share is None and one.rest is None for one in now.nics)
    assert all(one.sends is None and one.delayed_seconds is None for one in now.members)
    age = now.input_of("Prometheus")
    assert not age.is_known(now.now_seconds)
    assert 300 <= now.now_seconds - (age.at_seconds or 0) < 320
    page = str(brokers_part.heat(now, Kept(), Choices()))
    assert page.count("hatched") == 3
    assert " 0 %" not in page
    assert "Every broker is within" not in said(now)


def test_no_reading_ever_is_said_to_be_never() -> None:
    console, source, _ = at(640)
    source.measured_now = simulated.Measured(problem="no right to read Secret streaming/prometheus")
    now = now_of(console, source)
    assert "never read" in str(brokers_part.heat(now, Kept(), Choices()))
    assert "last known never" in strip(now)


def test_history_keeps_gaps_and_forgets_after_its_time() -> None:
    console, source, _ = at(640)
    simulated.without_prometheus(source)
    console.note()
    points = console.history.nic(KEY, (1, Direction.EGRESS))
    assert points[-1] == (source.now, None)
    assert points[0][0] >= source.now - 24 * 3600
    assert console.history.nic(KEY, (1, Direction.EGRESS), 60)[0][0] >= source.now - 60
    member = list(console.history.member(KEY, "streaming/reports/backfill", Direction.EGRESS))
    assert member[-1][1] is None
    assert member[-1][2] == member[-2][2] == 3 * 4_320_000, (
        "of three brokers, also without a reading"
    )
    assert EPOCH <= member[0][0] <= EPOCH + 5
    assert History().levels(KEY) == {}
    states = [span.state for span in console.history.levels(KEY)[Level.L3]]
    assert states[0] == "Contract"
    assert "Throttled" in states
    assert "Relaxing" in states


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_text_wherever_it_stands(name: str) -> None:
    console, source, _ = at(640)

    def change(policy: dict, tiers: list) -> None:  # type: ignore[type-arg]
        tiers[-1]["spec"]["members"][0]["user"] = name  # member names are letters and digits
        tiers[-1]["status"]["members"][0] |= {"message": name}
        policy["status"]["conditions"][0] |= {"message": name, "reason": name}
        policy["status"]["clusterId"] = name
        policy["status"]["levels"][0]["because"] = name

    simulated.bend(source, change)
    now = now_of(console, source)
    page = page_html(now_page.now_page(now, console.history))
    ways = [one for one in now.members if one.entity.user == name]
    assert ways
    page += page_html(
        member_page.member_page(now, ways, console.history, member_page.not_looked_at(name))
    )
    tags = set(re.findall(r"<\s*([a-zA-Z][a-zA-Z0-9]*)", page))
    assert tags <= {
        "a", "b", "bdi", "button", "details", "div", "figcaption", "figure", "h2", "h3", "i", "li", "p",
        "section", "small", "span", "strong", "summary", "table", "tbody", "td", "th", "thead", "tr", "ul",
    }  # fmt: skip
    assert "<img" not in page
    assert "<script" not in page
    assert page.count("</bdi>") == page.count("<bdi")
    if len(name) > 60:
        assert name not in re.sub(r'title="[^"]*"', "", markup.name(name))


def test_a_link_keeps_every_sign_of_a_name() -> None:
    link = markup.address_of("/member", "a/b", member='x&y"/<z>?')
    assert link == "/member?policy=a%2Fb&member=x%26y%22%2F%3Cz%3E%3F"


def test_leaders_that_are_not_known_are_taken_as_even_where_a_member_moves_bytes() -> None:
    _, _, now = at(640)
    assert now.declared is not None
    topology = assumed_topology(now, now.declared.tiers or ())
    assert topology.brokers == {1, 2, 3}
    assert topology.topics["orders"].leaders == {1: 4, 2: 4, 3: 4}


def test_a_policy_that_does_not_read_is_shown_with_its_problem() -> None:
    console, source, _ = at(640)
    simulated.bend(
        source, lambda policy, _: policy["spec"].update(brokers={"egress": {"limit": "x"}})
    )
    now = now_of(console, source)
    assert now.declared is None
    assert any("spec.brokers.egress.limit" in one for one in now.problems)
    assert "No broker's load is known" in said(now)
    assert "No action needed" not in said(now)


def test_the_past_is_put_before_what_was_noted() -> None:
    console, _, now = at(640)
    noted = console.history.levels(KEY)[Level.L3][0]
    place = (1, Direction.EGRESS)
    first = console.history.nic(KEY, place)[0][0]
    past = Past(
        {place: [(EPOCH - 60, 0.5), (EPOCH + 900, 9.0)]},
        {
            Level.L3: [
                (EPOCH - 900, "Throttled"),
                (EPOCH - 870, "Throttled"),
                (EPOCH - 600, "Throttled"),  # minutes in between are not known
                (EPOCH - 60, "Contract"),
                (EPOCH - 30, "Contract"),
            ]
        },
    )
    console.history.begin(KEY, past)
    assert console.history.nic(KEY, place)[:2] == [
        (EPOCH - 60, 0.5),
        (first, pytest.approx(0, abs=2)),
    ]
    spans = console.history.levels(KEY)[Level.L3]
    assert [(one.state, one.begin, one.end) for one in spans[:3]] == [
        ("Throttled", EPOCH - 900, EPOCH - 870),
        ("Throttled", EPOCH - 600, EPOCH - 600),
        ("Contract", EPOCH - 60, noted.end),
    ]
    assert now.key == KEY


def test_the_past_is_asked_for_by_policy_and_read_by_broker_and_level() -> None:
    class Prometheus:
        def __init__(self) -> None:
            self.asked: list[str] = []

        def query(self, promql: str, **_: Any) -> list[Series]:
            self.asked.append(promql)
            if "tier_state" in promql:
                contract = Series({"level": "L3", "state": "Contract"}, ((10.0, 1.0), (30.0, 1.0)))
                throttled = Series({"level": "L3", "state": "Throttled"}, ((20.0, 1.0),))
                return [contract, throttled]
            return [Series({"broker": "2", "direction": "egress"}, ((10.0, 0.5),))]

    prometheus = Prometheus()
    past = read_past(prometheus, KEY)  # type: ignore[arg-type]
    assert all('{policy_namespace="streaming",policy="orders"}' in one for one in prometheus.asked)
    assert past.nics == {(2, Direction.EGRESS): ((10.0, 0.5),)}
    assert past.levels == {Level.L3: [(10.0, "Contract"), (20.0, "Throttled"), (30.0, "Contract")]}
