"""What the page Now says in each state: what is not known is said with its age, and is never zero
or "at the contracted rate". Pictures of the same are taken by `make console-states`.
"""

import html
import re
from dataclasses import replace
from functools import cache
from itertools import groupby

import pytest

from tests.doubles import simulated_console as simulated
from tests.doubles.simulated_console import HOLDER, KEY, moments, stopped_at
from tests.unit.console.states import STATES, THROTTLED_AT, TONES, Bend
from tests.unit.simulation.loads import evening
from tidegate.console.banner import OVER, SPENT, WATCH, verdict
from tidegate.console.history import History
from tidegate.console.now_page import no_policy, now_page
from tidegate.console.parts import page_html
from tidegate.console.sentences import began, cause_of
from tidegate.view.policy import (
    STEADY_SECONDS,
    LeaseNow,
    Measured,
    PolicyNow,
    policy_now,
    quotas_in_force,
)
from tidegate_logic.model import Direction, Level, NicSpan


def page(seconds: float, bend: Bend) -> str:
    console, source = stopped_at(seconds)
    bend(source)
    simulated.held_for_a_while(console, source)
    objects = source.objects()
    now = console.policy(objects, KEY)
    if now is None:
        return page_html(no_policy(objects.problem, objects.heard_at_seconds, source.now))
    return page_html(now_page(now, console.history))


def text_of(markup: str) -> str:
    """As a browser shows it: blocks are lines, and no spaces are doubled."""
    lines = re.sub(r"</(tr|li|h2|p|div|section|td|th)>", "\n", re.sub(r"<svg.*?</svg>", "", markup))
    plain = html.unescape(re.sub(r"<[^>]+>", "", lines))
    return "\n".join(" ".join(line.split()) for line in plain.splitlines())


@pytest.mark.parametrize("state", STATES)
def test_a_state_is_said_in_words(state: str) -> None:
    seconds, bend, texts = STATES[state]
    text = text_of(page(seconds, bend))
    for one in texts:
        assert one in text


@pytest.mark.parametrize("state", TONES)
def test_a_state_has_its_colour_its_word_in_the_title_and_what_to_do(state: str) -> None:
    seconds, bend, _ = STATES[state]
    tone, word, to_do = TONES[state]
    shown = page(seconds, bend)
    assert f'class="banner tone-{tone}"' in shown
    (line,) = re.findall(r'<p class="next">.*?</p>', shown)
    assert text_of(line).startswith(to_do)
    assert len(text_of(line)) < 110, "one line at 16 px"
    assert f'data-title="{word}: orders - Tidegate"' in shown
    assert ('href="/what-if?policy=streaming%2Forders">Try it' in shown) is (tone == "spent")


@pytest.mark.parametrize(
    ("seconds", "tone", "text"),
    [
        (200.0, "within", "All brokers within limits - fullest is broker 1 at 72 %"),
        (308.0, "over", "Broker 1 egress over by 18 MB/s - L3, L2 throttled, not enough yet"),
        (311.0, "watch", "Throttling L3, L2 - holding, bursts up to 123 % on broker 2"),
        (640.0, "watch", "Throttling L3, L2 - holding, fullest is broker"),
    ],
)
def test_the_banner_says_it_in_one_sentence(seconds: float, tone: str, text: str) -> None:
    console, source = stopped_at(seconds)
    now = console.policy(source.objects(), KEY)
    assert now is not None
    found = verdict(now)
    assert found.tone == tone
    assert found.text.startswith(text)


@cache
def evening_of(text: str | None = None) -> tuple[PolicyNow, ...]:
    """The policy after each pass of the evening."""
    found = []
    now: PolicyNow | None = None
    for one in moments(text or evening()):
        seen, measured = one.observation, Measured(one.observation.readings)
        now = policy_now(one.objects, KEY, measured, seen.now_seconds, before=now)
        if now is not None and one.at_seconds >= 0:
            found.append(now)
    return tuple(found)


def test_a_level_that_recovers_is_called_so_everywhere() -> None:
    recovering = [
        now
        for now in evening_of()
        if not now.over and {one.state for one in now.levels} >= {"Relaxing"}
    ]
    assert recovering
    for now in recovering:
        back = [one.level for one in now.levels if one.state == "Relaxing"]
        text = verdict(now).text.partition(" - ")[0]
        assert text.endswith(f"{', '.join(sorted(back, reverse=True))} recovering")
        shown = text_of(page_html(now_page(now, History())))
        assert "way back" not in shown
        assert "Relaxing" not in shown
        members = [one for one in now.elsewhere if one.level in back]
        assert {one.state for one in members} == {"Relaxing"}
        assert f"{back[-1]} recovering: " in shown


