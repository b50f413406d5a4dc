"""The page Now: what is over its limit, who is throttled, since when, and is that enough?

Pure: from what is known of one policy to the parts of a page.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import quote

from markupsafe import Markup

from tidegate.console.history import MEMBER_SECONDS, NIC_SECONDS, History, Points, Span
from tidegate.console.markup import (
    HEAD,
    MOST_ROWS,
    Column,
    Columns,
    joined,
    name,
    polylines,
    rate,
    section,
    since,
    table,
    table_row,
    unknown,
)
from tidegate.console.parts import ROWS, Kept, Page, Part
from tidegate.console.queues_part import queues_of
from tidegate.view.load import NicNow, RawObject
from tidegate.view.policy import (
    KAFKA,
    KUBERNETES,
    PROMETHEUS,
    EventNow,
    LevelNow,
    MemberNow,
    OverrideNow,
    PolicyNow,
)
from tidegate_logic.model import Level, Mode
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle.nic_status import Pressure
from tidegate_logic.words import UNKNOWN, age_words, clock_words, rate_of_words

_SPARK: Final = (120, 28)
_FULL: Final = 1.25  # share of the limit at the top of a sparkline
_WORDS_OF_LEVEL: Final = {
    "Contract": "at the contracted rate",
    "Stepping": "stepping down to an edited contract",
    "Throttled": "throttled because a broker is over its limit",
    "Relaxing": "on the way back to its contracts",
}


def now_page(now: PolicyNow, history: History, kept: Kept | None = None) -> Page:
    """Everything of one policy that the person on call wants to see first.

    `kept` has what the page was made of last: only what is of something else is made again.
    """
    kept = Kept() if kept is None else kept
    kept.begin()
    return (
        Part("strip", strip(now)),
        Part("answer", answer(now)),
        heat(now, history, kept),
        lanes(now, history),
        below(now, kept),
        *cannot_help(now),
        *overrides_of(now.overrides, now.now_seconds),
        *queues_of(now.queues, _age(now, KUBERNETES), kept),
        *happened(now, kept),
        Part("conditions", findings(now)),
    )


def strip(now: PolicyNow) -> Markup:
    """Mode, whether anything is held, and how old each input is."""
    mode = Markup('<span class="chip mode-{}">{}</span>').format(
        now.mode.lower(), f"mode {now.mode}"
    )
    paused = (
        Markup('<span class="chip warn">paused by {}</span>').format(" and ".join(now.paused_by))
        if now.paused_by
        else Markup("")
    )
    held = (
        Markup('<span class="chip warn">held: nothing changes</span>')
        if now.is_held and not now.paused_by
        else Markup("")
    )
    inputs = joined(_input(now, one.name) for one in now.inputs)
    cluster = Markup('<span class="chip">cluster {}</span>').format(name(now.cluster_id or UNKNOWN))
    return Markup('<div class="strip" role="group" aria-label="State">{}{}{}{}{}{}</div>').format(
        mode, paused, held, cluster, _holder(now), inputs
    )


def _holder(now: PolicyNow) -> Markup:
    """Which replica writes, by the policy's Lease."""
    lease = now.lease
    if lease is None or not lease.is_known(now.now_seconds):
        why = "" if lease is None else lease.problem
        return Markup('<span class="chip gone" data-holder="" title="{}">Lease {}</span>').format(
            why, UNKNOWN
        )
    if not lease.holder:
        return Markup('<span class="chip warn" data-holder="">no replica holds the Lease</span>')
    return Markup('<span class="chip" data-holder="{}">written by {}</span>').format(
        lease.holder, name(lease.holder.partition("_")[0], most=40)
    )


