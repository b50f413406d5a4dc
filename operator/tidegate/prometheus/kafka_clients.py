"""The newest value of each entity on each broker, from the gauges of clients.

Series that cannot be used become problems.

Byte rates and throttle times differ in what NaN means. The mean throttle time of a client that was
not throttled is NaN, so NaN counts as zero. A byte rate is never NaN, so one that is cannot be
trusted.
"""

import math
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote_to_bytes

from tidegate.prometheus.exporters import RESOURCES, has_names_in_the_metric, lacks_resource
from tidegate.prometheus.nics import FUTURE_SECONDS, SET_CLOCKS, without_broker
from tidegate.prometheus.queries import BrokerOf
from tidegate.prometheus.series import Series, SeriesProblem, is_amount
from tidegate_logic.model import Entity
from tidegate_logic.reasons import Reason
from tidegate_logic.value import value

# The entity of a series: Kafka's tags `user` and `client-id` as the JMX exporter shows them, turned
# back into names.
#
# Kafka leaves a tag out where the client's quota does not distinguish users, or client ids. The
# user is encoded by Kafka's `Sanitizer` (every byte but `A-Z a-z 0-9 - _ .` as `%XX`). The client
# id is as it is, in JMX's quotes where it has characters that JMX uses itself. Default entities do
# not occur: a client under a default quota has a bucket, and tags, of its own.
#
# The JMX exporter takes the first rule that matches. Where that is not the most particular one, its
# `(.+)` takes the next tag, too: `resource="Produce, user=bob"`, `user="bob, client-id=app"`. No
# encoded user has a comma or a blank, so these texts have one meaning.


_JMX_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_JMX_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_CLIENT_ID = "client-id="
_OTHER_TAG = f", {_CLIENT_ID}"


class EntityNames(dict[tuple[str, str], Entity | None]):
    """The entities of the tags user and client-id, each made when it is asked for first.

    It is one reading's own: every broker reports each client, in four queries.
    """

    def __missing__(self, tags: tuple[str, str]) -> Entity | None:
        found = self[tags] = _entity(*tags)
        return found


def entity_of(labels: Mapping[str, str], names: EntityNames) -> Entity | None:
    """The entity of a series by its labels; `names` are those of the same reading.

    The client id is `client_id` (this project's rules), `clientId` (the exporter's example),
    `clientID` or `clientid` (all names lowered).

    None if the labels name neither user nor client id, a user that Kafka's Sanitizer would not
    have spelled so, or another resource than fetching and producing.
    """
    get = labels.get
    # written out for speed: it is asked 100,000 times a reading
    client = get("client_id") or get("clientId") or get("clientid") or get("clientID") or ""
    resource = get("resource", "")
    if resource in RESOURCES:
        return names[get("user", ""), client]
    tags = _tags(labels, resource, get("user", ""), client)
    return None if tags is None else names[tags]


def _tags(
    labels: Mapping[str, str], resource: str, user: str, client: str
) -> tuple[str, str] | None:
    """The tags of a series whose label `resource` does not just hold its resource; None = unknown.

    Queries of one's own may give series with any label of that name, but not with Kafka's tags.
    """
    kind, comma, tags = resource.partition(", ")
    metric = labels.get("__name__", "")
    if not comma or kind not in RESOURCES:
        is_unsure = lacks_resource(metric) or has_names_in_the_metric(metric)
        return None if is_unsure else (user, client)
    if tags.startswith("user=") and not user:
        return tags.removeprefix("user="), client
    if tags.startswith(_CLIENT_ID) and not client:
        return user, tags.removeprefix(_CLIENT_ID)
    return None


def _entity(user_tag: str, client_tag: str) -> Entity | None:
    if not client_tag:
        user_tag, _, client_tag = user_tag.partition(_OTHER_TAG)
    user = _user(user_tag) if user_tag else None
    client = _client_id(client_tag) if client_tag else None
    if (user_tag and not user) or not (user or client):
        return None
    return Entity(user=user, client_id=client)


def _user(tag: str) -> str | None:
    try:
        name = unquote_to_bytes(tag).decode("utf-8")
    except UnicodeError:
        return None
    # quote() leaves the tilde alone, Java does not
    spelled = quote(name, safe="").replace("~", "%7E")
    return name if spelled == tag else None


def _client_id(tag: str) -> str | None:
    # javax.management.ObjectName.quote, backwards: \n is a line break; elsewhere the backslash goes
    if not _JMX_QUOTED.fullmatch(tag):
        return tag
    return _JMX_ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], tag[1:-1]) or None


