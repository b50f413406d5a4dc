"""Which broker a series is about, by its labels; and the matcher that leaves out series that could not be anybody's.

Nothing is guessed: a label that spells no broker gives None. Whether several series may speak for one broker is seen where they are read.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache

from tidegate.prometheus.selectors import is_not, literally, matches
from tidegate.prometheus.settings import BrokerInstances, BrokerLabel

BrokerOf = Callable[[Mapping[str, str]], int | None]

# Only in these a number at the end is a broker's: the host name ip-10-0-0-1 ends in a number as well.
_POD_LABELS = frozenset({"pod", "pod_name", "kubernetes_pod_name", "statefulset_kubernetes_io_pod_name", "strimzi_io_pod_name"})
_POD = re.compile(r"[a-z0-9][a-z0-9.-]*-(0|[1-9][0-9]{0,9})")  # Strimzi: <cluster>-kafka-3, <cluster>-<pool>-3
_ID = re.compile(r"[0-9]{1,10}")
_LARGEST_ID = 2**31 - 1
_REMEMBERED = 4096  # a thousand clients of each broker tell the same
_LONGEST_MATCHER = 2048  # a proxy may refuse a longer address; what the matcher would leave out is then left out here


def broker_of(identity: BrokerLabel | BrokerInstances) -> BrokerOf:
    """A function from labels to the broker's id, None where they do not tell it."""
    if isinstance(identity, BrokerInstances):
        return _by_instance(identity.ids)
    return _by_label(identity.name)


def broker_matcher(identity: BrokerLabel | BrokerInstances) -> str:
    """The matcher for selectors of our own: series that `broker_of` can tell, and as few others as a matcher can say."""
    if isinstance(identity, BrokerLabel):
        return matches(identity.name, ".+-[0-9]+") if identity.name in _POD_LABELS else is_not(identity.name, "")
    hosts = sorted({_host(instance) for instance in identity.ids})
    matcher = matches("instance", *(literally(host) + "(:[0-9]+)?" for host in hosts))
    return matcher if len(matcher) <= _LONGEST_MATCHER else is_not("instance", "")


def _by_label(name: str) -> BrokerOf:
    @lru_cache(maxsize=_REMEMBERED)
    def spelled(value: str) -> int | None:
        found = _POD.fullmatch(value) if name in _POD_LABELS else None
        number = found[1] if found else value
        return int(number) if _ID.fullmatch(number) and int(number) <= _LARGEST_ID else None

    return lambda labels: spelled(labels.get(name, ""))


def _by_instance(ids: Mapping[str, int]) -> BrokerOf:
    named = Counter(_host(instance) for instance in ids)
    # node_exporter and the JMX exporter of one machine differ in the port; with two brokers on a host only the port tells them apart
    by_host = {host: broker for instance, broker in ids.items() if named[host := _host(instance)] == 1}

    def of(labels: Mapping[str, str]) -> int | None:
        instance = labels.get("instance", "")
        return ids[instance] if instance in ids else by_host.get(_host(instance))

    return of


def _host(instance: str) -> str:
    host, separator, port = instance.rpartition(":")
    # a bare IPv6 address ends in a group of digits, too, but has more colons and no brackets
    return host if separator and port.isdecimal() and (":" not in host or host.endswith("]")) else instance