def _input(now: PolicyNow, which: str) -> Markup:
    one = now.input_of(which)
    if one.is_known(now.now_seconds):
        age = age_words(now.now_seconds - (one.at_seconds or 0.0))
        return Markup('<span class="chip ok" data-input="{}">{} {}</span>').format(
            which, which, f"{age} old" if which == PROMETHEUS else "answers"
        )
    if which == PROMETHEUS and one.fresh_seconds == 0:
        return Markup('<span class="chip gone" data-input="{}">{}: {}</span>').format(
            which, which, one.problem
        )
    age = (
        "never" if one.at_seconds is None else f"{age_words(now.now_seconds - one.at_seconds)} ago"
    )
    return Markup(
        '<span class="chip gone" data-input="{}" title="{}">{} {}, last known {}</span>'
    ).format(which, one.problem, which, "does not answer" if one.problem else "is stale", age)


def answer(now: PolicyNow) -> Markup:
    """The five questions of the person on call, in sentences."""
    return Markup('<ul class="answer" aria-label="In short">{}</ul>').format(
        joined(Markup("<li>{}</li>").format(one) for one in _sentences(now))
    )


def _age(now: PolicyNow, *inputs: str) -> str:
    """How old it is what comes from these inputs; "" = it is of now."""
    gone = [one for one in map(now.input_of, inputs) if not one.is_known(now.now_seconds)]
    known = [one.at_seconds for one in gone if one.at_seconds is not None]
    if not gone:
        return ""
    if len(known) < len(gone):
        return "never known"
    return f"as of {age_words(now.now_seconds - min(known))} ago"


def _sentences(now: PolicyNow) -> Iterable[Markup]:
    age = _age(now, KUBERNETES)
    if age:
        yield Markup(
            "<strong>Kubernetes does not answer</strong>: levels, quotas and Events are {}."
        ).format(age)
    unknown = [one for one in now.nics if not one.is_known]
    over = now.over
    if over:
        for nic in over[:5]:
            words = (
                "<strong>Broker {} {} is over its limit</strong>: {} of {}{}."
                if (nic.share or 0.0) > 1
                else "<strong>Broker {} {} swings around its limit</strong>: now {} of {}{}."
            )
            yield Markup(words).format(  # noqa: S704  # one of two literals
                nic.broker,
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
            _named(now.would_change)
        )
    elif not elsewhere:
        yield Markup("{}").format(_nobody_elsewhere(now) if now.members else "No member is known.")
    throttled = [one for one in elsewhere if one.is_throttled]
    for level in sorted({one.level for one in throttled}, reverse=True):
        mine = [one for one in throttled if one.level is level]
        said = next((one for one in now.levels if one.level is level), None)
        yield Markup("<strong>{} throttled</strong>: {}{}{}.{}").format(
            level.value,
            _named(mine),
            _of_contracts(mine),
            "" if said is None else _level_since(now, said),
            "" if said is None else _began(said),
        )
    changing = {one.key for one in now.would_change}
    others = {
        (one.name, one.state)
        for one in elsewhere
        if not one.is_throttled and one.key not in changing
    }
    if others:
        yield Markup("Not at the contracted rate for other reasons: {}{}.").format(
            Markup(", ").join(
                Markup("{} ({})").format(name(who, most=40), _WORDS_OF_STATE.get(state, state))
                for who, state in sorted(others)[:4]
            ),
            f" and {len(others) - 4} more" if len(others) > 4 else "",
        )


def _nobody_elsewhere(now: PolicyNow) -> str:
    unknown = sum(not one.is_known for one in now.members)
    if not unknown:
        return "All members are at their contracted rates."
    of_all = f"the operator does not report {unknown} of {len(now.members)} rates yet"
    return f"No member is known to be off its contracted rate; {of_all}."


_WORDS_OF_STATE: Final = {"Contended": "Contended: another writer keeps changing its quota"}


def _named(members: Iterable[MemberNow]) -> Markup:
    names = sorted({one.name for one in members})
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return Markup("{}{}").format(Markup(", ").join(name(one, most=40) for one in names[:4]), more)


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
    "Relaxing": "on the way back since",
    "Stepping": "stepping down since",
}


def _level_since(now: PolicyNow, level: LevelNow) -> str:
    """Since when it is in this state; `Because` in the table has when it all began."""
    words = _SINCE.get(level.state, "").removeprefix("throttled ")
    return f", {words} {since(level.since, now.now_seconds)}" if words and level.since else ""


