"""The console's pages as HTML: pure functions from what is known to text.

Every value goes through `Markup.format`, which escapes it, so a name is never markup; `<bdi>` keeps
its direction to itself. What is unknown is hatched, with its age, and never zero.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from markupsafe import Markup

from tidegate.console.history import MEMBER_SECONDS, NIC_SECONDS, History, Span
from tidegate.console.snapshot import (
    KUBERNETES,
    PROMETHEUS,
    MemberNow,
    NicNow,
    OverrideNow,
    PolicyNow,
    seconds_of,
)
from tidegate.console.source import Trail
from tidegate.console.whatif import MemberResult, NicResult, Result
from tidegate.controller_logic.model import Direction, Level
from tidegate.controller_logic.quota_values import rate_words
from tidegate.controller_logic.quotas.precedence import PrecedenceLevel
from tidegate.controller_logic.throttle.nic_status import Pressure

UNKNOWN: Final = "unknown"
_MOST_ROWS: Final = 100
_SPARK: Final = (120, 28)
_FULL: Final = 1.25  # share of the limit at the top of a sparkline
_WORDS_OF_LEVEL: Final = {
    "Contract": "at the contract",
    "Stepping": "going down to an edited contract, step by step",
    "Throttled": "below the contract, for a broker over its limit",
    "Relaxing": "on the way back to the contract",
}


def joined(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)


def name(text: object, *, most: int = 60) -> Markup:
    """A name that somebody else chose: as text, with its own direction, cut where it is long."""
    whole = str(text)
    if len(whole) <= most:
        return Markup('<bdi class="name">{}</bdi>').format(whole)
    return Markup('<bdi class="name" title="{}">{}…</bdi>').format(whole, whole[: most - 1])


def rate(bytes_per_second: float | None) -> Markup:
    if bytes_per_second is None:
        return Markup('<span class="unknown">{}</span>').format(UNKNOWN)
    return Markup('<span class="number">{}</span>').format(rate_words(round(bytes_per_second)))


def ago(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h`, `5 days`."""
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{max(0.0, seconds) / divisor:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S")


def since(text: str, now_seconds: float) -> str:
    at = seconds_of(text)
    return "" if at is None else f"{clock(at)} ({ago(now_seconds - at)})"


# The page Now


def now_page(now: PolicyNow, history: History) -> Markup:
    """Everything of one policy that the person on call wants to see first."""
    return joined(
        (
            strip(now),
            answer(now),
            heat(now, history),
            lanes(now, history),
            below_table(now),
            cannot_help(now),
            overrides_table(now.overrides, now.now_seconds),
            findings(now),
        )
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
        if now.is_held
        else Markup("")
    )
    inputs = joined(_input(now, one.name) for one in now.inputs)
    cluster = Markup('<span class="chip">cluster {}</span>').format(name(now.cluster_id or UNKNOWN))
    return Markup('<div class="strip" role="group" aria-label="State">{}{}{}{}{}</div>').format(
        mode, paused, held, cluster, inputs
    )


def _input(now: PolicyNow, which: str) -> Markup:
    one = now.input_of(which)
    if one.is_known(now.now_seconds):
        age = ago(now.now_seconds - (one.at_seconds or 0.0))
        return Markup('<span class="chip ok" data-input="{}">{} {}</span>').format(
            which, which, f"{age} old" if which == PROMETHEUS else "answers"
        )
    if which == PROMETHEUS and one.fresh_seconds == 0:
        return Markup('<span class="chip gone" data-input="{}">{}: {}</span>').format(
            which, which, one.problem
        )
    age = "never" if one.at_seconds is None else f"{ago(now.now_seconds - one.at_seconds)} ago"
    return Markup(
        '<span class="chip gone" data-input="{}" title="{}">{} {}, last known {}</span>'
    ).format(which, one.problem, which, "does not answer" if one.problem else "is stale", age)


def answer(now: PolicyNow) -> Markup:
    """The five questions of the person on call, in sentences."""
    return Markup('<ul class="answer" aria-label="In short">{}</ul>').format(
        joined(Markup("<li>{}</li>").format(one) for one in _sentences(now))
    )


def _sentences(now: PolicyNow) -> Iterable[Markup]:
    unknown = [one for one in now.nics if not one.is_known]
    over = now.over
    if over:
        for nic in over[:5]:
            words = (
                "<strong>Broker {} {} is over its limit</strong>: {} of {}{}."
                if (nic.share or 0.0) > 1
                else "<strong>Broker {} {} swings over its limit</strong>: now {} of {}{}."
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
            "No broker is known to be over its limit; of {} of {} NICs the load is {}."
        ).format(len(unknown), len(now.nics), UNKNOWN)
    elif now.nics:
        yield Markup("Every broker is within its limits.")
    else:
        yield Markup("No broker's load is known.")
    below = now.below
    if not below:
        yield (
            Markup("Everybody is at the contract.")
            if now.members
            else Markup("No member is known.")
        )
    for level in sorted({one.level for one in below}, reverse=True):
        mine = [one for one in below if one.level is level]
        named = sorted({one.name for one in mine})
        since_ = next((one.since for one in now.levels if one.level is level), "")
        yield Markup("<strong>{} gives</strong>: {}{}{}.").format(
            level.value,
            Markup(", ").join(name(one, most=40) for one in named[:4]),
            f" and {len(named) - 4} more" if len(named) > 4 else "",
            f", since {since(since_, now.now_seconds)}" if since_ else "",
        )
    yield _is_enough(now, unknown)


def _is_enough(now: PolicyNow, unknown: Sequence[NicNow]) -> Markup:
    if now.paused_by or now.mode == "Observe":
        why = "paused" if now.paused_by else "only observing"
        return Markup("Tidegate is {}: no quota changes.").format(why)
    if now.is_held:
        return Markup("Quotas stay as they are: {}").format(
            str(now.condition("Ready").get("message") or "")
        )
    if now.over:
        throttling = now.condition("Throttling")
        said = str(throttling.get("message") or "")
        return Markup("It is <strong>not enough yet</strong>. {}").format(said)
    if unknown or not now.nics:
        return Markup("Whether it is enough is {}: not every broker is measured.").format(UNKNOWN)
    if now.below:
        return Markup("It is <strong>enough</strong> now.")
    return Markup("Nothing is to be done.")


def heat(now: PolicyNow, history: History) -> Markup:
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

    tiles = joined(
        _tile(now, broker, by_broker[broker], history) for broker in sorted(by_broker, key=order)
    )
    if not by_broker:
        tiles = Markup('<li class="tile unknown">No live broker is known.</li>')
    return Markup(
        '<section aria-labelledby="heat"><h2 id="heat">Brokers against their limits</h2>'
        '<ul class="heat" tabindex="0" aria-label="Brokers">{}</ul></section>'
    ).format(tiles)


def _tile(now: PolicyNow, broker: int, nics: Sequence[NicNow], history: History) -> Markup:
    rows = joined(_nic(now, one, history) for one in nics) or Markup(
        '<div class="nic">no limit</div>'
    )
    return Markup('<li class="tile"><span class="broker">broker {}</span>{}</li>').format(
        broker, rows
    )


def _nic(now: PolicyNow, nic: NicNow, history: History) -> Markup:
    points = history.nic(now.key, (nic.broker, nic.direction))
    spark = _sparkline(points, now.now_seconds)
    if not nic.is_known or nic.share is None:
        age = (
            "never read"
            if nic.at_seconds is None
            else f"last {ago(now.now_seconds - nic.at_seconds)} ago"
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


def _sparkline(points: Sequence[tuple[float, float | None]], now_seconds: float) -> Markup:
    """A quarter of an hour; a gap where it was not known. The line is the limit."""
    width, height = _SPARK
    begin = now_seconds - NIC_SECONDS
    lines: list[list[str]] = [[]]
    for at, share in points:
        if share is None:
            lines.append([])
            continue
        x = width * max(0.0, at - begin) / NIC_SECONDS
        y = height - height * min(share, _FULL) / _FULL
        lines[-1].append(f"{x:.1f},{y:.1f}")
    drawn = joined(
        Markup('<polyline points="{}"/>').format(" ".join(one)) for one in lines if len(one) > 1
    )
    limit = height - height / _FULL
    return Markup(
        '<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" aria-hidden="true">'
        '<line x1="0" x2="{}" y1="{}" y2="{}"/>{}</svg>'
    ).format(width, height, width, f"{limit:.1f}", f"{limit:.1f}", drawn)


def lanes(now: PolicyNow, history: History) -> Markup:
    """One lane for each level: its states since the console began."""
    known = history.levels(now.key)
    begin = min((spans[0].begin for spans in known.values() if spans), default=now.now_seconds)
    begin = max(begin, now.now_seconds - MEMBER_SECONDS)
    seconds = max(60.0, now.now_seconds - begin)
    rows = joined(
        Markup(
            '<tr><th scope="row">{}</th><td><span class="state state-{}">{}</span></td>'
            "<td>{}</td><td>{} of {}</td>"
            '<td class="lane"><span class="track" aria-hidden="true">{}</span></td><td>{}</td></tr>'
        ).format(
            one.level.value,
            one.state.lower(),
            one.state or UNKNOWN,
            since(one.since, now.now_seconds),
            one.below,
            one.members,
            joined(_span(span, begin, seconds) for span in known.get(one.level, ())),
            one.because or _WORDS_OF_LEVEL.get(one.state, ""),
        )
        for one in now.levels
    )
    if not rows:
        rows = Markup(
            '<tr><td colspan="6" class="unknown">The state of levels is unknown.</td></tr>'
        )
    return Markup(
        '<section aria-labelledby="lanes"><h2 id="lanes">Levels</h2>'
        '<div class="scroll" tabindex="0" role="region" aria-labelledby="lanes"><table><thead><tr>'
        '<th scope="col">Level</th><th scope="col">State</th><th scope="col">Since</th>'
        '<th scope="col">Below contract</th><th scope="col" class="lane">Last {}</th>'
        '<th scope="col">Because</th></tr></thead><tbody>{}</tbody></table></div></section>'
    ).format(ago(seconds), rows)


def _span(span: Span, begin: float, seconds: float) -> Markup:
    left = 100 * max(0.0, span.begin - begin) / seconds
    width = 100 * (span.end - max(span.begin, begin)) / seconds
    return Markup('<i class="state-{}" style="left:{}%;width:{}%"></i>').format(
        span.state.lower(), f"{left:.2f}", f"{max(width, 0.4):.2f}"
    )


def below_table(now: PolicyNow) -> Markup:
    return Markup(
        '<section aria-labelledby="below"><h2 id="below">Below the contract</h2>{}</section>'
    ).format(
        members_table(now, now.below, "Everybody is at the contract.")
        if now.members
        else Markup('<p class="unknown">No member is known.</p>')
    )


def members_table(now: PolicyNow, rows: Sequence[MemberNow], empty: str) -> Markup:
    """Members with what they send, their quota and their contract; the first hundred."""
    if not rows:
        return Markup("<p>{}</p>").format(empty)
    body = joined(_member_row(now, one) for one in rows[:_MOST_ROWS])
    more = (
        Markup("<p>and {} more: find them on the page Member.</p>").format(len(rows) - _MOST_ROWS)
        if len(rows) > _MOST_ROWS
        else Markup("")
    )
    return Markup(
        '<div class="scroll" tabindex="0" role="region" aria-label="Members"><table><thead><tr>'
        '<th scope="col">Level</th><th scope="col">Member</th><th scope="col">Way</th>'
        '<th scope="col" class="right">Sends, all brokers</th>'
        '<th scope="col" class="right">Quota, each broker</th>'
        '<th scope="col" class="right">Contract, all brokers</th>'
        '<th scope="col" class="right">Delayed</th><th scope="col">State</th>'
        '<th scope="col">Why</th></tr></thead><tbody>{}</tbody></table></div>{}'
    ).format(body, more)


def _member_row(now: PolicyNow, one: MemberNow) -> Markup:
    delayed = (
        Markup('<span class="unknown">{}</span>').format(UNKNOWN)
        if one.delayed_seconds is None
        else Markup("{}").format(f"{one.delayed_seconds:.1f} s")
    )
    return Markup(
        '<tr><td>{}</td><td><a href="{}">{}</a></td><td>{}</td><td class="right">{}</td>'
        '<td class="right">{}</td><td class="right">{}</td><td class="right">{}</td>'
        '<td><span class="state state-{}">{}</span></td><td class="why">{}</td></tr>'
    ).format(
        one.level.value,
        member_link(now.key, one.key),
        name(one.name),
        one.way,
        rate(one.sends),
        _quota(one),
        _contract(one),
        delayed,
        one.state.lower() or "unknown",
        one.state or UNKNOWN,
        one.message,
    )


def member_link(policy_key: str, member: str) -> str:
    return f"/member?policy={quote(policy_key, safe='')}&member={quote(member, safe='')}"


def _quota(one: MemberNow) -> Markup:
    if one.quota is not None:
        return rate(one.quota)
    return Markup("{}").format("unlimited") if one.state else rate(None)


def _contract(one: MemberNow) -> Markup:
    if one.contract is not None:
        return rate(one.contract)
    return Markup("{}").format("none") if one.state else rate(None)


def cannot_help(now: PolicyNow) -> Markup:
    """Of each NIC that is over: what no quota of a throttleable tier takes away."""
    rows = joined(_cannot_help_row(nic) for nic in now.over)
    if not rows:
        return Markup("")
    return Markup(
        '<section aria-labelledby="cannot"><h2 id="cannot">What no quota can help with</h2>'
        '<div class="scroll" tabindex="0" role="region" aria-labelledby="cannot"><table><thead><tr>'
        '<th scope="col">Broker</th><th scope="col">Way</th>'
        '<th scope="col" class="right">L0</th>'
        '<th scope="col" class="right">Clients in no tier shown here</th>'
        '<th scope="col" class="right">Replication and other</th>'
        '<th scope="col" class="right">L1 to L3, which can give</th></tr></thead>'
        "<tbody>{}</tbody></table></div></section>"
    ).format(rows)


def _cannot_help_row(nic: NicNow) -> Markup:
    is_split = nic.foreign is not None
    can_give = sum(r for level, r in nic.by_level.items() if level is not Level.L0)
    return Markup(
        '<tr><td>{}</td><td>{}</td><td class="right">{}</td><td class="right">{}</td>'
        '<td class="right">{}</td><td class="right">{}</td></tr>'
    ).format(
        nic.broker,
        nic.direction.value,
        rate(nic.by_level.get(Level.L0, 0.0) if is_split else None),
        rate(nic.foreign),
        rate(nic.rest),
        rate(can_give if is_split else None),
    )


def overrides_table(overrides: Sequence[OverrideNow], now_seconds: float) -> Markup:
    if not overrides:
        return Markup("")
    rows = joined(
        Markup(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>"
        ).format(
            name(one.key),
            name(one.target),
            one.action,
            one.state,
            _ends(one.until_seconds, now_seconds),
            name(one.reason, most=120),
        )
        for one in overrides
    )
    return Markup(
        '<section aria-labelledby="overrides"><h2 id="overrides">Overrides</h2>'
        '<div class="scroll" tabindex="0" role="region" aria-labelledby="overrides"><table><thead>'
        '<tr><th scope="col">Override</th><th scope="col">For</th><th scope="col">Action</th>'
        '<th scope="col">State</th><th scope="col">Ends in</th><th scope="col">Reason</th></tr>'
        "</thead><tbody>{}</tbody></table></div></section>"
    ).format(rows)


def _ends(until_seconds: float | None, now_seconds: float) -> str:
    if until_seconds is None:
        return UNKNOWN
    left = until_seconds - now_seconds
    return f"{ago(left)}" if left > 0 else f"ended {ago(-left)} ago"


def findings(now: PolicyNow) -> Markup:
    """Conditions in full, and what is missing."""
    conditions = joined(
        Markup(
            '<tr><th scope="row">{}</th><td>{}</td><td>{}</td><td class="why">{}</td></tr>'
        ).format(
            str(one.get("type")),
            str(one.get("status")),
            str(one.get("reason")),
            str(one.get("message")),
        )
        for one in now.conditions
    )
    problems = joined(Markup("<li>{}</li>").format(one) for one in now.problems)
    listed = (
        Markup('<ul class="problems" aria-label="What is missing">{}</ul>').format(problems)
        if problems
        else Markup("")
    )
    return Markup(
        '<section aria-labelledby="conditions"><h2 id="conditions">What the operator says</h2>{}'
        '<div class="scroll" tabindex="0" role="region" aria-labelledby="conditions"><table><thead>'
        '<tr><th scope="col">Condition</th><th scope="col">Status</th><th scope="col">Reason</th>'
        '<th scope="col">Message</th></tr></thead><tbody>{}</tbody></table></div></section>'
    ).format(listed, conditions)


def no_policy(objects_problem: str, heard: float | None, now_seconds: float) -> Markup:
    """What is shown where there is no policy, or none that this viewer may see."""
    if objects_problem:
        age = "never" if heard is None else f"{ago(now_seconds - heard)} ago"
        return Markup(
            '<div class="strip"><span class="chip gone" data-input="{}">{} does not answer, last '
            'known {}</span></div><p class="unknown">No policy is known. {}</p>'
        ).format(KUBERNETES, KUBERNETES, age, objects_problem)
    return Markup(
        "<h2>There is no BrokerBandwidthPolicy here</h2><p>Nothing is managed in the namespaces "
        "that you may see. A policy appears here as soon as there is one.</p>"
    )


def logged_out(why: str) -> Markup:
    return Markup('<p role="alert">{} <a href="/login">Log in</a></p>').format(why)


# The page Member


def member_page(
    now: PolicyNow, ways: Sequence[MemberNow], history: History, levels: Markup
) -> Markup:
    """One member: its state, hours of its rate, what it moves on each broker, its quota levels."""
    first = ways[0]
    head = Markup("<h2>{} <small>{} of tier {}</small></h2><p>{}</p>").format(
        name(first.name),
        first.level.value,
        name(first.tier_key),
        Markup('<bdi class="name">{}</bdi>').format(str(first.entity)),
    )
    facts = members_table(now, ways, "")
    leaders = (
        Markup(
            "<p>{} leaders, skew {}: of a contract of {} over all brokers, quotas permit {} while "
            "it is not throttled.</p>"
        ).format(first.leaders, first.skew or UNKNOWN, rate(first.contract), rate(first.permitted))
        if first.leaders is not None and first.contract is not None
        else Markup("")
    )
    override = (
        Markup("<p>Override in force: {}</p>").format(name(first.override))
        if first.override
        else Markup("")
    )
    charts = joined(_member_chart(now, one, history) for one in ways)
    brokers = joined(_by_broker(now, one) for one in ways)
    return joined((head, facts, leaders, override, charts, brokers, levels))


def _member_chart(now: PolicyNow, one: MemberNow, history: History) -> Markup:
    points = list(history.member(now.key, one.key, one.direction))
    begin = min([at for at, _, _ in points], default=now.now_seconds)
    seconds = max(60.0, now.now_seconds - begin)
    highest = max(
        [value for _, sends, quota in points for value in (sends, quota) if value is not None],
        default=1.0,
    )
    highest = max(highest, float(one.contract or 0), 1.0) * 1.1
    width, height = 720, 120

    def line(pick: int, kind: str) -> Markup:
        parts: list[list[str]] = [[]]
        for point in points:
            value = point[pick]
            if value is None:
                parts.append([])
                continue
            x = width * (point[0] - begin) / seconds
            parts[-1].append(f"{x:.1f},{height - height * value / highest:.1f}")
        return joined(
            Markup('<polyline class="{}" points="{}"/>').format(kind, " ".join(part))
            for part in parts
            if len(part) > 1
        )

    contract = ""
    if one.contract is not None:
        y = f"{height - height * one.contract / highest:.1f}"
        contract = Markup('<line class="contract" x1="0" x2="{}" y1="{}" y2="{}"/>').format(
            width, y, y
        )
    return Markup(
        '<figure><svg class="chart" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}">{}{}{}</svg>'
        "<figcaption>{} over the last {}, all brokers together: rate (solid), quota (dashed), "
        "contract (dotted); highest {}</figcaption></figure>"
    ).format(
        width,
        height,
        f"{one.way} over the last {ago(seconds)}",
        line(1, "rate"),
        line(2, "quota"),
        contract,
        one.way,
        ago(seconds),
        rate(highest / 1.1),
    )


def _by_broker(now: PolicyNow, one: MemberNow) -> Markup:
    if not one.by_broker:
        return Markup("")
    over = {nic.broker for nic in now.over if nic.direction is one.direction}
    cells = joined(
        Markup('<li class="{}">broker {} <span>{}</span></li>').format(
            "over" if broker in over else "", broker, rate(value)
        )
        for broker, value in one.by_broker.items()
    )
    return Markup('<h3>{} on each broker</h3><ul class="brokers" aria-label="{}">{}</ul>').format(
        one.way.capitalize(), f"{one.way} on each broker", cells
    )


def quota_levels(document: Mapping[str, Any]) -> Markup:
    """The eight quota levels of `tidegate explain` for each quota key: which one applies."""
    keys = joined(_key_levels(key, one) for key, one in (document.get("keys") or {}).items())
    warnings = joined(Markup("<li>{}</li>").format(str(w)) for w in document.get("warnings") or ())
    return Markup("<h3>Which quota applies</h3>{}{}").format(
        keys, Markup('<ul class="problems">{}</ul>').format(warnings) if warnings else Markup("")
    )


def _key_levels(key: str, one: Mapping[str, Any]) -> Markup:
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    if one.get("limited"):
        found[str(one.get("level"))] = ("applies", one)
        for hidden in one.get("shadows") or ():
            found.setdefault(str(hidden.get("level")), ("shadowed", hidden))
    rows = joined(
        _level_row(level, *found.get(str(level.value), ("none", {}))) for level in PrecedenceLevel
    )
    return Markup('<h4>{}{}</h4><ol class="levels" aria-label="{}">{}</ol>').format(
        key, "" if one.get("limited") else ": unlimited", key, rows
    )


def _level_row(level: PrecedenceLevel, state: str, entry: Mapping[str, Any]) -> Markup:
    words = level.name.lower().replace("_", " ")
    if state == "none":
        return Markup('<li class="none">{} <span class="word">no quota</span></li>').format(words)
    entity = entry.get("entity")
    named = ", ".join(f"{k}={v}" for k, v in entity.items()) if isinstance(entity, Mapping) else ""
    return Markup('<li class="{}">{} <span class="word">{}, {}</span> {}: {}</li>').format(
        state,
        words,
        state,
        "set by Tidegate" if entry.get("setByTidegate") else "set by others",
        name(named),
        str(entry.get("value", "")),
    )


def not_looked_at(why: str) -> Markup:
    return Markup(
        '<h3>Which quota applies</h3><p class="unknown hatched">The eight quota levels are not '
        "known here: {}</p>"
    ).format(why)


# The page What if


def what_if_page(result: Result, before: Result | None) -> Markup:
    """Whether it would be enough, who gives, and each NIC that matters."""
    verdict = (
        Markup("<strong>It would be enough</strong>: every broker is within its limit at the end.")
        if result.is_enough
        else Markup(
            "<strong>It would not be enough</strong>: {} NICs stay over their limits."
        ).format(len(result.over))
    )
    gives = joined(
        Markup("<li>{} gives {}</li>").format(level.value, rate(result.gives(level)))
        for level in sorted(Level, reverse=True)
        if result.gives(level) >= 1
    )
    mute = (
        Markup("<li>longest mute that is predicted: {}</li>").format(
            f"{result.longest_mute_seconds:.0f} s"
        )
        if result.longest_mute_seconds
        else Markup("")
    )
    head = Markup(
        '<div class="answer" role="status"><p>{}</p><ul>{}<li>{} {} lowered</li>{}</ul></div>'
    ).format(
        verdict,
        gives,
        len({(one.tier_key, one.member_name) for one in result.lowered}),
        "member is" if len({one.entity for one in result.lowered}) == 1 else "members are",
        mute,
    )
    was = {} if before is None else {(one.broker, one.direction): one for one in before.nics}
    nics = sorted(
        (one for one in result.nics if one.limit),
        key=lambda one: -(one.highest / (one.limit or 1)),
    )[:12]
    table = joined(_nic_result(one, was.get((one.broker, one.direction))) for one in nics)
    lowered = joined(_lowered(one) for one in result.lowered[:_MOST_ROWS])
    remarks = joined(
        Markup("<li>{}</li>").format(one) for one in (*result.findings[:12], *result.remarks)
    )
    return joined(
        (
            head,
            Markup(
                '<div class="scroll" tabindex="0" role="region" aria-label="Brokers"><table>'
                "<caption>Fullest brokers</caption><thead><tr>"
                '<th scope="col">Broker</th><th scope="col">Way</th>'
                '<th scope="col" class="right">Limit</th>'
                '<th scope="col" class="right">At the end, as it is now</th>'
                '<th scope="col" class="right">Highest</th>'
                '<th scope="col" class="right">At the end</th>'
                '<th scope="col" class="right">Over the limit</th></tr></thead>'
                "<tbody>{}</tbody></table></div>"
            ).format(table),
            Markup(
                '<div class="scroll" tabindex="0" role="region" aria-label="Who gives"><table>'
                "<caption>Who gives</caption><thead><tr>"
                '<th scope="col">Level</th><th scope="col">Member</th><th scope="col">Way</th>'
                '<th scope="col" class="right">Wants, all brokers</th>'
                '<th scope="col" class="right">Moves at the end</th>'
                '<th scope="col" class="right">Contract, each broker</th>'
                '<th scope="col" class="right">Quota at the end</th>'
                '<th scope="col" class="right">Longest mute</th><th scope="col">For broker</th>'
                "</tr></thead><tbody>{}</tbody></table></div>"
            ).format(lowered)
            if lowered
            else Markup("<p>No one is lowered.</p>"),
            Markup('<ul class="problems" aria-label="Remarks">{}</ul>').format(remarks)
            if remarks
            else Markup(""),
        )
    )


def _nic_result(one: NicResult, before: NicResult | None) -> Markup:
    return Markup(
        '<tr class="{}"><td>{}</td><td>{}</td><td class="right">{}</td><td class="right">{}</td>'
        '<td class="right">{}</td><td class="right">{}</td><td class="right">{}</td></tr>'
    ).format(
        "over" if one.is_over_at_end else "",
        one.broker,
        one.direction.value,
        rate(one.limit),
        rate(None if before is None else before.at_end),
        rate(one.highest),
        rate(one.at_end),
        f"{one.over_seconds} s" if one.over_seconds else "never",
    )


def _lowered(one: MemberResult) -> Markup:
    return Markup(
        '<tr><td>{}</td><td>{}</td><td>{}</td><td class="right">{}</td><td class="right">{}</td>'
        '<td class="right">{}</td><td class="right">{}</td><td class="right">{}</td>'
        "<td>{}</td></tr>"
    ).format(
        one.level.value,
        name(one.member_name),
        "fetch" if one.direction is Direction.EGRESS else "produce",
        rate(one.wants),
        rate(one.moves_at_end),
        rate(one.contract) if one.contract is not None else "unlimited",
        rate(one.at_end) if one.at_end is not None else "unlimited",
        f"{one.longest_mute_seconds:.0f} s",
        ", ".join(map(str, one.brokers)),
    )


# The page History


def history_page(trail: Trail, rows: Sequence[tuple[str, str, str, str]], *, of: int) -> Markup:
    """Lines of the audit trail: time, policy, kind, words; `of` is how many are in the trail."""
    problem = (
        Markup('<p class="unknown hatched">Not all is known: {}</p>').format(trail.problem)
        if trail.problem
        else Markup("")
    )
    body = joined(
        Markup('<tr><td>{}</td><td>{}</td><td>{}</td><td class="why">{}</td></tr>').format(
            at, name(policy), kind, words
        )
        for at, policy, kind, words in rows
    )
    if not body:
        return joined((problem, Markup("<p>No line fits.</p>")))
    return joined(
        (
            problem,
            Markup("<p>{} of {} lines, the newest first</p>").format(len(rows), of),
            Markup(
                '<div class="scroll" tabindex="0" role="region" aria-label="Audit trail"><table>'
                '<thead><tr><th scope="col">Time</th><th scope="col">Policy</th>'
                '<th scope="col">Kind</th><th scope="col">What</th></tr></thead>'
                "<tbody>{}</tbody></table></div>"
            ).format(body),
        )
    )
