"""The banner: how a policy is, in one colour and one sentence, and the inputs that it rests on.

Pure. The same verdict is the page's title, so a tab shows an alarm too, and a row of Policies.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from markupsafe import Markup

from tidegate.console.markup import (
    HEAD,
    Column,
    Columns,
    joined,
    name,
    page_link,
    since,
    table,
    table_row,
)
from tidegate.console.parts import Page, Part
from tidegate.console.sentences import THROTTLEABLE, age_of, levels_send, sentences
from tidegate.view.load import RELAXING, NicNow, state_words
from tidegate.view.policy import KUBERNETES, PROMETHEUS, STEADY_SECONDS, PolicyNow
from tidegate_logic.contracts.desired import MemberState
from tidegate_logic.model import Level, Mode
from tidegate_logic.throttle.calendar import LIMITED_BY_CALENDAR
from tidegate_logic.words import UNKNOWN, age_words, counted, rate_words


@dataclass(frozen=True, slots=True)
class Verdict:
    """`tone` is its colour, `word` names the state in a title, `since` is RFC 3339 or "".

    `to_do` is one sentence: what a person does next; "" = nothing is the matter. `is_helpless`:
    quotas cannot help.
    """

    tone: str
    word: str
    text: str
    since: str = ""
    to_do: str = ""
    is_helpless: bool = False


WITHIN: Final = "within"  # green
WATCH: Final = "watch"  # amber
OVER: Final = "over"  # red
SPENT: Final = "spent"  # dark red
UNSURE: Final = "unsure"  # grey
TONES: Final = (WITHIN, UNSURE, WATCH, OVER, SPENT)  # the worst last


def verdict(now: PolicyNow) -> Verdict:
    """The one thing to know first. What needs someone most takes precedence."""
    throttled = _throttled(now)
    if now.over:
        return _over(now, throttled)
    since_ = _throttled_since(now)
    held = _held(now)
    if held:
        return Verdict(WATCH, held.word, _with(throttled, held.text), since_, held.to_do)
    unknown = [one for one in now.nics if not one.is_known]
    if unknown or not now.nics:
        what = (
            f"the load of {len(unknown)} of {counted(len(now.nics), 'NIC')}"
            if unknown
            else ("no broker's load is known")
        )
        text = f"Unknown: {what}" if not throttled else f"{throttled} - unknown: {what}"
        to_do = (
            "Check Prometheus and its targets: no load is judged without readings."
            if unknown
            else f"tidegate doctor {now.key} checks metrics, limits and the operator."
        )
        return Verdict(WATCH if throttled else UNSURE, "unknown", text, since_, to_do)
    if throttled:
        is_back = not _levels_below(now, RELAXING, is_in=False)
        until = "" if is_back or throttled.endswith(LIMITED_BY_CALENDAR) else " when the load falls"
        return Verdict(
            WATCH,
            "recovering" if is_back else "throttling",
            f"{throttled} - {'' if is_back else 'holding, '}{_fullest(now, is_mean=True)}",
            since_,
            f"Nothing to do: contracts return step by step{until}.",
        )
    moving = [one for one in now.levels if one.state in ("Stepping", RELAXING)]
    if moving:
        words = ", ".join(
            f"{one.level.value} is {state_words(one.state).lower()}" for one in reversed(moving)
        )
        to_do = "Nothing to do: quotas follow in safe steps."
        return Verdict(WATCH, "settling", f"Within limits - {words}", moving[-1].since, to_do)
    return Verdict(WITHIN, "ok", f"All brokers within limits - {_fullest(now)}")


def _over(now: PolicyNow, throttled: str) -> Verdict:
    """Red from the first reading above the limit until none was for `STEADY_SECONDS`."""
    worst = max(now.over, key=lambda nic: _peak(now, nic) / (nic.limit or 1))
    excess = _peak(now, worst) - (worst.limit or 0)
    where = f"broker {worst.broker} {worst.direction.value}"
    others = counted(len(now.over) - 1, "more NIC") if len(now.over) > 1 else ""
    held = _held(now)
    is_helpless = not held and (now.is_spent or _is_too_little(worst))
    to_do = held.to_do if held else _relief(worst) if is_helpless else _next_step(now)
    if excess <= 0:
        said = f"{where}{f' and {others}' if others else ''} below the limit again"
        text = _with(throttled, held.text if held else said)
        return Verdict(WATCH, "near", text, worst.since, to_do)
    swings = _peak(now, worst) > (worst.bytes_per_second or 0.0)
    by = f"{'up to ' if swings else ''}{rate_words(excess)}"
    said = f"{where} over by {by}{f', {others} over' if others else ''}"
    if now.is_spent:
        text = f"Nothing left to throttle: {said}"
        return Verdict(SPENT, "nothing left", text, worst.since, to_do, is_helpless)
    if held:
        follows = held.text
    elif throttled:
        levels = ", ".join(_levels_below(now, RELAXING, is_in=False))
        follows = f"{levels} throttled, not enough yet" if levels else "not enough yet"
    else:
        follows = "nobody is throttled yet"
    return Verdict(OVER, "over", _with("", f"{said} - {follows}"), worst.since, to_do, is_helpless)


def _peak(now: PolicyNow, nic: NicNow) -> float:
    """The most that it carries, or carried in the last `STEADY_SECONDS`: bytes/s."""
    readings = now.readings
    spans = () if readings is None else readings.spans(nic.broker, nic.direction)
    recent = (
        one.bytes_per_second for one in spans if now.now_seconds - one.at_seconds <= STEADY_SECONDS
    )
    return max(nic.bytes_per_second or 0.0, *recent, 0.0)


def _is_too_little(nic: NicNow) -> bool:
    """Whether those who may be throttled send less through it than is too much now."""
    sent = levels_send(nic, *THROTTLEABLE)
    return sent is not None and sent < (nic.bytes_per_second or 0.0) - (nic.limit or 0)


def _next_step(now: PolicyNow) -> str:
    if any(one.is_throttled for one in now.members):
        return "Nothing to do yet: the next step follows when readings show the last one."
    first = max((one.level.value for one in now.members), default="L3")
    return f"Nothing to do yet: {first} is throttled first."


def _relief(nic: NicNow) -> str:
    """What helps where quotas cannot, by what fills the NIC most."""
    sizes = {"L0": levels_send(nic, Level.L0), "others": nic.foreign, "rest": nic.rest}
    largest = max(sizes, key=lambda what: sizes[what] or 0.0)
    what = "lower an L0 contract"
    if largest == "others":
        what = f"put clients without a tier into one: they send {rate_words(nic.foreign)} there"
    elif largest == "rest":
        what = f"slow down replication, which takes {rate_words(nic.rest)} there"
    return f"Add capacity, move leaders away or {what}."


def _with(throttled: str, said: str) -> str:
    return f"{throttled} - {said}" if throttled else said[:1].upper() + said[1:]


class _Held(NamedTuple):
    """Why quotas do not follow the load, or not all of them: a word, a sentence, what to do."""

    word: str
    text: str
    to_do: str


def _held(now: PolicyNow) -> _Held | None:
    lease = now.lease
    if now.paused_by:
        steps = ["set spec.suspend to false"] if "spec.suspend" in now.paused_by else []
        if len(now.paused_by) > len(steps):
            steps.append(f"tidegate resume {now.key}")
        why = f"paused by {' and '.join(now.paused_by)}, no quota changes"
        return _Held("paused", why, f"To go on: {', then '.join(steps)}.")
    if now.mode == Mode.OBSERVE:
        return _observing(now)
    if age := age_of(now, KUBERNETES):
        text = f"Kubernetes does not answer, quotas {age}"
        return _Held("unknown", text, "Check the API server: until it answers, changes are unseen.")
    if lease is not None and lease.is_known(now.now_seconds) and not lease.holder:
        text = "no operator holds the Lease, no quota changes"
        return _Held("no operator", text, "Check the operator's Pods and their logs.")
    if now.is_held:
        reason = str(now.condition("Ready").get("reason") or "not Ready")
        text = f"held ({reason}), no quota changes"
        return _Held("held", text, f"tidegate doctor {now.key} says what it lacks.")
    contended = sorted({one.name for one in now.members if one.state == MemberState.CONTENDED})
    if contended:
        more = f" and {len(contended) - 1} more" if len(contended) > 1 else ""
        text = f"another writer keeps changing the quota of {contended[0]}{more}"
        return _Held("contended", text, f"Stop that writer, then: tidegate resync {now.key}.")
    return None


def _observing(now: PolicyNow) -> _Held | None:
    """Observe is fine while Enforce would do nothing either."""
    to_do = "Check what Enforce would change, below; then set spec.mode to Enforce."
    if now.over:
        return _Held("observing", "only observing, no quota changes", to_do)
    if not now.would_change:
        return None
    members = counted(len({one.key for one in now.would_change}), "member")
    return _Held("observing", f"only observing, Enforce would change {members}", to_do)


def _throttled(now: PolicyNow) -> str:
    """Which levels are throttled, and which of them are recovering; "" = none."""
    below = _levels_below(now, RELAXING, is_in=False)
    back = _levels_below(now, RELAXING, is_in=True)
    limited = [one.level.value for one in now.levels if one.because.startswith(LIMITED_BY_CALENDAR)]
    calendar = [level for level in below if level in limited]
    down = [level for level in below if level not in limited]
    said = [f"Throttling {', '.join(down)}"] if down else []
    said += [f"{', '.join(calendar)} {LIMITED_BY_CALENDAR}"] if calendar else []
    return "; ".join([*said, *([f"{', '.join(back)} recovering"] if back else [])])


def _levels_below(now: PolicyNow, state: str, *, is_in: bool) -> list[str]:
    """Levels with throttled members, the least important first, that are in this state or not."""
    states = {one.level: one.state for one in now.levels}
    levels = {one.level for one in now.members if one.is_throttled}
    found = (level for level in levels if (states.get(level) == state) is is_in)
    return sorted((level.value for level in found), reverse=True)


def _throttled_since(now: PolicyNow) -> str:
    levels = {one.level for one in now.members if one.is_throttled}
    return min((one.since for one in now.levels if one.level in levels and one.since), default="")


def _fullest(now: PolicyNow, *, is_mean: bool = False) -> str:
    """`is_mean`: clients that are throttled send in bursts, so the operator goes by means."""
    nic = max(now.nics, key=lambda one: one.share or 0.0)
    share = f"{100 * (nic.share or 0.0):.0f} %"
    if (nic.share or 0.0) <= 1:
        return f"fullest is broker {nic.broker} at {share}"
    return f"bursts up to {share} on broker {nic.broker}" if is_mean else f"one reading of {share}"


def banner(now: PolicyNow, *, is_whole: bool = True) -> Part:
    """The verdict in its colour; `is_whole`: with what to do and the sentences below."""
    found = verdict(now)
    policy = now.key.partition("/")[2]
    at = since(found.since, now.now_seconds) if found.since else ""
    to_do = said = Markup("")
    if is_whole:
        what_if = (
            Markup(' <span class="try">{}</span>').format(
                page_link("/what-if", now.key, "Try it on What if")
            )
            if found.is_helpless
            else Markup("")
        )
        if found.to_do:
            to_do = Markup('<p class="next">{}{}</p>').format(found.to_do, what_if)
        said = Markup('<ul class="answer" aria-label="In short">{}</ul>').format(
            joined(Markup("<li>{}</li>").format(one) for one in sentences(now))
        )
    return Part(
        "banner",
        Markup(
            '<section class="banner tone-{}{}" aria-label="Verdict" data-title="{}">'
            '<div class="verdict"><strong>{}</strong><span class="since">{}</span>{}</div>{}'
            "</section>"
        ).format(
            found.tone,
            "" if is_whole else " slim",
            f"{found.word}: {policy} - Tidegate",
            name(found.text, most=200),
            f"since {at}" if at else "",
            to_do,
            said,
        ),
    )


def strip(now: PolicyNow) -> Markup:
    """Mode, who writes, and the inputs: folded while all of them answer."""
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
    fine = [one.name for one in now.inputs if one.is_known(now.now_seconds)]
    broken = [one.name for one in now.inputs if one.name not in fine]
    words = f"{len(fine)} of {len(now.inputs)} inputs ok" if broken else "inputs ok"
    cluster = Markup('<span class="chip">cluster {}</span>').format(name(now.cluster_id or UNKNOWN))
    folded = Markup(
        '<details class="inputs" data-key="inputs"><summary><span class="dot {}" '
        'aria-hidden="true"></span> {}</summary><div class="strip">{}{}</div></details>'
    ).format(
        "dot-watch" if broken else "dot-within",
        words,
        joined(_input(now, one) for one in fine),
        cluster,
    )
    opened = joined(_input(now, one) for one in broken)
    return Markup('<div class="strip" role="group" aria-label="State">{}{}{}{}{}{}</div>').format(
        folded, opened, mode, paused, held, _holder(now)
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


# The page Policies


def policies_page(policies: Sequence[PolicyNow]) -> Page:
    """One row for each policy, of which there is one at least."""
    columns: Columns[PolicyNow] = (
        Column("Policy", lambda now: page_link("/", now.key, name(now.key)), HEAD),
        Column("State", _said, "why"),
        Column("Since", lambda now: since(verdict(now).since, now.now_seconds)),
        Column("Mode", lambda now: now.mode),
        Column("Brokers", lambda now: len(now.brokers), "right"),
        Column("Members", lambda now: len({one.key for one in now.members}), "right"),
    )
    rows = tuple(Part(now.key, table_row(columns, now)) for now in policies)
    counted = "1 policy" if len(policies) == 1 else f"{len(policies)} policies"
    worst = max(map(verdict, policies), key=lambda one: TONES.index(one.tone))
    head = Markup('<h2 data-title="{}">{}</h2>').format(
        f"{worst.word}: {counted} - Tidegate", counted
    )
    return Part("head", head), Part("policies", table(columns, label="Policies"), rows)


def _said(now: PolicyNow) -> Markup:
    found = verdict(now)
    return Markup('<span class="pill tone-{}">{}</span> {}').format(
        found.tone, found.word, name(found.text, most=160)
    )