def _began(level: LevelNow) -> str:
    """Which broker began it. How it is there now is in its tile, and of now."""
    first = level.because.partition("; now ")[0]
    return f" Why: {first}." if first else ""


def _of_contracts(members: Sequence[MemberNow]) -> Markup:
    """What they send of their contracts, each way; nothing where either is not known."""
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
        throttling = now.condition("Throttling")
        if throttling.get("reason") in _CANNOT:
            too_much = Markup(", ").join(map(_too_much, now.over[:3]))
            return Markup(
                "It is <strong>not enough, and quotas cannot help</strong>: {}. Excess: {}{}. {}"
            ).format(
                _CANNOT[throttling["reason"]],
                too_much,
                f" and {len(now.over) - 3} more" if len(now.over) > 3 else "",
                _WHAT_WOULD,
            )
        said = Markup(" ").join(_would_help(nic) for nic in now.over[:3])
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
_WHAT_WOULD: Final = "Try another limit, other leaders or fewer clients on What if."


def _too_much(nic: NicNow) -> Markup:
    over = (nic.bytes_per_second or 0.0) - (nic.limit or 0)
    return Markup("broker {} {} {}").format(
        nic.broker, nic.direction.value, rate(over) if over > 0 else "swings around its limit"
    )


def _would_help(nic: NicNow) -> Markup:
    """Whether members that may be throttled send more through this NIC than is too much."""
    where = f"Broker {nic.broker} {nic.direction.value} is"
    too_much = (nic.bytes_per_second or 0.0) - (nic.limit or 0)
    sent = _levels_send(nic, *_THROTTLEABLE)
    if too_much <= 0:
        words = "{} below its limit right now, and counts as over until it stays there."
        return Markup(words).format(where)  # noqa: S704  # a literal
    over = Markup("{} {} over its limit").format(where, rate(too_much))
    if sent is None:
        return Markup("{}; which clients cause that is {}.").format(over, UNKNOWN)
    if sent >= too_much:
        words = "{}; L1 to L3 send {} there and can be throttled."
        return Markup(words).format(over, rate(sent))  # noqa: S704  # a literal
    return Markup(
        "{}, and L1 to L3 send only {} there: <strong>quotas cannot help</strong>. {}"
    ).format(over, rate(sent), _WHAT_WOULD)


def heat(now: PolicyNow, history: History, kept: Kept) -> Part:
    """A tile for each broker, the fullest first; unknown ones before those that are calm."""
    by_broker: dict[int, list[NicNow]] = {broker: [] for broker in now.brokers}
    for nic in now.nics:
        by_broker.setdefault(nic.broker, []).append(nic)

    def order(broker: int) -> tuple[int, float, int]:
        nics = by_broker[broker]
        if any(one.pressure is Pressure.OVER for one in nics):
            rank = 0
        else:
            rank = 1 if any(not one.is_known for one in nics) else 2
        return rank, -max([one.share or 0.0 for one in nics], default=0.0), broker

    if not by_broker:
        inside = Markup('<p class="unknown">No live broker is known.</p>')
        return Part("heat", section("heat", "Brokers against their limits", inside))
    inside = Markup('<ul class="heat" tabindex="0" aria-label="Brokers" data-rows>{}</ul>').format(
        ROWS
    )
    tiles = (_tile(now, one, by_broker[one], history, kept) for one in sorted(by_broker, key=order))
    return Part("heat", section("heat", "Brokers against their limits", inside), tuple(tiles))


def _tile(
    now: PolicyNow, broker: int, nics: Sequence[NicNow], history: History, kept: Kept
) -> Part:
    known = [(nic, history.nic(now.key, (nic.broker, nic.direction))) for nic in nics]

    def made() -> Part:
        rows = joined(_nic(now, nic, points, kept) for nic, points in known) or Markup(
            '<div class="nic">no limit</div>'
        )
        return Part(
            str(broker),
            Markup('<li class="tile"><span class="broker">broker {}</span>{}</li>').format(
                broker, rows
            ),
        )

    # only the age of what is unknown goes on by itself
    at = None if all(nic.is_known for nic in nics) else now.now_seconds
    return kept.piece(f"heat {broker}", (known, at), made)


