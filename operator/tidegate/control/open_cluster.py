"""Connects a policy to its real cluster: quotas through ZooKeeper, leaders from the brokers. Neither is contacted before its first use."""

from pathlib import Path

from tidegate.control.credentials import SecretData, brokers_connection, zookeeper_connection
from tidegate.control.kafka_cluster import KafkaCluster
from tidegate.kafka.brokers import KafkaTopology
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.resources.policy import KafkaCluster as KafkaSpec


def open_cluster(spec: KafkaSpec, *, zookeeper_secret: SecretData, client_secret: SecretData, folder: Path) -> KafkaCluster:
    """The real thing. Neither side is contacted before its first use."""
    zookeeper = zookeeper_connection(spec, zookeeper_secret, folder)
    brokers = brokers_connection(spec, client_secret, folder)
    store = ZooKeeperQuotaStore(ZooKeeperSession(zookeeper))
    return KafkaCluster(zookeeper.connect, store, KafkaTopology(brokers, topic_names=store.topic_names))
