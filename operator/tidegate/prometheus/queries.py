"""The queries of each preset, with the names that exporters give to their metrics.

| preset | NICs | left out |
|---|---|---|
| NodeExporter | node_exporter's counters of the machine's NICs | virtual ones (`interfaces`) |
| Cadvisor | cAdvisor's counters of the Pod's NICs | the same |
| JmxExporter | the broker's own counters of client and replication bytes | see below |

Counters of the broker are a poor man's NIC: they lack the overhead of protocols and the traffic of
other processes.

Rates of clients and throttle times come from the brokers' exporter with all three. Its rules are
users' own, so the names of every well-known set are asked for (`exporters`).
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from functools import lru_cache

from tidegate.prometheus.exporters import (
    CLIENTS,
    REPLICATION,
    byte_counters,
    counters,
    other_resources,
    quota_metrics,
    quota_metrics_with_names,
)
from tidegate.prometheus.interfaces import WITHOUT_CABLE
from tidegate.prometheus.settings import (
    BrokerInstances,
    BrokerLabel,
    MetricsSettings,
    Preset,
    Queries,
)
from tidegate_logic.model import BackgroundKind

# PromQL selectors. Every label value is escaped, so that no name can change the query.


_REGEX_SIGNS = re.compile(r"[\\.+*?()|\[\]{}^$]")
_TEXT_SIGNS = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def selector(*matchers: str) -> str:
    """`{a="b",c=~"d"}`; the metric's name is a matcher as the others."""
    return "{" + ",".join(matcher for matcher in matchers if matcher) + "}"


def narrowed(query: str, matchers: Iterable[str]) -> str:
    """A plain selector (`metric`, `metric{...}` or `{...}`) with further matchers."""
    more = ",".join(matchers)
    if not more:
        return query
    plain = query.strip()
    if not plain.endswith("}"):
        return f"{plain}{{{more}}}"
    body = plain.removesuffix("}").rstrip()
    return f"{body}{'' if body[-1] in '{,' else ','}{more}}}"


def is_equal(label: str, value: str) -> str:
    """Series whose label has this value; the empty value also where the label is absent."""
    return f'{label}="{value.translate(_TEXT_SIGNS)}"'


def is_not(label: str, value: str) -> str:
    """Series whose label has another value; with the empty value: those that have the label."""
    return f'{label}!="{value.translate(_TEXT_SIGNS)}"'


def matches(label: str, *expressions: str) -> str:
    """Series whose whole label matches one of these regular expressions (RE2).

    What comes from users goes through `literally` first.
    """
    return f'{label}=~"{"|".join(expressions).translate(_TEXT_SIGNS)}"'


def matches_none(label: str, expressions: Iterable[str]) -> str:
    """Series whose label matches none of these regular expressions."""
    return f'{label}!~"{"|".join(expressions).translate(_TEXT_SIGNS)}"'


def literally(text: str) -> str:
    """The regular expression that matches just this text.

    Python's own escapes signs that RE2 does not want escaped.
    """
    return _REGEX_SIGNS.sub(r"\\\g<0>", text)


def over_last(query: str, seconds: float) -> str:
    """The raw samples of the last `seconds` with their own times.

    An instant query without range would give them the time of asking.
    """
    return f"{query.strip()}[{math.ceil(seconds)}s]"


# The broker of a series by its labels, and the matcher that leaves out series without a broker.
# Nothing is guessed: a label that is not a broker's gives None.


BrokerOf = Callable[[Mapping[str, str]], int | None]

# Only in these a number at the end is a broker's: the host name ip-10-0-0-1 ends in one as well.
POD_LABELS = frozenset(
    {
        "pod",
        "pod_name",
        "kubernetes_pod_name",
        "statefulset_kubernetes_io_pod_name",
        "strimzi_io_pod_name",
    }
)
# Strimzi: <cluster>-kafka-3, <cluster>-<pool>-3
_POD = re.compile(r"[a-z0-9][a-z0-9.-]*-(0|[1-9][0-9]{0,9})")
_ID = re.compile(r"[0-9]{1,10}")
_LARGEST_ID = 2**31 - 1
_REMEMBERED = 4096  # a thousand clients of each broker have the same


