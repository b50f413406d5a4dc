"""The page Now: what is over its limit, who is throttled, since when, and is that enough?

Pure: from what is known of one policy to the parts of a page.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from markupsafe import Markup

from tidegate.console.banner import banner, strip
from tidegate.console.brokers_part import brokers_of
from tidegate.console.choices import Choices
from tidegate.console.history import History
from tidegate.console.levels_part import lanes
from tidegate.console.markup import (
    HEAD,
    Column,
    Columns,
    broker_link,
    joined,
    name,
    page_link,
    rate,
    section,
    table,
    table_row,
)
from tidegate.console.members_part import below
from tidegate.console.parts import Kept, Page, Part
from tidegate.console.queues_part import queues_of
from tidegate.console.sentences import THROTTLEABLE, age_of, levels_send
from tidegate.view.load import NicNow, RawObject, state_words
from tidegate.view.policy import KUBERNETES, EventNow, OverrideNow, PolicyNow
from tidegate_logic.model import Level
from tidegate_logic.words import UNKNOWN, age_words, clock_words


def now_page(
    now: PolicyNow, history: History, kept: Kept | None = None, choices: Choices | None = None
) -> Page:
    """Everything of one policy that the person on call wants to see first.

    `kept` has what the page was made of last: only what is of something else is made again.
    """
    kept = Kept() if kept is None else kept
    choices = Choices() if choices is None else choices
    kept.begin()
    return (
        banner(now),
        Part("strip", strip(now)),
        *brokers_of(now, history, kept, choices),
        lanes(now, history, choices),
        *below(now, kept, choices),
        *cannot_help(now),
        *overrides_of(now.overrides, now.now_seconds),
        *queues_of(now.queues, age_of(now, KUBERNETES), kept),
        *happened(now, kept),
        Part("conditions", findings(now)),
    )


def cannot_help(now: PolicyNow) -> Iterator[Part]:
    """Of each NIC that is over: what no quota of a throttleable tier takes away."""
    if not now.over:
        return
    columns: Columns[NicNow] = (
        Column("Broker", lambda nic: broker_link(now.key, nic.broker, "{}")),
        Column("Way", lambda nic: nic.direction.value),
        Column("L0", lambda nic: rate(levels_send(nic, Level.L0)), "right"),
        Column("Clients in no tier shown here", lambda nic: rate(nic.foreign), "right"),
        Column("Replication and other", lambda nic: rate(nic.rest), "right"),
        Column("L1 to L3", lambda nic: rate(levels_send(nic, *THROTTLEABLE)), "right"),
    )
    inside = table(columns, now.over, labelled_by="cannot")
    yield Part("cannot", section("cannot", "What no quota can help with", inside))


def overrides_of(overrides: Sequence[OverrideNow], now_seconds: float) -> Iterator[Part]:
    if not overrides:
        return
    columns: Columns[OverrideNow] = (
        Column("Override", lambda one: name(one.key)),
        Column("For", lambda one: name(one.target)),
        Column("Action", lambda one: one.action),
        Column("State", lambda one: one.state),
        Column("Ends in", lambda one: _ends(one, now_seconds)),
        Column("Reason", lambda one: name(one.reason, most=120)),
    )
    inside = table(columns, overrides, labelled_by="overrides")
    yield Part("overrides", section("overrides", "Overrides", inside))


def _ends(one: OverrideNow, now_seconds: float) -> str:
    if one.starts_seconds is not None and one.starts_seconds > now_seconds:
        return f"begins in {age_words(one.starts_seconds - now_seconds)}"
    if one.until_seconds is None:
        return UNKNOWN
    left = one.until_seconds - now_seconds
    return f"{age_words(left)}" if left > 0 else f"ended {age_words(-left)} ago"


_MOST_EVENTS: Final = 10


def happened(now: PolicyNow, kept: Kept) -> Iterator[Part]:
    """The newest Events of the policy, its tiers and overrides; those of one pass share its id."""
    if now.events_problem:
        inside = Markup('<p class="unknown hatched">Events are unknown: {}</p>').format(
            now.events_problem
        )
        yield Part("events", section("events", "Events", inside))
        return
    columns = _event_columns(now.key)
    rows = tuple(_event_part(columns, one, kept) for one in now.events[:_MOST_EVENTS])
    if rows:
        inside = table(columns, labelled_by="events")
        yield Part("events", section("events", "Events", inside, age=age_of(now, KUBERNETES)), rows)


def _event_columns(policy_key: str) -> Columns[EventNow]:
    def of_pass(one: EventNow) -> Markup:
        if not one.pass_id:
            return Markup("")
        return page_link("/history", policy_key, one.pass_id, filter=one.pass_id)

    return (
        Column("Time", lambda one: clock_words(one.at_seconds)),
        Column("What", _happened, "why"),
        Column("Object", lambda one: name(one.regarding, most=40), "object"),
        Column("Pass", of_pass, "pass"),
    )


def _happened(one: EventNow) -> Markup:
    """A sign, which a colour repeats, and what happened."""
    is_warning = one.type == "Warning"
    return Markup('<span class="sign {}" title="{}">{}</span> <b>{}</b> {}').format(
        "sign-warning" if is_warning else "sign-normal",
        one.type,
        "!" if is_warning else "i",
        one.reason,
        one.note,
    )


def _event_part(columns: Columns[EventNow], one: EventNow, kept: Kept) -> Part:
    return kept.piece(
        f"event {one.uid}",
        (one,),
        lambda: Part(one.uid, table_row(columns, one, f"event-{one.type.lower()}")),
    )


def findings(now: PolicyNow) -> Markup:
    """Conditions in full, and what is missing."""
    columns: Columns[RawObject] = (
        Column("Condition", lambda one: str(one.get("type")), HEAD),
        Column("Status", lambda one: str(one.get("status"))),
        Column("Reason", lambda one: state_words(str(one.get("reason")))),
        Column("Message", lambda one: str(one.get("message")), "why"),
    )
    problems = joined(Markup("<li>{}</li>").format(one) for one in now.problems)
    listed = (
        Markup('<ul class="problems" aria-label="What is missing">{}</ul>').format(problems)
        if problems
        else Markup("")
    )
    said = table(columns, now.conditions, labelled_by="conditions")
    inside = Markup("{}{}").format(listed, said)
    return section("conditions", "What the operator says", inside, age=age_of(now, KUBERNETES))


def no_policy(objects_problem: str, heard: float | None, now_seconds: float) -> Page:
    """What is shown where there is no policy, or none that this viewer may see."""
    if objects_problem:
        age = "never" if heard is None else f"{age_words(now_seconds - heard)} ago"
        text = Markup(
            '<div><div class="strip"><span class="chip gone" data-input="{}">{} does not answer, '
            'last known {}</span></div><p class="unknown">No policy is known. {}</p></div>'
        ).format(KUBERNETES, KUBERNETES, age, objects_problem)
    else:
        text = Markup(
            "<div><h2>There is no BrokerBandwidthPolicy here</h2><p>Nothing is managed in the "
            "namespaces that you may see. A policy appears here as soon as there is one.</p></div>"
        )
    return (Part("none", text),)


def logged_out(why: str) -> Page:
    text = Markup('<p role="alert">{} <a href="/login">Log in</a></p>').format(why)
    return (Part("none", text),)
