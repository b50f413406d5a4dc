"""What the page Now says in sentences: who is over, who is throttled, since when, is it enough?

Pure: from what is known of one policy to sentences, the most urgent first.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from markupsafe import Markup

from tidegate.console.markup import broker_link, joined, member_link, rate, since
from tidegate.view.load import RELAXING, NicNow
from tidegate.view.policy import (
    KUBERNETES,
    STEADY_SECONDS,
    LevelNow,
    MemberNow,
    PolicyNow,
    seconds_of,
)
from tidegate_logic.model import Level
from tidegate_logic.reasons import Reason
from tidegate_logic.words import UNKNOWN, age_words, clock_words, rate_of_words, rate_words


def age_of(now: PolicyNow, *inputs: str) -> str:
    """How old it is what comes from these inputs; "" = it is of now."""
    gone = [one for one in map(now.input_of, inputs) if not one.is_known(now.now_seconds)]
    known = [one.at_seconds for one in gone if one.at_seconds is not None]
    if not gone:
        return ""
    if len(known) < len(gone):
        return "never known"
    return f"as of {age_words(now.now_seconds - min(known))} ago"


def sentences(now: PolicyNow) -> Iterable[Markup]:
    """The questions of the person on call, answered."""
    age = age_of(now, KUBERNETES)
    if age:
        yield Markup(
            "<strong>Kubernetes does not answer</strong>: levels, quotas and Events are {}."
        ).format(age)
    unknown = [one for one in now.nics if not one.is_known]
    over = now.over
    if over:
        for nic in over[:5]:
            words = (
                "<strong>{} {} is over its limit</strong>: {} of {}{}."
                if (nic.share or 0.0) > 1
                else "<strong>{} {} swings around its limit</strong>: now {} of {}{}."
            )
            yield Markup(words).format(  # noqa: S704  # one of two literals
                broker_link(now.key, nic.broker),
                nic.direction.value,
                rate(nic.bytes_per_second),
                rate(nic.limit),
                f", since {since(nic.since, now.now_seconds)}" if nic.since else "",
            )
        if len(over) > 5:
            yield Markup("{} more NICs are over their limits.").format(len(over) - 5)
    elif unknown:
        yield Markup(
            "No broker is known to be over its limit; the load of {} of {} NICs is {}."
        ).format(len(unknown), len(now.nics), UNKNOWN)
    elif above := sorted({nic.broker for nic in now.nics if (nic.share or 0.0) > 1}):
        yield Markup("Above its limit for now, not for long enough to throttle: {}{}.").format(
            Markup(", ").join(broker_link(now.key, broker) for broker in above[:5]),
            f" and {len(above) - 5} more" if len(above) > 5 else "",
        )
    elif now.nics:
        yield Markup("Every broker is within its limits.")
    else:
        yield Markup("No broker's load is known.")
    yield from _who_is_throttled(now)
    yield _is_enough(now, unknown)


def _who_is_throttled(now: PolicyNow) -> Iterable[Markup]:
    elsewhere = now.elsewhere
    known = sum(one.is_known for one in now.members)
    if now.members and not known:
        yield Markup("It is {} which members are at their contracted rates.{}").format(
            UNKNOWN, _levels_known_last(now)
        )
    elif now.would_change:
        yield Markup("<strong>Enforce would change</strong> the quota of {}.").format(
            _named(now.key, now.would_change)
        )
    elif not elsewhere:
        yield Markup("{}").format(nobody_elsewhere(now) if now.members else "No member is known.")
    throttled = [one for one in elsewhere if one.is_throttled]
    for level in sorted({one.level for one in throttled}, reverse=True):
        mine = [one for one in throttled if one.level is level]
        said = next((one for one in now.levels if one.level is level), None)
        why = "" if said is None else cause_of(now, said)
        yield Markup("<strong>{} {}</strong>: {}{}{}.{}").format(
            level.value,
            "recovering" if said is not None and said.state == RELAXING else "throttled",
            _named(now.key, mine),
            _of_contracts(mine),
            "" if said is None else _level_since(now, said),
            f" Why: {why}." if why else "",
        )
    changing = {one.key for one in now.would_change}
    others = {
        (one.name, one.key, one.state)
        for one in elsewhere
        if not one.is_throttled and one.key not in changing
    }
    if others:
        yield Markup("Not at the contracted rate for other reasons: {}{}.").format(
            Markup(", ").join(
                Markup("{} ({})").format(
                    member_link(now.key, key, who, most=40), _WORDS_OF_STATE.get(state, state)
                )
                for who, key, state in sorted(others)[:4]
            ),
            f" and {len(others) - 4} more" if len(others) > 4 else "",
        )


def nobody_elsewhere(now: PolicyNow) -> str:
    unknown = sum(not one.is_known for one in now.members)
    if not unknown:
        return "All members are at their contracted rates."
    of_all = f"the operator does not report {unknown} of {len(now.members)} rates yet"
    return f"No member is known to be off its contracted rate; {of_all}."


_WORDS_OF_STATE: Final = {"Contended": "Contended: another writer keeps changing its quota"}


def _named(policy_key: str, members: Iterable[MemberNow]) -> Markup:
    found = sorted({(one.name, one.key) for one in members})
    more = f" and {len(found) - 4} more" if len(found) > 4 else ""
    links = (member_link(policy_key, key, shown, most=40) for shown, key in found[:4])
    return Markup("{}{}").format(Markup(", ").join(links), more)


def _levels_known_last(now: PolicyNow) -> str:
    """Which levels were throttled when the operator knew quotas last."""
    lower = [one for one in now.levels if one.state not in ("", "Contract")]
    if not lower:
        return " Last known: all levels at their contracted rates." if now.levels else ""
    said = ", ".join(
        f"{one.level.value} {_SINCE.get(one.state, 'not at the contracted rate since')} "
        f"{since(one.since, now.now_seconds)}"
        for one in reversed(lower)
    )
    return f" Last known: {said}."


_SINCE: Final = {
    "Throttled": "throttled since",
    RELAXING: "recovering since",
    "Stepping": "stepping down since",
}


def _level_since(now: PolicyNow, level: LevelNow) -> str:
    """Since when it is in this state; its cause has when it all began."""
    is_known = level.state in _SINCE and level.since
    return f", since {since(level.since, now.now_seconds)}" if is_known else ""


# "since 08:05:06 UTC broker 1 egress 98 of 80 MB/s; now 78 MB/s": the operator renews what comes
# after "now" once a minute, so a page says what it knows itself
_BEGAN: Final = re.compile(r"since (\S+ UTC) (.*)")
_NIC: Final = re.compile(r"broker (\d+) (egress|ingress|combined)")


def began(now: PolicyNow, level: LevelNow) -> str:
    """The reading for which a level was throttled, and when that was; "" = it is not throttled.

    Where it was throttled again in one episode, also the reading of that time, from its Event.
    """
    words = level.because.partition("; now ")[0]
    if words.startswith("now "):  # what is carried now is never given as the cause
        return "the operator has no record of the cause"
    found = _BEGAN.fullmatch(words)
    return f"{found[2]} at {found[1]}{_again(now, level)}" if found else words


def _again(now: PolicyNow, level: LevelNow) -> str:
    since_seconds = seconds_of(level.since) if level.state == "Throttled" else None
    for event in now.events if since_seconds is not None else ():
        found = re.search(
            rf"{level.level.value} is throttled again: [^;]*; now ([^;]*)", event.note
        )
        if found and abs(event.at_seconds - (since_seconds or 0.0)) < STEADY_SECONDS:
            return f", {found[1]} at {clock_words(event.at_seconds)}"
    return ""


def cause_of(now: PolicyNow, level: LevelNow) -> str:
    """What began the throttling of a level, and what these NICs carry now."""
    words = began(now, level)
    carried = {(str(nic.broker), nic.direction.value): nic.bytes_per_second for nic in now.nics}
    rates = [rate_words(carried.get(place)) for place in _NIC.findall(words)]
    return f"{words}; now {', '.join(rates)}" if rates else words


def _of_contracts(members: Sequence[MemberNow]) -> Markup:
    """What they send of their contracts, each way; nothing if either is not known."""
    ways = sorted({one.way for one in members})
    said = []
    for way in ways:
        mine = [one for one in members if one.way == way]
        sends = [one.sends for one in mine if one.sends is not None]
        contracts = [one.contract for one in mine if one.contract is not None]
        if len(sends) == len(contracts) == len(mine):
            said.append(
                Markup(', {}<span class="number">{}</span>').format(
                    f"{way} " if len(ways) > 1 else "", rate_of_words(sum(sends), sum(contracts))
                )
            )
    return joined(said)


def _is_enough(now: PolicyNow, unknown: Sequence[NicNow]) -> Markup:
    lease = now.lease
    if lease is not None and lease.is_known(now.now_seconds) and not lease.holder:
        return Markup(
            "<strong>No replica of the operator holds the Lease</strong>: no quota changes until "
            "one does."
        )
    if now.paused_by or now.mode == "Observe":
        why = "paused" if now.paused_by else "only observing"
        return Markup("Tidegate is {}: no quota changes.").format(why)
    if now.is_held:
        return Markup("Quotas stay as they are: {}").format(
            str(now.condition("Ready").get("message") or "")
        )
    if now.over:
        if now.is_spent:
            too_much = Markup(", ").join(map(_too_much, now.over[:3]))
            return Markup(
                "It is <strong>not enough, and quotas cannot help</strong>: {}. Excess: {}{}."
            ).format(
                _CANNOT[now.condition("Throttling")["reason"]],
                too_much,
                f" and {len(now.over) - 3} more" if len(now.over) > 3 else "",
            )
        said = Markup(" ").join(map(_would_help, now.over[:3]))
        return Markup("It is <strong>not enough yet</strong>. {}").format(said)
    if unknown or not now.nics:
        return Markup("Whether it is enough is {}: not every broker is measured.").format(UNKNOWN)
    if any(one.is_throttled for one in now.members):
        return Markup("It is <strong>enough</strong> now.")
    return Markup("No action needed.")


_CANNOT: Final = {
    Reason.QUOTA_EXHAUSTED.value: "every tier below L0 is throttled as far as allowed",
    Reason.QUOTA_CANNOT_HELP.value: "no tier below L0 transfers enough there",
}


def _too_much(nic: NicNow) -> Markup:
    over = (nic.bytes_per_second or 0.0) - (nic.limit or 0)
    return Markup("broker {} {} {}").format(
        nic.broker, nic.direction.value, rate(over) if over > 0 else "swings around its limit"
    )


def _would_help(nic: NicNow) -> Markup:
    """Whether members that may be throttled send more through this NIC than is too much."""
    where = f"Broker {nic.broker} {nic.direction.value} is"
    too_much = (nic.bytes_per_second or 0.0) - (nic.limit or 0)
    sent = levels_send(nic, *THROTTLEABLE)
    if too_much <= 0:
        words = "{} below its limit right now, and counts as over until it stays there."
        return Markup(words).format(where)  # noqa: S704  # a literal
    over = Markup("{} {} over its limit").format(where, rate(too_much))
    if sent is None:
        return Markup("{}; which clients cause that is {}.").format(over, UNKNOWN)
    if sent >= too_much:
        words = "{}; L1 to L3 send {} there and can be throttled."
        return Markup(words).format(over, rate(sent))  # noqa: S704  # a literal
    words = "{}, and L1 to L3 send only {} there: <strong>quotas cannot help</strong>."
    return Markup(words).format(over, rate(sent))  # noqa: S704  # a literal


THROTTLEABLE: Final = tuple(level for level in Level if level is not Level.L0)


def levels_send(nic: NicNow, *levels: Level) -> float | None:
    """What members of these levels send through it; None = not measured."""
    return None if nic.foreign is None else sum(nic.by_level.get(one, 0.0) for one in levels)
