"""What `tidegate doctor` finds in Prometheus: the series that control needs, and whose they are.

The operator's own reading says what is wrong with the series; a probe beside it finds out why some
are missing.
"""

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from tidegate.commands.context import CommandContext
from tidegate.commands.findings import (
    Finding,
    clock_finding,
    failed,
    ok,
    problem,
    unknown,
    warning,
)
from tidegate.commands.inputs import PolicySource, metrics_of
from tidegate.errors import TidegateError
from tidegate.observe.connections import direct_settings
from tidegate.observe.direct_watch import allowed_host, fastest
from tidegate.prometheus.direct import Exporters, NotRead
from tidegate.prometheus.interfaces import alike
from tidegate.prometheus.probe import Found
from tidegate.prometheus.queries import POD_LABELS, identity_of
from tidegate.prometheus.settings import BrokerLabel, MetricsSettings, Preset
from tidegate.resources.policy import BrokerLimits
from tidegate_logic.model import Direction, Entity, Interface, Readings
from tidegate_logic.reasons import Reason
from tidegate_logic.words import broker_words, rate_words

RULES = "examples/metrics/jmx-exporter-rules.yaml"
_NOT_MEASURED = "The load of the brokers is not known, so nothing is throttled on it."
_NOT_ATTRIBUTED = (
    "Which clients cause the load is not known. When a broker is over its limit, its lowest tier "
    "is lowered, no matter which client sends."
)
_WORDS = {
    "egress": "bytes that NICs send",
    "ingress": "bytes that NICs receive",
    "fetch_rate": "fetch rates of clients",
    "produce_rate": "produce rates of clients",
    "fetch_throttle": "throttle times of consumers",
    "produce_throttle": "throttle times of producers",
}
_NAME_CABLES = (
    "Name the interfaces that have a cable in spec.metrics.interfaces; a bond once, itself or its "
    "members."
)
_NICS = ("egress", "ingress")
_WORDS_OF_WAY = {**{way: way.value for way in Direction}, Direction.COMBINED: "egress and ingress"}
_OPTIONAL = ("fetch_throttle", "produce_throttle")
_EXPORTERS = {
    Preset.NODE_EXPORTER: "node_exporter on every broker's machine",
    Preset.CADVISOR: "the kubelets' /metrics/cadvisor",
    Preset.JMX_EXPORTER: f"the brokers' exporter, with the rules of {RULES} or Strimzi's reporter",
    Preset.CUSTOM: "what your own query names",
}


def examine_metrics(
    around: CommandContext,
    source: PolicySource,
    credentials: Path | None,
    *,
    brokers: frozenset[int],
    metered: frozenset[Entity],
    controllers: frozenset[int],
) -> Iterator[Finding]:
    """Findings about the policy's Prometheus. `metered` are the members that have a quota.

    `controllers` are the ones that are known of a cluster without ZooKeeper.

    `brokers` are the live ones; empty = not known, and then no broker can be missed.
    """
    spec = source.declared.spec
    try:
        settings = metrics_of(source, credentials)
    except TidegateError as error:
        yield _no_prometheus(error)
        return
    if spec.metrics is None or settings is None:
        yield warning(
            "prometheus",
            Reason.METRICS_NOT_WATCHED,
            "The policy has no spec.metrics.",
            "Contracts are kept, and brokers are not held below their network limits.",
            "Add spec.metrics and spec.brokers; examples/metrics/ has what to scrape.",
        )
        return
    if spec.brokers is None:
        yield warning(
            "limits",
            Reason.METRICS_NOT_WATCHED,
            "The policy has no spec.brokers.",
            "Load is read, and no limit is there that it could exceed.",
            "Set spec.brokers.egress.limit and ingress.limit, or combined.limit.",
        )
    try:
        with closing(around.open_probe(settings)) as probe:
            found = probe.look(brokers)
            clock = clock_finding(
                "Prometheus", probe.server_seconds, around.now_seconds(), is_for_readings=True
            )
    except TidegateError as error:
        yield _no_prometheus(error)
        return
    yield ok("prometheus", f"Prometheus {spec.metrics.prometheus.url} answers.")
    if clock is not None:
        yield clock
    if not brokers:
        yield unknown("series", "Not examined: which brokers live is not known.")
        return
    lacking = [one for one in found if not one.brokers & brokers]
    for one in found:
        yield from _series(settings, one, brokers, any_quota=bool(metered))
    yield from _not_asked({one.name for one in found})
    with closing(around.open_reader(settings)) as reader:
        readings = reader.read(brokers)
    narrow = _how_to_narrow(settings)
    yield from _strangers(found, brokers, controllers - brokers, narrow)
    yield from _interfaces(readings, spec.brokers, are_named=bool(settings.interfaces))
    yield from _problems(readings, {one.name for one in lacking}, narrow)
    yield from _exporters(source, readings, brokers)
    yield from _absent_kinds(metered, {entity for entity, _, _ in readings.clients})