def broker_of(identity: BrokerLabel | BrokerInstances) -> BrokerOf:
    """A function from labels to the broker's id, None if they do not name it."""
    if isinstance(identity, BrokerInstances):
        return _by_instance(identity.ids)
    return _by_label(identity.name)


def broker_matcher(identity: BrokerLabel | BrokerInstances) -> str:
    """The matcher for our own selectors: the series that `broker_of` recognizes.

    It lets as few others through as a matcher can, however long a list of instances makes it.
    """
    if isinstance(identity, BrokerLabel):
        return (
            matches(identity.name, ".+-[0-9]+")
            if identity.name in POD_LABELS
            else is_not(identity.name, "")
        )
    return _of_hosts(identity.ids)


def these_brokers(identity: BrokerLabel | BrokerInstances, brokers: Collection[int]) -> str:
    """The matcher that, of the series that `broker_of` recognizes, leaves those of some brokers."""
    if isinstance(identity, BrokerInstances):
        return _of_hosts(at for at, broker in identity.ids.items() if broker in brokers)
    numbers = "|".join(str(broker) for broker in sorted(brokers))
    return matches(identity.name, f"{'(.+-)?' if identity.name in POD_LABELS else ''}0*({numbers})")


def _of_hosts(instances: Iterable[str]) -> str:
    hosts = sorted({_host(instance) for instance in instances})
    return matches("instance", *(literally(host) + "(:[0-9]+)?" for host in hosts))


def _by_label(name: str) -> BrokerOf:
    @lru_cache(maxsize=_REMEMBERED)
    def spelled(value: str) -> int | None:
        found = _POD.fullmatch(value) if name in POD_LABELS else None
        number = found[1] if found else value
        return int(number) if _ID.fullmatch(number) and int(number) <= _LARGEST_ID else None

    return lambda labels: spelled(labels.get(name, ""))


def _by_instance(ids: Mapping[str, int]) -> BrokerOf:
    named = Counter(_host(instance) for instance in ids)
    # node_exporter and the JMX exporter of one machine differ in the port; with two brokers on a
    # host only the port distinguishes them
    by_host = {
        host: broker for instance, broker in ids.items() if named[host := _host(instance)] == 1
    }

    def of(labels: Mapping[str, str]) -> int | None:
        instance = labels.get("instance", "")
        return ids[instance] if instance in ids else by_host.get(_host(instance))

    return of


def _host(instance: str) -> str:
    host, separator, port = instance.rpartition(":")
    # a bare IPv6 address ends in a group of digits, too, but has more colons and no brackets
    return (
        host
        if separator and port.isdecimal() and (":" not in host or host.endswith("]"))
        else instance
    )


# Strimzi's, beside <cluster>-kafka-0; a pattern of the brokers' Pods decides otherwise
_OTHER_PODS = ".+-(zookeeper|connect|mirrormaker2)-[0-9]+"


def identity_of(settings: MetricsSettings) -> BrokerLabel | BrokerInstances:
    """How series name their broker: as declared, else by the label that fits the preset.

    It is the Pod's name with cAdvisor and the label `broker` with the others.
    """
    return settings.brokers or BrokerLabel(
        "pod" if settings.preset is Preset.CADVISOR else "broker"
    )


def queries_of(
    settings: MetricsSettings, *, any_broker: bool = False, unnamed: bool = False
) -> Queries:
    """The queries to ask, each narrowed to the settings' matchers.

    They are the declared ones, and the preset's where nothing is declared; with `any_broker` the
    preset's also match series that do not name their broker, with `unnamed` those in whose metric's
    name the client has gone, so that people learn of them.
    """
    brokers = "" if any_broker else broker_matcher(identity_of(settings))
    asked = {
        name: narrowed(query, matchers_of(settings))
        for name, query in _chosen(settings, brokers, unnamed=unnamed).items()
    }
    return Queries(**asked)


