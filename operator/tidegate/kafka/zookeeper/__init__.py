"""The quota store of a Kafka with ZooKeeper: its quota nodes, read and written."""
