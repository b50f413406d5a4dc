"""Which interfaces of a broker have a cable: those that are added up as its NIC.

Most interfaces of a machine carry bytes that a cable carries as well: the host's ends of Pods'
pairs, bridges, tunnels, VLANs, bonds. Each network plugin has names of its own for them, and people
give any name. So names decide where they are known, and whatever else carries more than a trace
beside a cable makes the broker's load unknown: a sum would throttle for traffic that does not
exist. `metrics.interfaces` settles it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from tidegate.prometheus.series import Series, is_amount
from tidegate.prometheus.settings import MetricsSettings, Preset
from tidegate_logic.model import Direction, Interface

# Regular expressions of RE2 and of Python: Prometheus is not asked for what they match.
WITHOUT_CABLE = (
    # the machine's own, and ends of pairs whose other end is in a Pod, a container or a machine
    *("lo[0-9]*", "dummy.*", "ifb.*", "nlmon.*", "teql.*", "v?can[0-9]+", "nodelocaldns"),
    *("veth.*", "vnet.*", "vif[0-9].*", "tap.*", "macvtap.*", "lxc.*", "lxd.*", "incus.*"),
    # of network plugins: AWS, GKE, Azure, OVN (15 hex digits), Kube-OVN, Antrea (6 at the end)
    *("eni.*", "pod-id-link.*", "gke.*", "azv.*", "azure.*", "[0-9a-f]{15}", "ovn.*"),
    *("[0-9a-f]{12}_h", "mirror[0-9]+", "antrea.*", "[a-z0-9.-]{1,8}-[0-9a-f]{6}"),
    *("cali.*", "cilium.*", "flannel.*", "weave.*", "kube-.*", "cni.*", "cbr.*", "datapath"),
    *("pod[0-9a-f]{5}.*", "k6t-.*", "ipvl.*", "macvlan.*", "vlan.*", ".+[.@].+"),
    # bridges and switches
    *("br.*", "[vq]br.*", "vmbr.*", "virbr.*", "xenbr.*", "xapi.*", "vmnet.*", "fw(br|pr|ln).*"),
    *("docker.*", "podman.*", "nerdctl.*", "k3d.*", "ovs.*", "q(vb|vo|r-|g-).*", "vrf.*"),
    ".*pf[0-9]+[vs]f[0-9]+",  # a switch's port of a virtual function
    # tunnels
    *("tun.*", "utun.*", "wg.*", "wt[0-9]+", "tailscale.*", "zt.*", "nebula.*", "ppp.*"),
    *("vxlan.*", "vx-.*", "geneve.*", "genev_.*", "gre.*", "erspan.*", "sit.*", "ip6.*"),
    *("ip_vti.*", "vti.*", "ipip.*", "l2tp.*", "ipsec.*", "xfrm.*", "macsec.*"),
    *("submariner.*", "liqo.*"),
)
# What the kernel, udev and biosdevname call a port, as far as no plugin does (eni...).
_CABLE = re.compile(
    r"eth[0-9]+|en[0-9]+|en[abcdopsuvwxX][0-9a-z]+|em[0-9]+|p[0-9]+p[0-9]+|nic[0-9]+"
    r"|ib[a-z]*[0-9][0-9a-z]*|wl[a-z0-9]+|usb[0-9]+|(igb|ixl?|ice|vtnet|vmx|hn|mce|bge|re)[0-9]+"
)
# Their bytes are those of the cables beside them: bonds, the hidden half of eth0 on Azure (which is
# a port of its own on machines with many PCI domains), functions of a port and their ports on its
# switch.
_MASTER = re.compile(r"(bond|team|lacp|lagg?)[-_]?[0-9a-z]*")
_TWIN = re.compile(r"enP.+|(en|eth|ib|p[0-9]+p).+[v_][0-9]+")
_TWIN_OF_HOST = re.compile(r"net[0-9]+")  # in a Pod it may be a second NIC

_TRACE = 0.01  # of the cables' bytes: whatever it is, it changes the sum by no more
_TRACE_BYTES_PER_SECOND = 10_000.0
_OVER = 1.1  # so much more than all cables together is no part of what they carry
_SAME = 0.05  # by which rates of the same bytes may differ


def interface_label(settings: MetricsSettings) -> str | None:
    """The label with the interface's name; None = the preset has no interfaces."""
    labels = {Preset.NODE_EXPORTER: "device", Preset.CADVISOR: "interface"}
    return labels.get(settings.preset)