def matchers_of(settings: MetricsSettings) -> list[str]:
    """The settings' matchers, and the brokers' Pods, which are added to every query."""
    equal = [is_equal(label, settings.matchers[label]) for label in sorted(settings.matchers)]
    identity = settings.brokers
    if isinstance(identity, BrokerLabel) and identity.pattern is not None:
        return [*equal, matches(identity.name, identity.pattern)]
    return equal


def _chosen(settings: MetricsSettings, brokers: str, *, unnamed: bool) -> dict[str, str]:
    declared = _given(settings.queries)
    if settings.preset is Preset.CUSTOM:
        return declared
    return _given(_clients(brokers, unnamed=unnamed)) | _nics(settings, brokers) | declared


def _given(queries: Queries) -> dict[str, str]:
    return {
        field.name: query
        for field in fields(Queries)
        if (query := getattr(queries, field.name)) is not None
    }


def _interfaces(settings: MetricsSettings, label: str) -> str:
    """The matcher for interfaces: the wanted ones, or any that may have a cable."""
    if not settings.interfaces:
        return matches_none(label, WITHOUT_CABLE)
    return matches(label, *(literally(one).replace(r"\*", ".*") for one in settings.interfaces))


def _nics(settings: MetricsSettings, brokers: str) -> dict[str, str]:
    match settings.preset:
        case Preset.CADVISOR:
            devices, pods = (
                _interfaces(settings, "interface"),
                matches_none("pod", [_OTHER_PODS]),
            )
            egress, ingress = (
                is_equal("__name__", f"container_network_{way}_bytes_total")
                for way in ("transmit", "receive")
            )
            return {
                "egress": selector(egress, devices, pods, brokers),
                "ingress": selector(ingress, devices, pods, brokers),
            }
        case Preset.JMX_EXPORTER:
            return {
                "egress": broker_bytes("out", CLIENTS, REPLICATION, brokers=brokers),
                "ingress": broker_bytes("in", CLIENTS, REPLICATION, brokers=brokers),
            }
        case _:
            devices = _interfaces(settings, "device")
            egress, ingress = (
                is_equal("__name__", f"node_network_{way}_bytes_total")
                for way in ("transmit", "receive")
            )
            return {
                "egress": selector(egress, devices, brokers),
                "ingress": selector(ingress, devices, brokers),
            }


def broker_bytes(way: str, *kinds: str, brokers: str) -> str:
    """Select a broker's counters of bytes, without those of single topics.

    `way` is `out` or `in`, `kinds` are CLIENTS and REPLICATION of `exporters`.
    """
    return _of_meters(byte_counters(way, *kinds), brokers)


def background_bytes(settings: MetricsSettings, kind: BackgroundKind) -> str:
    """Select what brokers count of tiered storage, as `broker_bytes`, narrowed to the settings."""
    query = _of_meters(counters(f"{kind.value}Bytes"), broker_matcher(identity_of(settings)))
    return narrowed(query, matchers_of(settings))


def _of_meters(names_and_beans: tuple[tuple[str, ...], str], brokers: str) -> str:
    names, beans = names_and_beans
    return selector(
        matches("__name__", *names), is_equal("topic", ""), matches("name", beans), brokers
    )


def _clients(brokers: str, *, unnamed: bool) -> Queries:
    def quota_metric(resource: str, metric: str) -> str:
        names = quota_metrics(resource, metric)
        if unnamed:
            names += (quota_metrics_with_names(resource, metric),)
        others = matches_none("resource", other_resources(resource))
        return selector(matches("__name__", *names), others, brokers)

    return Queries(
        fetch_rate=quota_metric("Fetch", "byte_rate"),
        produce_rate=quota_metric("Produce", "byte_rate"),
        fetch_throttle=quota_metric("Fetch", "throttle_time"),
        produce_throttle=quota_metric("Produce", "throttle_time"),
    )