def _nic(now: PolicyNow, nic: NicNow, points: Points, kept: Kept) -> Markup:
    line = f"line {nic.broker} {nic.direction.value}"
    spark = kept.piece(line, (points,), lambda: _sparkline(points))
    if not nic.is_known or nic.share is None:
        age = (
            "never read"
            if nic.at_seconds is None
            else f"last {age_words(now.now_seconds - nic.at_seconds)} ago"
        )
        return Markup(
            '<div class="nic hatched" data-state="Unknown" title="{}">'
            '<span class="way">{}</span><span class="share">{}</span>'
            '<span class="word"></span><span class="detail">{}</span>{}</div>'
        ).format(nic.why, nic.direction.value, UNKNOWN, age, spark)
    state = nic.pressure.value
    tone = "over" if nic.pressure is Pressure.OVER else ("near" if nic.share > 0.9 else "within")
    return Markup(
        '<div class="nic {}" data-state="{}"><span class="way">{}</span>'
        '<span class="share">{} %</span><span class="word">{}</span>'
        '<span class="detail">{} of {}</span>'
        '<span class="bar" aria-hidden="true"><i style="width:{}%"></i></span>{}</div>'
    ).format(
        tone,
        state,
        nic.direction.value,
        f"{100 * nic.share:.0f}",
        "above, for now" if tone == "near" and nic.share > 1 else tone,
        rate(nic.bytes_per_second),
        rate(nic.limit),
        f"{min(100.0, 100 * nic.share / _FULL):.0f}",
        spark,
    )


def _sparkline(points: Points) -> Markup:
    """A quarter of an hour; a gap where it was not known. The line is the limit."""
    width, height = _SPARK
    # by the newest point and not by the clock: it changes when there is something new
    begin = (points[-1][0] if points else 0.0) - NIC_SECONDS
    drawn = polylines(
        (
            width * max(0.0, at - begin) / NIC_SECONDS,
            None if share is None else height - height * min(share, _FULL) / _FULL,
        )
        for at, share in points
    )
    limit = height - height / _FULL
    return Markup(
        '<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" aria-hidden="true">'
        '<line x1="0" x2="{}" y1="{}" y2="{}"/>{}</svg>'
    ).format(width, height, width, f"{limit:.1f}", f"{limit:.1f}", drawn)


def lanes(now: PolicyNow, history: History) -> Part:
    """One lane for each level: its states since the console began; Events as marks below them."""
    known = history.levels(now.key)
    begin = min((spans[0].begin for spans in known.values() if spans), default=now.now_seconds)
    begin = max(begin, now.now_seconds - MEMBER_SECONDS)
    seconds = max(60.0, now.now_seconds - begin)
    columns: Columns[LevelNow] = (
        Column("Level", lambda one: one.level.value, HEAD),
        Column("State", lambda one: _state(one.state, UNKNOWN)),
        Column("Since", lambda one: since(one.since, now.now_seconds)),
        Column(
            "Below contract",
            lambda one: f"{UNKNOWN if one.below is None else one.below} of {one.members}",
        ),
        Column(
            f"Last {age_words(seconds)}",
            lambda one: _track(_span(span, begin, seconds) for span in known.get(one.level, ())),
            "lane",
        ),
        Column("Because", lambda one: one.because or _WORDS_OF_LEVEL.get(one.state, "")),
    )
    rows = [Part(one.level.value, table_row(columns, one)) for one in now.levels]
    if not rows:
        text = '<tr><td colspan="6" class="unknown">The state of levels is unknown.</td></tr>'
        rows = [Part("none", Markup(text))]  # noqa: S704  # a literal
    marks = [one for one in now.events if begin <= one.at_seconds <= now.now_seconds]
    if marks:
        rows.append(_event_lane(marks, begin, seconds))
    inside = table(columns, labelled_by="lanes")
    age = _age(now, KUBERNETES, KAFKA)
    return Part("lanes", section("lanes", "Levels", inside, age=age), tuple(rows))


