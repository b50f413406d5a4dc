"""What a reading should have and has not: cards of live brokers, fresh samples, rates of clients. It tells; it fills nothing in."""

from collections.abc import Callable, Collection, Iterable, Mapping

from controller_logic.model import Direction, NicSpan, ReadingProblem
from controller_logic.reasons import Reason

Cards = Mapping[tuple[int, Direction], tuple[NicSpan, ...]]
Ways = tuple[Direction, ...]


def absent_cards(
    cards: Cards,
    brokers: Collection[int],
    directions: Iterable[Direction],
    *,
    told: Collection[tuple[int | None, Direction]],
    seconds: float,
) -> Iterable[ReadingProblem]:
    """Live brokers without a span in one of the `directions` that were answered; where one of `told` has none, that is known already."""
    hint = "Check that Prometheus scrapes their exporters, and that each series names its broker as metrics.brokerIds says."

    def message(which: str, ways: str) -> str:
        return f"{which} without two samples of {ways} in the last {seconds:g} s, so the load is not known. {hint}"

    missing = _ways_by_broker(brokers, directions, lambda key: key not in told and not cards.get(key))
    return _for_each_or_all(Reason.METRICS_MISSING, missing, brokers, message)


def stale_cards(cards: Cards, brokers: Collection[int], *, read_at_seconds: float, stale_after_seconds: float) -> Iterable[ReadingProblem]:
    """Live brokers whose newest span is older than it may be."""

    def is_stale(key: tuple[int, Direction]) -> bool:
        return bool(cards.get(key)) and read_at_seconds - cards[key][-1].at_seconds > stale_after_seconds

    def message(which: str, ways: str) -> str:
        hint = "Look at the exporters and at Prometheus' targets."
        return f"{which} with no sample of {ways} that is newer than {stale_after_seconds:g} s. {hint}"

    return _for_each_or_all(Reason.METRICS_STALE, _ways_by_broker(brokers, Direction, is_stale), brokers, message)


def absent_clients(seen: Collection[int], brokers: Collection[int], *, seconds: float) -> Iterable[ReadingProblem]:
    """`seen` are the brokers of which any client's rate is known. None at all has another cause than a single broker's silence."""
    if not seen:
        why = f"No broker told the rate of any user or client id in the last {seconds:g} s."
        hint = "Kafka meters clients only where a quota exists, and the JMX exporter shows them only with the rules for it."
        yield ReadingProblem(Reason.CLIENTS_NOT_METERED, f"{why} {hint}")
        return
    for broker in sorted(set(brokers) - set(seen)):
        why = f"Broker {broker} told the rate of no user or client id in the last {seconds:g} s, and others did."
        yield ReadingProblem(Reason.CLIENTS_NOT_METERED, f"{why} Check its JMX exporter, unless nobody uses this broker.", broker)


def _ways_by_broker(
    brokers: Iterable[int], directions: Iterable[Direction], is_so: Callable[[tuple[int, Direction]], bool]
) -> Mapping[int, Ways]:
    ways = {broker: tuple(direction for direction in directions if is_so((broker, direction))) for broker in sorted(brokers)}
    return {broker: found for broker, found in ways.items() if found}


def _for_each_or_all(
    reason: Reason, ways: Mapping[int, Ways], brokers: Collection[int], message: Callable[[str, str], str]
) -> Iterable[ReadingProblem]:
    """One problem for all brokers where it is the same with all, else one each."""
    if len(ways) > 1 and ways.keys() == set(brokers) and len(set(ways.values())) == 1:
        which = next(iter(ways.values()))
        yield ReadingProblem(reason, message(f"All {len(ways)} brokers are", " and ".join(which)), directions=which)
        return
    for broker, which in ways.items():
        yield ReadingProblem(reason, message(f"Broker {broker} is", " and ".join(which)), broker, which)
