"""Pages of made-up exporters of three brokers, with all cases of these tests. Each case has a name or label of its own.

Values depend only on the scrape's number, so that one Prometheus with a few seconds of history serves every test. Only `Custom` queries
read the counter `moved`. The other metrics have the names of the presets.
"""

from __future__ import annotations

SILENT_AFTER = 3  # scrapes, in the case "silent"
EGRESS_STEP, SECOND_NIC_STEP = 50_000, 10_000  # bytes a scrape

_NODE = """\
node_network_transmit_bytes_total{{device="eth0"}} {eth0}
node_network_transmit_bytes_total{{device="eth1"}} {eth1}
node_network_transmit_bytes_total{{device="lo"}} {other}
node_network_transmit_bytes_total{{device="bond0"}} {other}
node_network_transmit_bytes_total{{device="veth12ab"}} {other}
node_network_receive_bytes_total{{device="eth0"}} {eth1}
node_network_receive_bytes_total{{device="docker0"}} {other}
"""
_POD = """\
container_network_transmit_bytes_total{{id="/a",interface="eth0",pod="orders-kafka-{broker}"}} {eth0}
container_network_receive_bytes_total{{id="/a",interface="eth0",pod="orders-kafka-{broker}"}} {eth1}
container_network_transmit_bytes_total{{id="/b",interface="eth0",pod="orders-zookeeper-{broker}"}} {other}
container_network_transmit_bytes_total{{id="/c",interface="eth0",pod="web-6d5c7b-x2x9z"}} {other}
"""
_TRAFFIC = """\
kafka_broker_bytesout_total {eth0}
kafka_broker_replicationbytesout_total {eth1}
kafka_broker_bytesout_total{{topic="orders"}} {other}
kafka_broker_bytesin_total {eth1}
kafka_broker_replicationbytesin_total {eth1}
"""
_CLIENTS = """\
kafka_quota_byte_rate{resource="Fetch",user="alice"} 1000.5
kafka_quota_throttle_time{resource="Fetch",user="alice"} NaN
kafka_quota_byte_rate{resource="Fetch",user="a%20b",client_id="\\"c:1\\""} 2000
kafka_quota_throttle_time{resource="Fetch",user="a%20b",client_id="\\"c:1\\""} 350.5
kafka_quota_byte_rate{resource="Produce",user="alice"} 3000
kafka_quota_byte_rate{resource="Request",user="alice"} 9
"""


def node_page(broker: int, scrape: int) -> str:
    """The page of node_exporter and cAdvisor: NIC counters by the names of both, and the odd counters."""
    counters = _counters(scrape)
    return _NODE.format(**counters) + _POD.format(broker=broker, **counters) + _odd_counters(broker, scrape)


def broker_page(broker: int, scrape: int) -> str:
    """The page of the broker's JMX exporter: its traffic, its clients, and the odd clients."""
    return _TRAFFIC.format(**_counters(scrape)) + (_CLIENTS if broker != 3 else "") + _odd_clients()


def twin_page(scrape: int) -> str:
    """The page of a second source that has the label of broker 1 too."""
    return f'moved{{case="twice"}} {scrape * 700}\nrate{{case="twice",user="bob"}} 7\n'


def _counters(scrape: int) -> dict[str, int]:
    return {"eth0": EGRESS_STEP * scrape, "eth1": SECOND_NIC_STEP * scrape, "other": 10**9 * scrape}


def _odd_counters(broker: int, scrape: int) -> str:
    lines = {
        "steady": str(1000 * scrape),
        "falls": str(1000 * (scrape % 3)),
        "nan": "NaN" if scrape % 2 else str(1000 * scrape),
        "always-nan": "NaN",
        "infinite": "+Inf",
        "negative": "-5",
        "frozen": "123456",
    }
    if broker != 3:
        lines["two-brokers-only"] = str(1000 * scrape)
    if scrape < SILENT_AFTER:
        lines["silent"] = str(1000 * scrape)
    if broker == 1:
        lines["twice"] = str(1000 * scrape)
    return "".join(f'moved{{case="{case}"}} {value}\n' for case, value in lines.items())


def _odd_clients() -> str:
    values = {"nan": "NaN", "infinite": "+Inf", "negative": "-1"}
    odd = "".join(f'rate{{case="{case}",user="bob"}} {value}\n' for case, value in values.items())
    return odd + 'rate{case="twice",user="bob"} 5\nrate{case="no-client",topic="t"} 5\nrate{case="unspellable",user="a b"} 5\n'