def _state(state: str, missing: str = "") -> Markup:
    return Markup('<span class="state state-{}">{}</span>').format(
        state.lower() or missing, state or UNKNOWN
    )


def _track(marks: Iterable[Markup]) -> Markup:
    return Markup('<span class="track" aria-hidden="true">{}</span>').format(joined(marks))


def _event_lane(marks: Sequence[EventNow], begin: float, seconds: float) -> Part:
    drawn = _track(
        Markup('<i class="mark mark-{}" style="left:{}%" title="{}"></i>').format(
            one.type.lower(),
            f"{100 * (one.at_seconds - begin) / seconds:.1f}",
            f"{clock_words(one.at_seconds)} {one.reason}: {one.note}",
        )
        for one in reversed(marks)
    )
    warnings = sum(one.type == "Warning" for one in marks)
    return Part(
        "events",
        Markup(
            '<tr><th scope="row" colspan="4">Events</th>'
            '<td class="lane">{}</td><td>{} Events, {} of them warnings</td></tr>'
        ).format(drawn, len(marks), warnings),
    )


def _span(span: Span, begin: float, seconds: float) -> Markup:
    left = 100 * max(0.0, span.begin - begin) / seconds
    width = 100 * (span.end - max(span.begin, begin)) / seconds
    return Markup('<i class="state-{}" style="left:{}%;width:{}%"></i>').format(
        span.state.lower(), f"{left:.2f}", f"{max(width, 0.4):.2f}"
    )


def below(now: PolicyNow, kept: Kept) -> Part:
    """Who is not at the contracted rate; in mode Observe whose quota would change."""
    title, empty = "Not at the contracted rate", _nobody_elsewhere(now)
    age = _age(now, KUBERNETES)
    if not any(one.is_known for one in now.members):
        said = f" {now.members[0].message}" if now.members else ""
        inside = Markup('<p class="unknown hatched">{}{}</p>').format(
            "Unknown for every member." if now.members else "No member is known.", said
        )
        return Part("below", section("below", title, inside, age=age))
    members = now.elsewhere
    if now.mode == Mode.OBSERVE:
        title, empty = "What Enforce would change", "Enforce would change nothing."
        known = {(one.key, one.way) for one in now.would_change}
        members = (*now.would_change, *(one for one in members if (one.key, one.way) not in known))
    html, rows = members_table(now, members, empty, kept)
    return Part("below", section("below", title, html, age=age), rows)


def members_table(
    now: PolicyNow, members: Sequence[MemberNow], empty: str, kept: Kept
) -> tuple[Markup, tuple[Part, ...] | None]:
    """Members with what they send, their quota and their contract; the first hundred as rows."""
    if not members:
        return Markup("<p>{}</p>").format(empty), None
    more = (
        Markup("<p>and {} more: find them on the page Member.</p>").format(len(members) - MOST_ROWS)
        if len(members) > MOST_ROWS
        else Markup("")
    )
    columns = _member_columns(now)
    rows = (_member_part(now, columns, one, kept) for one in members[:MOST_ROWS])
    return Markup("{}{}").format(table(columns, label="Members"), more), tuple(rows)


def _member_columns(now: PolicyNow) -> Columns[MemberNow]:
    def linked(one: MemberNow) -> Markup:
        link = member_link(now.key, one.key)
        return Markup('<a href="{}">{}</a>').format(link, name(one.name))

    return (
        Column("Level", lambda one: one.level.value),
        Column("Member", linked),
        Column("Way", lambda one: one.way),
        Column("Rate, all brokers", lambda one: rate(one.sends), "right"),
        Column("Quota, each broker", _quota, "right"),
        Column("Contract, all brokers", _contract, "right"),
        Column("Delayed by Kafka", lambda one: _delayed(one.delayed_seconds), "right"),
        Column("State", lambda one: _state(one.state, "unknown")),
        Column("Why", lambda one: one.message, "why"),
    )