def limited(limit: str) -> str:
    return evening().replace("limit: 80M", f"limit: {limit}")


@pytest.mark.parametrize(("limit", "is_spent"), [("80M", False), ("60M", True)])
def test_the_banner_stays_red_while_a_load_swings_around_its_limit(
    limit: str, is_spent: bool
) -> None:
    """Red comes with the first reading that says so, and is not left and come back to at once."""
    runs = [
        (tone, [now.now_seconds for now in group])
        for tone, group in groupby(evening_of(limited(limit)), lambda now: verdict(now).tone)
    ]
    tones = [tone for tone, _ in runs]
    assert OVER in tones
    assert (SPENT in tones) is is_spent
    for (_, before), (tone, calm), (after, _) in zip(runs, runs[1:], runs[2:], strict=False):
        if tone != after == OVER:
            assert calm[-1] - before[-1] > STEADY_SECONDS


def test_a_reading_below_the_limit_leaves_the_banner_red_for_half_a_minute() -> None:
    now = next(one for one in evening_of() if one.over and verdict(one).tone == OVER)
    read = now.readings
    assert read is not None
    nic = now.over[0]
    place, limit = (nic.broker, nic.direction), float(nic.limit or 0)

    def toned(seconds_ago: float) -> tuple[str, str]:
        at = now.now_seconds
        spans = (NicSpan(at - seconds_ago, 5, 1.2 * limit), NicSpan(at, 5, 0.6 * limit))
        readings = replace(read, nic={place: spans})
        swings = replace(nic, bytes_per_second=0.6 * limit)
        found = verdict(replace(now, nics=(swings,), measured=Measured(readings)))
        return found.tone, found.text

    tone, text = toned(STEADY_SECONDS - 1)
    assert tone == OVER
    assert text.startswith("Broker 1 egress over by up to 16 MB/s - ")
    below = "Throttling L3 - broker 1 egress below the limit again"
    assert toned(STEADY_SECONDS + 1) == (WATCH, below)


def test_where_quotas_cannot_help_the_banner_says_what_does_by_what_fills_the_broker() -> None:
    now = next(one for one in evening_of() if one.over)
    nic = now.over[0]

    def to_do(**filled: object) -> str:
        return verdict(replace(now, nics=(replace(nic, **filled),))).to_do  # type: ignore[arg-type]

    assert "lower an L0 contract" in to_do(by_level={Level.L0: 90e6}, foreign=1e6)
    assert to_do(by_level={}, foreign=90e6).endswith(
        "put clients without a tier into one: they send 90 MB/s there."
    )
    assert "slow down replication, which takes 97 MB/s" in to_do(by_level={}, foreign=1e6)
    assert to_do(by_level={Level.L3: 90e6}).startswith("Nothing to do yet: ")


def test_a_cause_is_what_was_read_then_and_never_what_is_carried_now() -> None:
    throttled = [
        (now, one) for now in evening_of() for one in now.levels if one.state == "Throttled"
    ]
    assert {one.level for _, one in throttled} == {Level.L2, Level.L3}
    for now, one in throttled:
        cause = began(now, one)
        found = re.fullmatch(
            r"broker \d egress ([\d.]+) of 80 MB/s at [\d:]+ UTC(, ([\d.]+) MB/s at [\d:]+)?", cause
        )
        assert found, cause
        assert float(found[1]) > 80
        assert float(found[3] or 81) > 80
        assert re.fullmatch(r".*; now [\d.]+ [kM]B/s(, [\d.]+ [kM]B/s)*", cause_of(now, one))
    now, one = throttled[0]
    assert any(", 88.4 MB/s at 08:09:11" in began(now, one) for now, one in throttled)
    lost = replace(one, because="now broker 3 egress 59 of 80 MB/s")
    assert cause_of(now, lost) == "the operator has no record of the cause"


def test_a_level_that_the_calendar_limits_is_said_beside_one_that_is_throttled() -> None:
    now = next(one for one in evening_of() if one.levels and not one.over and _below(one))
    because = "limited by calendar to 20 % of its contracts until 2026-11-21T09:00:00Z"
    levels = tuple(
        replace(one, because=because, state="Throttled") if one.level is Level.L3 else one
        for one in now.levels
    )
    found = verdict(replace(now, levels=levels))
    assert "L3 limited by calendar" in found.text
    assert "Throttling L3" not in found.text


def _below(now: PolicyNow) -> bool:
    return {one.level for one in now.members if one.is_throttled} >= {Level.L3}