def _no_prometheus(error: TidegateError) -> Finding:
    return failed(
        "prometheus",
        error,
        _NOT_MEASURED,
        "Check spec.metrics.prometheus: url, tls, and the Secret with the login.",
    )


# --- series that are there, and why others are not ------------------------------------------------


def _series(
    settings: MetricsSettings, found: Found, brokers: frozenset[int], *, any_quota: bool
) -> Iterator[Finding]:
    what = _WORDS[found.name]
    ours = found.brokers & brokers
    if not ours:
        yield _missing(settings, found, any_quota=any_quota)
        return
    without = brokers - ours
    which = f"of {broker_words(ours)}"
    if without and found.name in _NICS:
        yield problem(
            "series",
            Reason.METRICS_MISSING,
            f"There are {what} {which}, and none of {broker_words(without)}.",
            f"{_NOT_MEASURED} This holds for those brokers.",
            f"Have Prometheus scrape {_EXPORTERS[settings.preset]}; look at its targets.",
        )
        return
    note = f", none of {broker_words(without)}" if without else ""
    yield ok("series", f"{found.count} series with {what} {which}{note}.")


def _not_asked(asked: Collection[str]) -> Iterator[Finding]:
    """What preset Custom reads only where the policy has a query for it."""
    for name, what in _WORDS.items():
        if name in asked or name in _OPTIONAL:
            continue
        yield warning(
            "series",
            Reason.METRICS_NOT_WATCHED,
            f"The policy has no query for {what}, and preset Custom does not include one.",
            _NOT_MEASURED if name in _NICS else _NOT_ATTRIBUTED,
            "Add it to spec.metrics.queries, or choose the preset that fits your exporters.",
        )


def _missing(settings: MetricsSettings, found: Found, *, any_quota: bool) -> Finding:
    what = _WORDS[found.name]
    so_what = _NOT_MEASURED if found.name in _NICS else _NOT_ATTRIBUTED
    if found.name in _OPTIONAL:
        so_what = "Whether a cut works is judged by rates alone, and top shows no delays."
    if found.unlabelled:
        return _unlabelled(settings, found, so_what)
    if found.elsewhere:
        matchers = ", ".join(f"{name}={value}" for name, value in settings.matchers.items())
        return problem(
            "series",
            Reason.METRICS_MISSING,
            f"No series with {what} matches metrics.matchers ({matchers}), and others do without "
            f"them: {found.elsewhere}.",
            so_what,
            "Correct spec.metrics.matchers to labels that this cluster's series have.",
        )
    if found.name in _NICS and settings.preset is not Preset.JMX_EXPORTER:
        return problem(
            "series",
            Reason.METRICS_MISSING,
            f"Prometheus has no series with {what} ({found.query}).",
            so_what,
            f"Have it scrape {_EXPORTERS[settings.preset]}, or choose another "
            "spec.metrics.preset; examples/metrics/ has both.",
        )
    scraped = (
        f"its series of these brokers are others, such as {found.related}"
        if found.related
        else "it has no series of an exporter of these brokers at all"
    )
    if found.name not in _NICS and found.related and not any_quota:
        return warning(
            "series",
            Reason.CLIENTS_NOT_METERED,
            f"Prometheus has no series with {what}. No declared user or client has a quota yet, "
            "and Kafka meters only those that have one.",
            so_what,
            f"Go on, and look again when quotas are written; the exporter's rules must be those of "
            f"{RULES}. spec.defaults.metering: Enabled meters everybody.",
        )
    reason = Reason.METRICS_MISSING if found.name in _NICS else Reason.CLIENTS_NOT_METERED
    state = warning if found.name in _OPTIONAL else problem
    idle = "" if found.name in _NICS else " Clients that were idle for an hour are not metered."
    return state(
        "series",
        reason,
        f"Prometheus has no series with {what}: {scraped}.{idle}",
        so_what,
        _how_to_have(found.name),
    )


