"""The quota store of a Kafka without ZooKeeper: requests to the brokers, and a ledger topic."""