def test_no_load_at_all_is_grey_and_an_operator_that_is_gone_amber() -> None:
    console, source = stopped_at(200.0)
    now = console.policy(source.objects(), KEY)
    assert now is not None
    assert verdict(replace(now, nics=())).tone == "unsure"
    gone = replace(now, lease=LeaseNow("", now.now_seconds))
    assert (verdict(gone).tone, verdict(gone).word) == ("watch", "no operator")


@pytest.mark.parametrize("state", ["Prometheus away", "Kafka away", "API server away", "paused"])
def test_who_is_throttled_is_never_said_to_be_at_the_contract(state: str) -> None:
    seconds, bend, _ = STATES[state]
    assert "All members are at their contracted rates" not in text_of(page(seconds, bend))


def test_what_is_not_known_is_greyed_and_never_zero() -> None:
    shown = page(THROTTLED_AT, simulated.without_prometheus)
    assert shown.count('class="nic hatched"') == 3
    assert not re.search(r">0(\.0)? (%|kB/s|MB/s)", shown)
    shown = page(THROTTLED_AT, simulated.without_kafka)
    assert re.findall(r'<section[^>]* class="aged" aria-labelledby="(\w+)"', shown) == ["lanes"]
    assert 'class="unknown hatched">Unknown for every member' in shown
    shown = page(THROTTLED_AT, simulated.without_kubernetes)
    aged = re.findall(r'<section[^>]* class="aged" aria-labelledby="(\w+)"', shown)
    assert aged == ["lanes", "below", "events", "conditions"]
    assert "hatched" not in shown  # loads are of now


def test_a_member_that_is_held_at_its_contract_is_not_in_the_way() -> None:
    shown = text_of(page(THROTTLED_AT, simulated.paused))
    assert "payments" not in shown
    assert "Not at the contracted rate for other reasons" not in shown


def test_who_is_throttled_is_said_with_the_broker_that_it_is_for_also_when_it_is_enough() -> None:
    shown = text_of(page(THROTTLED_AT, lambda _: None))
    assert "Every broker is within its limits." in shown
    assert re.search(
        r"L3 throttled: backfill, .* of 180 MB/s, since 08:09:11 \(\d+ s\)\. "
        r"Why: broker 1 egress 98 of 80 MB/s at 08:05:06 UTC, 88.4 MB/s at 08:09:11; "
        r"now [\d.]+ MB/s\.\n",
        shown,
    )


def test_who_is_throttled_while_paused_keeps_their_quotas_for_what_if() -> None:
    console, source = stopped_at(THROTTLED_AT)
    simulated.paused(source)
    now = console.policy(source.objects(), KEY)
    assert now is not None
    assert sorted(quotas_in_force(now).values()) == [4_320_000, 12_000_000]


def test_an_operator_that_is_gone_is_said_before_whether_it_is_enough() -> None:
    def gone(source: simulated.SimulatedSource) -> None:
        leases = {KEY: LeaseNow("", source.now)}
        source.objects_now = replace(source.objects_now, leases=leases)

    shown = text_of(page(THROTTLED_AT, gone))
    assert "No replica of the operator holds the Lease: no quota changes until one does." in shown
    assert "It is enough now" not in shown
    assert HOLDER.partition("_")[0] not in shown


def test_a_way_without_a_contract_does_not_make_a_paused_policy_unknown() -> None:
    def also_produces(source: simulated.SimulatedSource) -> None:
        readings = source.measured_now.readings
        assert readings is not None
        clients = {
            (entity, broker, Direction.INGRESS): one
            for (entity, broker, _), one in readings.clients.items()
        }
        readings = replace(readings, clients={**readings.clients, **clients})
        source.measured_now = replace(source.measured_now, readings=readings)
        simulated.paused(source)

    shown = text_of(page(THROTTLED_AT, also_produces))
    assert "is unknown" not in shown
    assert "L3 throttled: backfill" in shown


def test_a_member_that_the_operator_has_not_seen_yet_is_said_and_not_taken_as_at_its_contract() -> (
    None
):
    def with_a_new_tier(source: simulated.SimulatedSource) -> None:
        simulated.bend(source, lambda _, tiers: tiers[-1].pop("status"))

    shown = text_of(page(200.0, with_a_new_tier))
    assert (
        "No member is known to be off its contracted rate; the operator does not report 1 of 3"
        in shown
    )
    assert "All members are at their contracted rates" not in shown


def test_kafka_and_prometheus_away_leave_nobody_out() -> None:
    def both(source: simulated.SimulatedSource) -> None:
        simulated.without_kafka(source)
        source.measured_now = simulated.Measured(problem="it did not answer in time")

    shown = text_of(page(THROTTLED_AT, both))
    assert (
        "It is unknown which members are at their contracted rates. Last known: L3 throttled"
        in shown
    )
    assert "Whether it is enough" not in shown
    assert "Quotas stay as they are" in shown