_FIELDS = {
    "egress": "egress",
    "ingress": "ingress",
    "fetch_rate": "userFetch",
    "produce_rate": "userProduce",
}


def _how_to_have(name: str) -> str:
    """The ways to a series, of which some exporters leave only the last."""
    own = f"; or name the series that you have in spec.metrics.queries.{_FIELDS.get(name)}"
    return (
        f"Give the brokers' JMX exporter the rules of {RULES}, or Strimzi's reporter an allowList "
        f"with kafka_server.*, and have Prometheus scrape it{own if name in _FIELDS else ''}."
    )


def _unlabelled(settings: MetricsSettings, found: Found, so_what: str) -> Finding:
    identity = identity_of(settings)
    what = _WORDS[found.name]
    if isinstance(identity, BrokerLabel):
        lack = f"none names one of the brokers in its label {identity.name!r}"
    else:
        lack = "the label instance of none is among metrics.brokerIdentity.instances"
    if found.labels:
        cure = f"Set spec.metrics.brokerIdentity to label: {found.labels[0]}, which has the ids."
    else:
        cure = (
            "Add the label when scraping (relabelling in examples/metrics/), or list "
            "spec.metrics.brokerIdentity.instances."
        )
    return problem(
        "identity",
        Reason.METRICS_AMBIGUOUS,
        f"There are series with {what}, and {lack}: {found.unlabelled}.",
        so_what,
        cure,
    )


# --- what counts as a NIC -------------------------------------------------------------------------


def _interfaces(
    readings: Readings, limits: BrokerLimits | None, *, are_named: bool
) -> Iterator[Finding]:
    """The interfaces that are added up, pairs that carry the same bytes, and impossible sums."""
    sets: dict[tuple[str, ...], list[int]] = {}
    for broker, found in sorted(readings.interfaces.items()):
        sets.setdefault(tuple(one.name for one in found), []).append(broker)
    if sets:
        shown = "; ".join(f"{', '.join(each)} of {broker_words(of)}" for each, of in sets.items())
        before = "" if are_named else " Earlier versions added up unknown interfaces, too."
        yield ok("interfaces", f"Counted as NICs: {shown}.{before}")
    for broker, found in sorted(readings.interfaces.items()):
        for pair in alike(found):
            how = (
                f"What {pair.one} sends, {pair.other} receives"
                if pair.mirrored
                else f"{pair.one} and {pair.other} carry the same"
            )
            yield _counted_twice(f"{how}, both ways, on broker {broker}, and both are counted.")
        for way, capacity in _capacities(limits, broker):
            carried = sum(_carried(one, way) for one in found)
            if capacity is not None and carried > capacity:
                names = ", ".join(one.name for one in found)
                shown = rate_words(carried)
                yield _counted_twice(
                    f"{names} of broker {broker} carried {shown} of {_WORDS_OF_WAY[way]} together, "
                    f"above the capacity of {rate_words(capacity)}."
                )


