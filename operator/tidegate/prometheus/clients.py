"""The series of clients' gauges -> the newest value of each entity on each broker, and what is wrong with the rest.

It serves byte rates and throttle times alike, which differ in what NaN means: the mean throttle time of nobody throttled is NaN, so it is
zero; a byte rate is never NaN, so one that is cannot be trusted. Nothing is joined here; see `reader`.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controller_logic.model import Entity
from controller_logic.reasons import Reason
from tidegate.prometheus.broker_identity import BrokerOf
from tidegate.prometheus.entity_labels import entity_of
from tidegate.prometheus.nics import FUTURE_SECONDS, without_broker
from tidegate.prometheus.problems import Oddity
from tidegate.prometheus.series import Series, is_amount

Who = tuple[Entity, int]  # on which broker


@dataclass(frozen=True, slots=True)
class ClientSample:
    """The newest sample of one series, and when the series began in the time that was asked for."""

    who: Who
    first_at_seconds: float
    at_seconds: float
    amount: float


class ReadClient:
    """Makes a sample or an oddity of each series, one by one while they arrive. `what` names the query in messages."""

    def __init__(self, what: str, *, broker_of: BrokerOf, nan_is_zero: bool) -> None:
        self._what = what
        self._broker_of = broker_of
        self._nan_is_zero = nan_is_zero

    def __call__(self, series: Series) -> ClientSample | Oddity:
        broker, entity = self._broker_of(series.labels), entity_of(series.labels)
        if broker is None:
            return without_broker(series, self._what)
        if entity is None:
            hint = "The labels user and client_id must hold Kafka's tags as the brokers spell them."
            what = f"the query for {self._what} gave a series that does not tell its client"
            return Oddity(Reason.METRICS_AMBIGUOUS, what, str(series), broker, hint)
        at_seconds, amount = series.samples[-1]
        if self._nan_is_zero and math.isnan(amount):
            amount = 0.0
        if not is_amount(amount):
            what = f"the newest value of a client's {self._what} is no amount"
            return Oddity(Reason.METRICS_UNREADABLE, what, f"{amount} for {entity}", broker, "Look at the exporter.")
        return ClientSample((entity, broker), series.first_at_seconds, at_seconds, amount)


def newest_of_each(
    found: Iterable[ClientSample | Oddity], what: str, *, read_at_seconds: float
) -> tuple[Mapping[Who, ClientSample], list[Oddity]]:
    """The newest sample of each entity and broker. A series may take over from another that had ended; one of two at once is nobody's."""
    newest: dict[Who, ClientSample] = {}
    twice: set[Who] = set()
    oddities: list[Oddity] = []
    for sample in found:
        if isinstance(sample, Oddity):
            oddities.append(sample)
        elif sample.at_seconds > read_at_seconds + FUTURE_SECONDS:
            oddities.append(_from_the_future(sample, read_at_seconds))
        elif (other := newest.get(sample.who)) is None:
            newest[sample.who] = sample
        elif overlap(sample, other):
            twice.add(sample.who)
        else:
            newest[sample.who] = max(sample, other, key=lambda one: one.at_seconds)
    for who in twice:
        del newest[who]
    return newest, oddities + [_two_at_once(who, what) for who in sorted(twice, key=lambda who: (who[1], who[0].sort_key))]


def overlap(one: ClientSample, other: ClientSample) -> bool:
    """Whether two series of the same client lived at the same time."""
    return one.first_at_seconds <= other.at_seconds and other.first_at_seconds <= one.at_seconds


def _from_the_future(sample: ClientSample, read_at_seconds: float) -> Oddity:
    entity, broker = sample.who
    ahead = f"{entity}, by {sample.at_seconds - read_at_seconds:.0f} s"
    hint = "Set the clocks of Prometheus and of Tidegate's node."
    return Oddity(Reason.METRICS_STALE, "a client's samples are ahead of Tidegate's clock", ahead, broker, hint)


def _two_at_once(who: Who, what: str) -> Oddity:
    entity, broker = who
    hint = "Narrow the query to one of them, for instance to one Kafka cluster or one replica of Prometheus."
    return Oddity(Reason.METRICS_AMBIGUOUS, f"two series tell the {what} of one client at the same time", str(entity), broker, hint)