def _member_part(now: PolicyNow, columns: Columns[MemberNow], one: MemberNow, kept: Kept) -> Part:
    name_ = f"{one.key} {one.way}"
    return kept.piece(
        f"member {name_}", (now.key, one), lambda: Part(name_, table_row(columns, one))
    )


def _delayed(seconds: float | None) -> Markup:
    return unknown() if seconds is None else Markup("{}").format(f"{seconds:.1f} s")


def member_link(policy_key: str, member: str) -> str:
    return f"/member?policy={quote(policy_key, safe='')}&member={quote(member, safe='')}"


def _quota(one: MemberNow) -> Markup:
    if one.quota is not None:
        return rate(one.quota)
    return Markup("{}").format("unlimited") if one.is_known else rate(None)


def _contract(one: MemberNow) -> Markup:
    if one.contract is not None:
        return rate(one.contract)
    return Markup("{}").format("none") if one.is_known else rate(None)


def cannot_help(now: PolicyNow) -> Iterator[Part]:
    """Of each NIC that is over: what no quota of a throttleable tier takes away."""
    if not now.over:
        return
    columns: Columns[NicNow] = (
        Column("Broker", lambda nic: nic.broker),
        Column("Way", lambda nic: nic.direction.value),
        Column("L0", lambda nic: rate(_levels_send(nic, Level.L0)), "right"),
        Column("Clients in no tier shown here", lambda nic: rate(nic.foreign), "right"),
        Column("Replication and other", lambda nic: rate(nic.rest), "right"),
        Column("L1 to L3", lambda nic: rate(_levels_send(nic, *_THROTTLEABLE)), "right"),
    )
    inside = table(columns, now.over, labelled_by="cannot")
    yield Part("cannot", section("cannot", "What no quota can help with", inside))


_THROTTLEABLE: Final = tuple(level for level in Level if level is not Level.L0)


def _levels_send(nic: NicNow, *levels: Level) -> float | None:
    """What members of these levels send through it; None = not measured."""
    return None if nic.foreign is None else sum(nic.by_level.get(one, 0.0) for one in levels)


def overrides_of(overrides: Sequence[OverrideNow], now_seconds: float) -> Iterator[Part]:
    if not overrides:
        return
    columns: Columns[OverrideNow] = (
        Column("Override", lambda one: name(one.key)),
        Column("For", lambda one: name(one.target)),
        Column("Action", lambda one: one.action),
        Column("State", lambda one: one.state),
        Column("Ends in", lambda one: _ends(one.until_seconds, now_seconds)),
        Column("Reason", lambda one: name(one.reason, most=120)),
    )
    inside = table(columns, overrides, labelled_by="overrides")
    yield Part("overrides", section("overrides", "Overrides", inside))


def _ends(until_seconds: float | None, now_seconds: float) -> str:
    if until_seconds is None:
        return UNKNOWN
    left = until_seconds - now_seconds
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
    rows = tuple(_event_part(one, kept) for one in now.events[:_MOST_EVENTS])
    if rows:
        inside = table(_EVENT, labelled_by="events")
        yield Part("events", section("events", "Events", inside, age=_age(now, KUBERNETES)), rows)


_EVENT: Final[Columns[EventNow]] = (
    Column("Time", lambda one: clock_words(one.at_seconds)),
    Column("Object", lambda one: name(one.regarding, most=40), "object"),
    Column("Reason", lambda one: one.reason),
    Column("What", lambda one: one.note, "why"),
    Column("Pass", lambda one: one.pass_id, "pass"),
)


def _event_part(one: EventNow, kept: Kept) -> Part:
    return kept.piece(
        f"event {one.uid}",
        (one,),
        lambda: Part(one.uid, table_row(_EVENT, one, f"event-{one.type.lower()}")),
    )


def findings(now: PolicyNow) -> Markup:
    """Conditions in full, and what is missing."""
    columns: Columns[RawObject] = (
        Column("Condition", lambda one: str(one.get("type")), HEAD),
        Column("Status", lambda one: str(one.get("status"))),
        Column("Reason", lambda one: str(one.get("reason"))),
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
    return section("conditions", "What the operator says", inside, age=_age(now, KUBERNETES))


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