def _capacities(
    limits: BrokerLimits | None, broker: int
) -> Iterator[tuple[Direction, float | None]]:
    if limits is not None:
        for way, of in (
            (Direction.EGRESS, limits.egress_of(broker)),
            (Direction.INGRESS, limits.ingress_of(broker)),
            (Direction.COMBINED, limits.combined_of(broker)),
        ):
            yield way, None if of is None or of.capacity is None else float(of.capacity)


def _carried(interface: Interface, way: Direction) -> float:
    carried = {
        Direction.EGRESS: interface.egress_bytes_per_second,
        Direction.INGRESS: interface.ingress_bytes_per_second,
    }
    return sum(carried[part] for part in way.parts)


def _counted_twice(found: str) -> Finding:
    return warning(
        "interfaces",
        Reason.INTERFACES_UNCLEAR,
        found,
        "Bytes that are counted twice throttle tiers for traffic that does not exist.",
        _NAME_CABLES,
    )


# --- whose series they are ------------------------------------------------------------------------

_ORDER_RULES = (
    f"Order the JMX exporter's rules as {RULES} does: the one for user and client id first. Where "
    "they cannot be changed, name series with both labels in spec.metrics.queries (userFetch, "
    "userProduce)."
)
_MIXED = "Set spec.metrics.matchers to labels that only this cluster's series have."


def _how_to_narrow(settings: MetricsSettings) -> str:
    identity = identity_of(settings)
    if not isinstance(identity, BrokerLabel) or identity.name not in POD_LABELS:
        return _MIXED
    return (
        f"Set spec.metrics.brokerIdentity to label: {identity.name} with podPattern: an expression "
        "that only the brokers' Pods match, such as orders-kafka-.*; for two clusters or replicas, "
        "set spec.metrics.matchers to labels that only this cluster's series have."
    )


def _strangers(
    found: Sequence[Found], brokers: frozenset[int], controllers: frozenset[int], narrow: str
) -> Iterator[Finding]:
    every = frozenset().union(*(one.brokers for one in found)) - brokers
    if of_controllers := every & controllers:
        which = broker_words(of_controllers).replace("broker", "controller")
        yield ok("clusters", f"Series of {which} are left out: they are not brokers.")
    others = every - controllers
    if others:
        yield warning(
            "clusters",
            Reason.SOURCE_CHANGED,
            f"There are also series of {broker_words(others)}, which this cluster does not have.",
            "Series of another Kafka cluster may be taken for this one's, where ids are the same.",
            narrow,
        )


def _problems(readings: Readings, lacking: Collection[str], narrow: str) -> Iterator[Finding]:
    """What the operator's reading found, without what has been found missing already."""
    reported = set[Reason]()
    if {"egress", "ingress"} & set(lacking):
        reported.add(Reason.METRICS_MISSING)
    if {"fetch_rate", "produce_rate"} & set(lacking):
        reported.add(Reason.CLIENTS_NOT_METERED)
    seen = False
    for one in readings.problems:
        seen = True
        if one.reason in reported:
            continue
        if one.reason is Reason.METRICS_AMBIGUOUS:
            yield problem(
                "clusters",
                one.reason,
                one.message,
                "These readings are left out, so the load of the broker is not known. Two clusters "
                "in one Prometheus, two replicas of it, or Pods beside the brokers look like this.",
                narrow,
            )
        elif one.reason is Reason.INTERFACES_UNCLEAR:
            yield problem("interfaces", one.reason, one.message, _NOT_MEASURED, _NAME_CABLES)
        elif one.reason is Reason.CLIENTS_NOT_NAMED:
            yield problem("series", one.reason, one.message, _NOT_ATTRIBUTED, _ORDER_RULES)
        elif one.reason is Reason.CLIENTS_NOT_METERED and one.broker is not None:
            yield warning(
                "series", one.reason, one.message, _NOT_ATTRIBUTED, "Look at that exporter."
            )
        else:
            yield problem(
                "readings",
                one.reason,
                one.message,
                _NOT_MEASURED,
                "Check the exporters and the targets of Prometheus.",
            )
    if not seen:
        yield ok("readings", "A reading as the operator makes it has no gap.")