def without_client(series: Series, what: str, broker: int | None) -> SeriesProblem:
    """The problem of a series of the query for `what` of which `entity_of` makes nothing."""
    metric = series.labels.get("__name__", "")
    cause = f"the query for {what} returned a series that does not name its client"
    if has_names_in_the_metric(metric):
        cause = f"{cause} in labels, because the exporter's rules have put it into the metric"
    elif lacks_resource(metric):
        resource = series.labels.get("resource", "")
        kind = resource.partition(", ")[0]
        if kind not in RESOURCES:
            cause = f"{cause}, because its resource is {kind!r} and not Fetch or Produce"
        elif kind != resource:
            cause = f"{cause}, because its resource is {resource!r}, by the order of the rules"
    return SeriesProblem(Reason.CLIENTS_NOT_NAMED, cause, str(series), broker, NAME_CLIENTS)


NAME_CLIENTS = (
    "The labels user and client_id must hold Kafka's tags as the brokers spell them: order the "
    "JMX exporter's rules as in examples/metrics/jmx-exporter-rules.yaml, the most particular "
    "first, or name other series in spec.metrics.queries."
)

Who = tuple[Entity, int]  # on which broker


@value(frozen=True, slots=True)
class ClientSample:
    """The newest sample of one series, and when the series began in the time that was asked for."""

    who: Who
    first_at_seconds: float
    at_seconds: float
    amount: float


class ReadClient:
    """Makes a sample or a problem of each series as it arrives; `what` names the query."""

    def __init__(
        self, what: str, *, broker_of: BrokerOf, names: EntityNames, nan_is_zero: bool
    ) -> None:
        self._what = what
        self._names = names
        self._broker_of = broker_of
        self._nan_is_zero = nan_is_zero

    def __call__(self, series: Series) -> ClientSample | SeriesProblem:
        labels, samples = series.labels, series.samples
        broker, entity = self._broker_of(labels), entity_of(labels, self._names)
        if broker is None:
            return without_broker(series, self._what)
        if entity is None:
            return without_client(series, self._what, broker)
        at_seconds, amount = samples[-1]
        if self._nan_is_zero and math.isnan(amount):
            amount = 0.0
        if not is_amount(amount):
            what = f"the newest value of a client's {self._what} is not an amount"
            return SeriesProblem(
                Reason.METRICS_UNREADABLE,
                what,
                f"{amount} for {entity}",
                broker,
                "Look at the exporter.",
            )
        return ClientSample((entity, broker), samples[0][0], at_seconds, amount)


def newest_of_each(
    found: Iterable[ClientSample | SeriesProblem], what: str, *, read_at_seconds: float
) -> tuple[Mapping[Who, ClientSample], list[SeriesProblem]]:
    """The newest sample of each entity and broker.

    A series may follow another that had ended; two at once are left out.
    """
    newest: dict[Who, ClientSample] = {}
    twice: set[Who] = set()
    problems: list[SeriesProblem] = []
    for sample in found:
        if isinstance(sample, SeriesProblem):
            problems.append(sample)
        elif sample.at_seconds > read_at_seconds + FUTURE_SECONDS:
            problems.append(_from_the_future(sample, read_at_seconds))
        elif (other := newest.get(sample.who)) is None:
            newest[sample.who] = sample
        elif overlap(sample, other):
            twice.add(sample.who)
        else:
            newest[sample.who] = max(sample, other, key=lambda one: one.at_seconds)
    for who in twice:
        del newest[who]
    return newest, problems + [
        _two_at_once(who, what) for who in sorted(twice, key=lambda who: (who[1], who[0].sort_key))
    ]


def overlap(one: ClientSample, other: ClientSample) -> bool:
    """Whether two series of the same client overlap in time."""
    return one.first_at_seconds <= other.at_seconds and other.first_at_seconds <= one.at_seconds


def _from_the_future(sample: ClientSample, read_at_seconds: float) -> SeriesProblem:
    entity, broker = sample.who
    behind = f"{sample.at_seconds - read_at_seconds:.0f} s"
    what = "Tidegate's clock is behind that of a client's samples"
    return SeriesProblem(
        Reason.METRICS_STALE, what, f"{entity}, at least {behind}", broker, SET_CLOCKS
    )


def _two_at_once(who: Who, what: str) -> SeriesProblem:
    entity, broker = who
    hint = (
        "Narrow the query to one of them, for instance to one Kafka cluster or one replica of "
        "Prometheus."
    )
    return SeriesProblem(
        Reason.METRICS_AMBIGUOUS,
        f"two series have the {what} of one client at the same time",
        str(entity),
        broker,
        hint,
    )