def judged_directions(settings: MetricsSettings) -> tuple[Direction, ...]:
    """The directions whose series are of interfaces by a preset's names: no query replaces them."""
    if interface_label(settings) is None:
        return ()
    declared = {
        Direction.EGRESS: settings.queries.egress,
        Direction.INGRESS: settings.queries.ingress,
    }
    return tuple(way for way, query in declared.items() if query is None)


@dataclass(frozen=True, slots=True)
class Wired:
    """The interfaces to add up; none is where it is not clear which have a cable."""

    counted: frozenset[str] = frozenset()
    unclear: frozenset[str] = frozenset()


def wired_of(rates: Mapping[str, float], settings: MetricsSettings) -> Wired:
    """Tell cables from the rest, by names and by what each carries both ways, in bytes/s.

    `rates` lacks what `WITHOUT_CABLE` matches; with `metrics.interfaces` it is what people wanted.
    """
    if settings.interfaces:
        return Wired(frozenset(rates))
    is_pod = settings.preset is Preset.CADVISOR
    masters = {name for name in rates if _MASTER.fullmatch(name)}
    twins = {
        name
        for name in rates.keys() - masters
        if _TWIN.fullmatch(name) or (not is_pod and _TWIN_OF_HOST.fullmatch(name))
    }
    cables = {name for name in rates.keys() - twins if _CABLE.fullmatch(name)}
    others = rates.keys() - masters - twins - cables
    if not cables and not others:
        cables, twins = (twins, set()) if twins else (masters, set())
        masters = masters - cables
    carried = sum(rates[name] for name in cables)
    trace = max(carried * _TRACE, _TRACE_BYTES_PER_SECOND)
    odd = {name for name in others if rates[name] > trace}
    odd |= {name for name in masters | twins if rates[name] > carried * _OVER + trace}
    if not cables and len(others) == 1 and odd <= others:
        return Wired(frozenset(others))  # nothing else could be it
    if odd or not cables:
        return Wired(unclear=frozenset(odd | cables or others))
    return Wired(frozenset(cables))


def rate_of(series: Series) -> float:
    """Bytes/s of a counter over its samples; 0 with fewer than two. A reset's part is missing."""
    amounts = [sample for sample in series.samples if is_amount(sample[1])]
    if len(amounts) < 2:
        return 0.0
    grown = sum(max(0.0, later[1] - before[1]) for before, later in pairwise(amounts))
    return grown / (amounts[-1][0] - amounts[0][0])


def came_or_went(series: Sequence[Series], label: str) -> list[str]:
    """The interfaces of one exporter that some of its scrapes lack."""
    times = {one.labels.get(label, ""): {at for at, _ in one.samples} for one in series}
    every = set[float]().union(*times.values())
    return sorted(name for name, scraped in times.items() if scraped != every)


@dataclass(frozen=True, slots=True)
class Alike:
    """Two interfaces with the same bytes: `mirrored` = what one sends the other receives."""

    one: str
    other: str
    mirrored: bool


def alike(interfaces: Iterable[Interface]) -> list[Alike]:
    """Pairs that seem to carry the same bytes; those with less than a trace are left out."""
    return [
        Alike(one.name, other.name, mirrored)
        for one, other in combinations(interfaces, 2)
        for mirrored in (True, False)
        if _is_same(one.egress_bytes_per_second, _sent(other, mirrored=mirrored))
        and _is_same(one.ingress_bytes_per_second, _sent(other, mirrored=not mirrored))
    ]


def _sent(interface: Interface, *, mirrored: bool) -> float:
    return interface.ingress_bytes_per_second if mirrored else interface.egress_bytes_per_second


def _is_same(one: float, other: float) -> bool:
    most = max(one, other)
    return most > _TRACE_BYTES_PER_SECOND and abs(one - other) <= most * _SAME