# --- exporters that are read directly -------------------------------------------------------------

_BY_PROMETHEUS = "The first cut for it waits for Prometheus' scrapes."
_CHECK_DIRECT = (
    "Check spec.metrics.direct (port, path, tls), and that the label instance names the broker's "
    "machine. The operator asks from its Pod: the chart's networkPolicy.egress.exporters must have "
    "the port."
)
_AT_ONCE = 8
_SHOWN_EXPORTERS = 3


def _exporters(
    source: PolicySource, readings: Readings, brokers: frozenset[int]
) -> Iterator[Finding]:
    """Every broker's exporter, asked and judged as the operator does it, but from here."""
    declared = source.declared
    direct = declared.spec.metrics.direct if declared.spec.metrics is not None else None
    if direct is None or not direct.enabled or declared.spec.brokers is None:
        return
    try:
        settings = direct_settings(direct, source.direct_secrets())
    except TidegateError as error:
        yield failed("exporters", error, _BY_PROMETHEUS, "Check spec.metrics.direct.")
        return
    exporters = Exporters()

    def refusal(broker: int) -> str:
        """Why it would not be read directly; empty = it would be."""
        scraped = readings.exporters.get(broker)
        if scraped is None:
            return "Prometheus does not have the series of exactly one exporter of it"
        try:
            host = allowed_host(scraped.instance, direct.port, source.bounds)
            with closing(exporters.open(host, settings)) as exporter:
                exporter.read(scraped, fastest(readings, broker, declared.policy.limits))
        except NotRead as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(_AT_ONCE) as calls:
        asked = sorted(brokers)
        found = dict(zip(asked, calls.map(refusal, asked), strict=True))
    refused = {broker: why for broker, why in found.items() if why}
    if read := frozenset(found) - refused.keys():
        what = f"The exporters of {broker_words(read)} answer, and go on from what Prometheus read."
        yield ok("exporters", what)
    for broker, why in list(refused.items())[:_SHOWN_EXPORTERS]:
        what = f"Broker {broker} cannot be read directly: {why}."
        yield warning("exporters", Reason.NOT_READ_DIRECTLY, what, _BY_PROMETHEUS, _CHECK_DIRECT)
    if more := frozenset(list(refused)[_SHOWN_EXPORTERS:]):
        what = f"Nor can {broker_words(more)} be read directly."
        yield warning("exporters", Reason.NOT_READ_DIRECTLY, what, _BY_PROMETHEUS, _CHECK_DIRECT)


def _absent_kinds(metered: frozenset[Entity], seen: Collection[Entity]) -> Iterator[Finding]:
    """Kinds of members of which no series tells, while there are some of another kind.

    An exporter needs a rule for each kind, and nothing shows what it leaves out.
    """
    if not seen:
        return
    known = {_kind(entity) for entity in seen}
    absent: dict[str, list[str]] = {}
    for entity in sorted(metered, key=lambda one: one.sort_key):
        if _kind(entity) not in known:
            absent.setdefault(_kind(entity), []).append(str(entity))
    for kind, names in absent.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield warning(
            "series",
            Reason.CLIENTS_NOT_METERED,
            f"No series names {kind} alone, as {', '.join(names[:3])}{more} would have, while "
            "there are some of other clients. Clients that were idle for an hour have none.",
            f"{_NOT_ATTRIBUTED} This holds for those.",
            f"Unless they were idle, add the rule for {kind} of {RULES} to the exporter's.",
        )


def _kind(entity: Entity) -> str:
    if entity.user is None:
        return "a client id"
    return "a user" if entity.client_id is None else "a user with a client id"
