"""Sound objects of each kind as plain documents, and the way to bend one field of them."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

Document = dict[str, Any]
ABSENT = object()

_POLICY: Document = {
    "apiVersion": "tidegate.io/v1alpha1",
    "kind": "BrokerBandwidthPolicy",
    "metadata": {"name": "orders", "namespace": "streaming"},
    "spec": {
        "mode": "Enforce",
        "suspend": False,
        "kafka": {
            "bootstrapServers": "kafka-1:9092,kafka-2:9092",
            "clusterId": "6n9yBVQpTmqxCpLQXWtDzw",
            "quotaStore": "ZooKeeper",
            "zookeeper": {
                "connect": "zk-1:2181,zk-2:2181/kafka",
                "tls": {
                    "trustedCertificates": [{"secretName": "zookeeper-ca", "pattern": "*.crt"}]
                },
                "authentication": {
                    "type": "digest",
                    "username": "kafka",
                    "passwordSecret": {"secretName": "zookeeper", "password": "password"},
                    "certificateAndKey": {
                        "secretName": "zookeeper",
                        "certificate": "tls.crt",
                        "key": "tls.key",
                    },
                },
            },
            "tls": {
                "trustedCertificates": [
                    {"secretName": "kafka-cluster-ca-cert", "certificate": "ca.crt"}
                ]
            },
            "authentication": {
                "type": "scram-sha-512",
                "username": "tidegate",
                "passwordSecret": {"secretName": "tidegate", "password": "password"},
                "certificateAndKey": {
                    "secretName": "tidegate",
                    "certificate": "user.crt",
                    "key": "user.key",
                },
            },
            "quotaWindow": {"samples": 11, "sampleSeconds": 1},
            "strimzi": {"cluster": "orders", "namespace": "kafka"},
        },
        "metrics": {
            "prometheus": {
                "url": "https://prometheus:9090",
                "insecure": False,
                "headers": {"X-Scope-OrgID": "orders"},
                "replicaLabels": ["prometheus_replica"],
                "tls": {
                    "trustedCertificates": [{"secretName": "authority", "certificate": "ca.crt"}]
                },
                "authentication": {
                    "type": "bearer",
                    "tokenSecret": {"secretName": "prometheus", "token": "token"},
                },
            },
            "preset": "NodeExporter",
            "queries": {"egress": "node_network_transmit_bytes_total"},
            "matchers": {"cluster": "orders"},
            "brokerIdentity": {"label": "broker"},
            "interfaces": ["ens5", "eno*", "eth0.100", "enp3s0@if5"],
            "scrapeIntervalSeconds": 15,
            "staleAfterSeconds": 45,
            "whenStale": {"afterSeconds": 900, "action": "Hold"},
        },
        "brokers": {
            "egress": {"limit": "1250M", "capacity": "3125M"},
            "ingress": {"limit": "1250M", "capacity": "3125M"},
            "overrides": [{"ids": [7, 8], "egress": {"limit": "3125M"}}],
            "schedules": [
                {
                    "days": ["Mon", "Tue"],
                    "from": "22:00",
                    "to": "06:00",
                    "timeZone": "Europe/Berlin",
                    "egress": {"limit": "600M"},
                    "ingress": {"limit": "3125M"},
                    "ready": "Before",
                }
            ],
        },
        "allowedTiers": {
            "namespaces": "Selector",
            "selector": {
                "matchLabels": {"kafka": "orders"},
                "matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}],
            },
        },
        "allowedEntities": [
            {"users": ["reports", "CN=*"], "clientIds": ["*"], "namespaces": ["streaming"]},
        ],
        "leaderScaling": {"method": "Max", "minimumChangePercent": 10},
        "escalation": {
            "speed": "Ladder",
            "maxMuteSeconds": 12,
            "cutToPercent": 97,
            "raiseToPercent": 95,
            "holdSeconds": 45,
        },
        "defaults": {
            "user": {"fetch": "50Mi", "produce": "50Mi", "requestPercentage": 200},
            "clientId": {"fetch": "20Mi"},
            "userAndClientId": {"fetch": "10Mi"},
            "metering": "Disabled",
        },
        "writeBudget": {"changes": 300, "periodSeconds": 900},
        "removal": {"maxPercent": 50},
        "deletionPolicy": "Restore",
        "replication": {
            "reassignments": {
                "mode": "Follow",
                "priority": "BelowL3",
                "rate": {"min": "10M", "max": "400M"},
            },
            "recovery": {"mode": "Follow", "priority": "L1", "rate": {"min": "50M"}},
            "cleanUpLeftovers": False,
        },
        "background": {
            "remoteCopy": {"mode": "Follow", "priority": "L2", "rate": {"min": "10M"}},
            "remoteFetch": {"mode": "Fixed", "rate": {"max": "100M"}},
            "logDirs": {"mode": "Fixed", "rate": {"max": "50M"}},
        },
        "rollup": {
            "intervalSeconds": 3600,
            "storage": {
                "url": "file:///var/lib/tidegate/usage",
                "claimName": "tidegate-usage",
                "credentialsSecretRef": {"name": "catalog"},
                "catalog": {
                    "type": "rest",
                    "uri": "https://catalog:8181/api",
                    "namespace": "orders",
                    "warehouse": "lake",
                },
            },
            "driver": {"cores": 2, "requestMillicores": 500, "memory": "3Gi"},
            "executors": {"instances": 0, "cores": 2, "requestMillicores": 2000, "memory": "4Gi"},
            "retentionDays": {"fiveMinutes": 30, "hours": 400},
            "pricePerGiB": {"fetch": "0.02", "produce": "0.01"},
            "recommend": {"headroomPercent": 30, "apply": "WithinPercent", "maxChangePercent": 20},
            "pod": {
                "nodeSelector": {"pool": "batch"},
                "tolerations": [
                    {"key": "batch", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
                ],
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {"key": "disk", "operator": "In", "values": ["ssd"]}
                                    ]
                                }
                            ]
                        },
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "weight": 10,
                                "preference": {
                                    "matchExpressions": [{"key": "spot", "operator": "Exists"}]
                                },
                            }
                        ],
                    }
                },
                "priorityClassName": "batch",
                "labels": {"azure.workload.identity/use": "true"},
                "annotations": {"sidecar.istio.io/inject": "false"},
                "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
                "ephemeralStorage": "10Gi",
            },
            "sparkConf": {"spark.sql.shuffle.partitions": "64"},
            "eventLog": {"keep": 48},
            "suspend": False,
        },
    },
}

_TIER: Document = {
    "apiVersion": "tidegate.io/v1alpha1",
    "kind": "BusinessTier",
    "metadata": {"name": "reporting", "namespace": "streaming"},
    "spec": {
        "policyRef": {"name": "orders", "namespace": "streaming"},
        "level": "L3",
        "throttledRates": {"perPartition": {"fetch": "1Mi", "produce": "1Mi"}},
        "labels": {"team": "reporting", "costCenter": "4711"},
        "members": [
            {
                "name": "nightly-reports",
                "user": "reports",
                "clientId": "nightly",
                "topics": ["orders", "clicks.*"],
                "contract": {
                    "perPartition": {"fetch": "10Mi", "produce": "10Mi"},
                    "requestPercentage": 200,
                    "controllerMutationsPerSecond": 10,
                },
                "labels": {"team": "finance"},
            }
        ],
    },
}

NIGHTS: Document = {
    "days": ["Mon", "Tue"],
    "from": "22:00",
    "to": "06:00",
    "timeZone": "Europe/Berlin",
    "until": "2027-03-31T22:00:00Z",
}

_OVERRIDE: Document = {
    "apiVersion": "tidegate.io/v1alpha1",
    "kind": "QuotaOverride",
    "metadata": {"name": "backfill", "namespace": "streaming"},
    "spec": {
        "policyRef": {"name": "orders"},
        "target": {"user": "reports", "clientId": "nightly"},
        "action": "SetRates",
        "rates": {"perPartition": {"fetch": "20Mi", "produce": "20Mi"}},
        "startsAt": "2026-11-29T22:00:00Z",
        "expiresAt": "2026-11-30T06:00:00Z",
        "reason": "backfill agreed with the orders team",
    },
}


_QUEUE: Document = {
    "apiVersion": "tidegate.io/v1alpha1",
    "kind": "DelayQueue",
    "metadata": {"name": "unpaid", "namespace": "streaming"},
    "spec": {
        "policyRef": {"name": "orders", "namespace": "streaming"},
        "authentication": {
            "type": "scram-sha-512",
            "username": "forwarder",
            "passwordSecret": {"secretName": "forwarder", "password": "password"},
            "certificateAndKey": {
                "secretName": "forwarder",
                "certificate": "user.crt",
                "key": "user.key",
            },
        },
        "tls": {
            "trustedCertificates": [
                {"secretName": "kafka-cluster-ca-cert", "certificate": "ca.crt"}
            ]
        },
        "topicPrefix": "shop.unpaid",
        "guarantee": "AtLeastOnce",
        "delays": [{"seconds": 5, "topics": 2}, {"seconds": 600, "topics": 4}],
        "target": {"allowed": ["orders.*", "returns"], "default": "orders.due"},
        "forwarders": {
            "replicas": 2,
            "resources": {
                "requests": {"cpu": "100m", "memory": "128Mi"},
                "limits": {"cpu": "1.5", "memory": "512Mi"},
            },
        },
        "topics": {"replicationFactor": 3, "graceSeconds": 86400},
        "cancellable": True,
        "arbitraryDelays": True,
        "shift": {"whileOverLimit": "Hold", "latestSeconds": 3600, "rate": "20M"},
        "deletionPolicy": "Drain",
    },
}


_BUDGET: Document = {
    "apiVersion": "tidegate.io/v1alpha1",
    "kind": "BandwidthBudget",
    "metadata": {"name": "search", "namespace": "streaming"},
    "spec": {
        "policyRef": {"name": "orders"},
        "total": {"fetch": "120M", "produce": "60M"},
        "members": {"selector": {"matchLabels": {"team": "search"}}, "tiers": ["reporting"]},
        "parent": {"name": "retail"},
        "share": {"minimumPercent": 5, "weight": 1},
    },
}


def policy(changes: Mapping[str, object] | None = None) -> Document:
    """A sound policy that uses every field; `changes` maps dotted paths below spec to values,
    ABSENT to leave out.
    """
    return _changed(_POLICY, changes or {})


def tier(changes: Mapping[str, object] | None = None) -> Document:
    """A sound tier of one member that uses every field; `changes` as for `policy`, list items by
    number.
    """
    return _changed(_TIER, changes or {})


def override(changes: Mapping[str, object] | None = None) -> Document:
    """A sound override of one member; `changes` as for `policy`."""
    return _changed(_OVERRIDE, changes or {})


def queue(changes: Mapping[str, object] | None = None) -> Document:
    """A sound queue that uses every field; `changes` as for `policy`."""
    return _changed(_QUEUE, changes or {})


def budget(changes: Mapping[str, object] | None = None) -> Document:
    """A sound budget that uses every field; `changes` as for `policy`."""
    return _changed(_BUDGET, changes or {})


def _changed(document: Document, changes: Mapping[str, object]) -> Document:
    changed = copy.deepcopy(document)
    for path, value in changes.items():
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        parent: Any = changed["spec"]
        for part in parents:
            parent = parent[part]
        if value is ABSENT:
            del parent[last]
        else:
            parent[last] = copy.deepcopy(value)
    return changed


def member(name: str, **fields: object) -> Document:
    """A member without topics and contract."""
    return {"name": name, "user": name, **fields}


Builder = Callable[[Mapping[str, object] | None], Document]
