"""The names that exporters give to what Kafka's brokers count of clients and of bytes.

| exporter | rates of clients | bytes of the broker |
|---|---|---|
| this project's rules | `kafka_quota_byte_rate` | `kafka_broker_bytesout_total` |
| the JMX exporter's examples | `kafka_server_quota_byte_rate` | `kafka_server_brokertopicmetrics_bytesout_total` |
| the JMX exporter without rules | `kafka_server_Fetch_byte_rate` | `kafka_server_BrokerTopicMetrics_Count` with `name` |
| Strimzi's reporter | `kafka_server_fetch_byte_rate` | `kafka_server_brokertopicmetrics_bytesoutpersec_total` |

The JMX exporter lowers names where `lowercaseOutputName` says so. Confluent's rules name the rates
as Strimzi's reporter does.
"""  # noqa: E501

import re

# these have the resource in a label; in the others it is part of the name
_WITH_RESOURCE = ("kafka_quota_", "kafka_server_quota_")
RESOURCES = frozenset({"Fetch", "Produce"})
# what `type` is in the other beans of kafka.server with such attributes
_OTHER_RESOURCES = ("Request", "ControllerMutation", ".*Replication")


def quota_metrics(resource: str, metric: str) -> tuple[str, ...]:
    """The names of a quota's `byte_rate` or `throttle_time`; `resource` is Fetch or Produce."""
    return (
        *(f"{prefix}{metric}" for prefix in _WITH_RESOURCE),
        f"kafka_server_{resource.lower()}_{metric}",
        f"kafka_server_{resource}_{metric}",
    )


def quota_metrics_with_names(resource: str, metric: str) -> str:
    """Match what rules make that take the user and the client id for a part of the type.

    An example is `kafka_server_produce_user_bob_client_id_app_byte_rate`: the exporter has replaced
    what a metric's name cannot hold, so nobody can say whose series it is.
    """
    return f"kafka_server_[{resource[0]}{resource[0].lower()}]{resource[1:]}_.+_{metric}"


def other_resources(resource: str) -> tuple[str, ...]:
    """Match the label `resource` of series that are certainly not this resource's.

    The rest is asked for, and sorted out one by one: Fetch, `Fetch, user=bob` where a rule for
    client ids comes before the one for both, and what nobody expects, so that people learn of it.
    """
    return tuple(f"{other}.*" for other in (*sorted(RESOURCES - {resource}), *_OTHER_RESOURCES))


def lacks_resource(metric: str) -> bool:
    """Whether a series of this metric needs the label `resource` to say what it is a rate of."""
    return metric.startswith(_WITH_RESOURCE)


_NAMES_IN_THE_METRIC = re.compile(
    "|".join(quota_metrics_with_names(one, "(byte_rate|throttle_time)") for one in RESOURCES)
)


def has_names_in_the_metric(metric: str) -> bool:
    """Whether user and client id have become a part of this metric's name."""
    return _NAMES_IN_THE_METRIC.fullmatch(metric) is not None


CLIENTS, REPLICATION = "", "replication"


def byte_counters(way: str, *kinds: str) -> tuple[tuple[str, ...], str]:
    """The names of a broker's counters of bytes, and what their label `name` may be.

    `way` is `out` or `in`; `kinds` are CLIENTS and REPLICATION.
    """
    return counters(*(f"{kind.capitalize()}Bytes{way.capitalize()}" for kind in kinds))


def counters(*meters: str) -> tuple[tuple[str, ...], str]:
    """The names of these meters of a broker, and what their label `name` may be."""
    names: list[str] = []
    beans: list[str] = []
    for bean in meters:
        beans.append(f"{bean}PerSec")
        names += (
            f"kafka_broker_{bean.lower()}_total",
            f"kafka_server_brokertopicmetrics_{bean.lower()}_total",
            f"kafka_server_BrokerTopicMetrics_{bean}_total",
            f"kafka_server_brokertopicmetrics_{bean.lower()}persec_total",
        )
    without_rules = (f"kafka_server_{bean}_{count}" for bean, count in _WITHOUT_RULES)
    return (*names, *without_rules), "|".join((*beans, *_NOT_PER_SECOND))


_WITHOUT_RULES = (
    ("brokertopicmetrics", "count"),
    ("BrokerTopicMetrics", "Count"),
    ("BrokerTopicMetrics", "count"),
)
# Without rules all meters of a bean are one metric with the label `name`, which ends in PerSec. Any
# other value is a label that people gave to their targets, and "" is none.
_NOT_PER_SECOND = ("(.*[^c]|.*[^e]c|.*[^S]ec)?",)
