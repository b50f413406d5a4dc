"""What the policy says of each level: at its contracts, stepping, throttled or on its way back, and because of which broker.

The cause is noted when a level is first throttled and stays until it is back at its contracts, so that it tells what began the episode and
does not change with every reading.
"""

from collections.abc import Iterable, Mapping

from controller_logic.decision import Decision, LevelReport, LevelState, MemberReport, MemberState
from controller_logic.model import Level
from controller_logic.reasons import Reason
from controller_logic.throttle.decision import Round, ThrottleDecision
from controller_logic.throttle.pressure import Card


def level_reports(decision: Decision, before: Mapping[Level, str]) -> tuple[LevelReport, ...]:
    """Every level that has members, L0 first; none while the pass is held, for then nobody knows.

    `before` is what each throttled level was said to be throttled for.
    """
    if decision.holds:
        return ()
    by_level: dict[Level, list[MemberReport]] = {}
    for member in decision.members:
        by_level.setdefault(member.level, []).append(member)
    causes = causes_of(decision.throttle)
    return tuple(_report(level, by_level[level], before.get(level) or causes) for level in Level if level in by_level)


def _report(level: Level, members: Iterable[MemberReport], because: str) -> LevelReport:
    members = list(members)
    throttled = [member for member in members if member.state is MemberState.THROTTLED]
    if throttled:
        relaxing = all(member.reason is Reason.RELAXING for member in throttled)
        state = LevelState.RELAXING if relaxing else LevelState.THROTTLED
        return LevelReport(level, state, because, len(members), len(throttled))
    stepping = any(member.state is MemberState.STEPPING for member in members)
    return LevelReport(level, LevelState.STEPPING if stepping else LevelState.CONTRACT, "", len(members))


def causes_of(throttle: ThrottleDecision | None) -> str:
    """`broker 2 egress 58.1 of 50.0 MB/s`, for every broker in need, the worst first; empty where none is."""
    rounds = throttle.rounds if throttle is not None else ()
    found = [(view.need, one, view.card) for one in rounds for view in one.brokers if view.need > 0]
    return ", ".join(load_words(one, card) for _, one, card in sorted(found, key=lambda each: (-each[0], each[2].broker)))


def load_words(one: Round, card: Card) -> str:
    """A card against its limit, for people."""
    if card.bytes_per_second is None or card.limit is None:
        return f"broker {card.broker} {one.direction.value} unknown"
    return f"broker {card.broker} {one.direction.value} {card.bytes_per_second / 1e6:.1f} of {card.limit / 1e6:.1f} MB/s"
