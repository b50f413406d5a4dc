"""The queries that go with each preset. It knows the names that exporters give to metrics, and asks nothing.

| preset | cards | left out |
|---|---|---|
| NodeExporter | node_exporter's counters of the machine's cards | devices without a cable of their own (see below) |
| Cadvisor | cAdvisor's counters of the Pod's cards | the same |
| JmxExporter | the broker's own counters of client and replication bytes: a poor man's card: no protocol overhead, no traffic of others | |

Rates of clients and throttle times come from the JMX exporter with all three. Its rules are users' own, so the names of three well-known
sets are asked for: this project's (`lab/kafka_files/jmx_rules.yml`), the exporter's example for Kafka, and Confluent's.
"""

from dataclasses import fields, replace

from tidegate.prometheus.broker_identity import broker_matcher
from tidegate.prometheus.selectors import is_equal, matches, matches_none, selector
from tidegate.prometheus.settings import BrokerInstances, BrokerLabel, MetricsSettings, Preset, Queries

# Bytes of these are counted once more on the card below. Bonds and teams are left out rather than their members, whose names tell nothing.
# enP... is the hidden twin of eth0 on Azure; where it is a real card, the broker has no reading and a query of one's own helps.
_WITHOUT_CABLE = (
    *("lo", "veth.*", "docker.*", "podman.*", "cni.*", "cbr.*", "br-.*", "br[0-9].*", "virbr.*", "vnet.*", "lxc.*", "lxd.*", "ovs.*"),
    *("flannel.*", "cali.*", "cilium.*", "weave.*", "antrea.*", "kube-.*", "nodelocaldns", "datapath", "dummy.*", "ifb.*", "wg.*"),
    *("tun.*", "tap.*", "tailscale.*", "vxlan.*", "geneve.*", "genev_.*", "gre.*", "erspan.*", "sit.*", "ip6.*", "ip_vti.*", "ipip.*"),
    *("bond.*", "team.*", "vlan.*", "macvlan.*", "macvtap.*", "ipvlan.*", ".+[.@].+", "enP.+"),
)
_ZOOKEEPER_PODS = ".+-zookeeper-[0-9]+"  # Strimzi's, beside <cluster>-kafka-0

_RATE_SETS = "kafka_quota_byte_rate", "kafka_server_quota_byte_rate"
_THROTTLE_SETS = "kafka_quota_throttle_time", "kafka_server_quota_throttle_time"
_TRAFFIC_SETS = (
    "kafka_broker_{0}",
    "kafka_broker_replication{0}",
    "kafka_server_brokertopicmetrics_{0}",
    "kafka_server_brokertopicmetrics_replication{0}",
)


def identity_of(settings: MetricsSettings) -> BrokerLabel | BrokerInstances:
    """How series name their broker: as declared, else by the Pod's name with cAdvisor and by the label `broker` with the others."""
    return settings.brokers or BrokerLabel("pod" if settings.preset is Preset.CADVISOR else "broker")


def queries_of(settings: MetricsSettings) -> Queries:
    """The queries to ask: the declared ones, and the preset's where nothing is declared."""
    declared = {field.name: query for field in fields(Queries) if (query := getattr(settings.queries, field.name)) is not None}
    if settings.preset is Preset.CUSTOM:
        return settings.queries
    brokers = broker_matcher(identity_of(settings))
    return replace(_clients(brokers), **(_cards(settings.preset, brokers) | declared))


def _cards(preset: Preset, brokers: str) -> dict[str, str]:
    match preset:
        case Preset.CADVISOR:
            devices, pods = matches_none("interface", _WITHOUT_CABLE), matches_none("pod", [_ZOOKEEPER_PODS])
            egress, ingress = (is_equal("__name__", f"container_network_{way}_bytes_total") for way in ("transmit", "receive"))
            return {"egress": selector(egress, devices, pods, brokers), "ingress": selector(ingress, devices, pods, brokers)}
        case Preset.JMX_EXPORTER:
            all_topics = is_equal("topic", "")
            sent, received = (matches("__name__", *(name.format(f"bytes{way}_total") for name in _TRAFFIC_SETS)) for way in ("out", "in"))
            return {"egress": selector(sent, all_topics, brokers), "ingress": selector(received, all_topics, brokers)}
        case _:
            devices = matches_none("device", _WITHOUT_CABLE)
            egress, ingress = (is_equal("__name__", f"node_network_{way}_bytes_total") for way in ("transmit", "receive"))
            return {"egress": selector(egress, devices, brokers), "ingress": selector(ingress, devices, brokers)}


def _clients(brokers: str) -> Queries:
    def rate(resource: str) -> str:
        return _quota_metric(*_RATE_SETS, f"kafka_server_{resource.lower()}_byte_rate", resource=resource, brokers=brokers)

    def throttle(resource: str) -> str:
        return _quota_metric(*_THROTTLE_SETS, f"kafka_server_{resource.lower()}_throttle_time", resource=resource, brokers=brokers)

    return Queries(
        fetch_rate=rate("Fetch"), produce_rate=rate("Produce"), fetch_throttle=throttle("Fetch"), produce_throttle=throttle("Produce")
    )


def _quota_metric(*names: str, resource: str, brokers: str) -> str:
    # Confluent's set has the resource in the metric's name and no such label
    return selector(matches("__name__", *names), matches("resource", resource, ""), brokers)
