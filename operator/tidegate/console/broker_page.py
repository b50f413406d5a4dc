"""The page Broker: who fills one broker, by members, by level, replication, and unattributed.

Pure: from what is known of one policy to the parts of a page.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tidegate.console.brokers_part import nics_by_broker, read_directly, shares_chart
from tidegate.console.choices import Choices
from tidegate.console.history import History
from tidegate.console.markup import (
    MOST_ROWS,
    Column,
    Columns,
    broker_link,
    joined,
    member_link,
    name,
    rate,
    section,
    since,
    state,
    table,
)
from tidegate.console.parts import Kept, Page, Part
from tidegate.console.sentences import levels_send
from tidegate.view.load import NicNow
from tidegate.view.policy import MemberNow, PolicyNow, seconds_of
from tidegate_logic.model import Level
from tidegate_logic.throttle.nic_status import Pressure
from tidegate_logic.words import UNKNOWN, rate_of_words, rate_words


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of what a NIC carries, in bytes/s; None = not known. `kind` is its colour."""

    name: str
    kind: str
    bytes_per_second: float | None


def broker_page(
    now: PolicyNow, broker: int, history: History, kept: Kept, choices: Choices
) -> Page:
    """One broker: each NIC by who fills it, its members by bytes, and its chart."""
    kept.begin()
    nics = nics_by_broker(now).get(broker)
    others = joined(
        Markup("<li>{}</li>").format(
            broker_link(now.key, one, "{}")
            if one != broker
            else Markup('<b aria-current="true">{}</b>').format(one)
        )
        for one in nics_by_broker(now)
    )
    head = Markup(
        '<div><h2>Broker {}{}</h2><ul class="brokers" aria-label="Brokers">{}</ul></div>'
    ).format(broker, read_directly(nics or ()), others)
    if nics is None:
        return Part("head", head), Part("none", Markup("<p>There is no such live broker.</p>"))
    return (
        Part("head", head),
        *(Part(f"nic {nic.direction.value}", _filled(now, nic, history)) for nic in nics),
        *([shares_chart(now, nics, history, kept, choices, f"broker {broker}")] if nics else ()),
        *_members(now, broker),
    )


def slices_of(nic: NicNow) -> Sequence[Slice]:
    """What a NIC carries: each level, clients in no tier, and the rest, largest level first."""
    levels = [Slice(level.value, level.value.lower(), levels_send(nic, level)) for level in Level]
    return (
        *levels,
        Slice("Clients in no tier", "foreign", nic.foreign),
        Slice("Replication and other", "rest", nic.rest),
    )


def _begun(now: PolicyNow, nic: NicNow, history: History) -> str:
    """Since when it is so, and for one that is over with how much that began."""
    at = seconds_of(nic.since)
    if at is None:
        return ""
    words = f"{nic.pressure.value} since {since(nic.since, now.now_seconds)}"
    points = history.nic(now.key, (nic.broker, nic.direction), now.now_seconds - at + 30)
    first = next((share for when, share in reversed(points) if when <= at + 1), None)
    if nic.pressure is Pressure.OVER and nic.limit and (first or 0.0) > 1:
        words += f", then {rate_of_words((first or 0.0) * nic.limit, nic.limit)}"
    return words


def _filled(now: PolicyNow, nic: NicNow, history: History) -> Markup:
    title = f"{nic.direction.value.capitalize()}: {_words(nic)}"
    said = "; ".join(filter(None, (_begun(now, nic, history), nic.why)))
    slices = slices_of(nic)
    whole = max(nic.limit or 0, nic.bytes_per_second or 0.0, 1.0)
    bars = joined(
        Markup('<i class="slice-{}" style="width:{}%" title="{}"></i>').format(
            one.kind,
            f"{100 * (one.bytes_per_second or 0.0) / whole:.1f}",
            f"{one.name}: {rate_words(one.bytes_per_second)}",
        )
        for one in slices
    )
    mark = (
        Markup('<b style="left:{}%"></b>').format(f"{100 * nic.limit / whole:.1f}")
        if nic.limit
        else Markup("")
    )

    # Kafka's rates are means of a longer time than the NIC's, and may be higher in sum.
    all_of_it = max(nic.bytes_per_second or 0.0, sum(one.bytes_per_second or 0.0 for one in slices))

    def share(one: Slice) -> str:
        if one.bytes_per_second is None or not nic.bytes_per_second:
            return UNKNOWN
        return f"{100 * one.bytes_per_second / all_of_it:.0f} %"

    columns: Columns[Slice] = (
        Column(
            "What fills it",
            lambda one: Markup('<i class="key slice-{}"></i> {}').format(one.kind, one.name),
        ),
        Column("Rate", lambda one: rate(one.bytes_per_second), "right"),
        Column("Share of it", share, "right"),
    )
    inside = Markup('<p>{}</p><span class="stack{}" aria-hidden="true">{}{}</span>{}').format(
        f"{said}." if said else "",
        "" if nic.is_known else " hatched",
        bars if nic.is_known else "",
        mark,
        Markup('<div class="narrow">{}</div>').format(
            table(columns, slices, label=f"What fills {nic.direction.value}")
        ),
    )
    return section(f"nic-{nic.direction.value}", title, inside)


def _words(nic: NicNow) -> str:
    if nic.share is None:
        return UNKNOWN
    return (
        f"{100 * nic.share:.0f} % of the limit, {rate_words(nic.bytes_per_second)} of "
        f"{rate_words(nic.limit)}, {nic.pressure.value.lower()}"
    )


def _members(now: PolicyNow, broker: int) -> Iterator[Part]:
    """Members by what they transfer through this broker, most first."""
    found = sorted(
        (one for one in now.members if one.by_broker.get(broker, 0.0) > 0),
        key=lambda one: -one.by_broker[broker],
    )
    if not found:
        is_measured = any(nic.broker == broker and nic.foreign is not None for nic in now.nics)
        words = "No member transfers anything" if is_measured else "Unknown: who transfers"
        text = Markup("<p>{} through this broker.</p>").format(words)
        yield Part("members", section("members", "Members", text))
        return
    columns: Columns[MemberNow] = (
        Column("Member", lambda one: member_link(now.key, one.key, one.name)),
        Column("Tier", lambda one: name(one.tier_key)),
        Column("Level", lambda one: one.level.value),
        Column("Way", lambda one: one.way),
        Column("Rate on this broker", lambda one: rate(one.by_broker[broker]), "right"),
        Column("Quota on each broker", lambda one: _quota(one), "right"),
        Column("State", lambda one: state(one.state, UNKNOWN)),
    )
    more = (
        Markup("<p>and {} more with less</p>").format(len(found) - MOST_ROWS)
        if len(found) > MOST_ROWS
        else Markup("")
    )
    inside = table(columns, found[:MOST_ROWS], labelled_by="members") + more
    yield Part("members", section("members", "Members, most bytes first", inside))


def _quota(one: MemberNow) -> Markup | str:
    if one.quota is None:
        return "unlimited" if one.is_known else UNKNOWN
    return rate(one.quota)
