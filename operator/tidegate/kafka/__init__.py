"""Quotas, leaders, and the ledger in Kafka, through ZooKeeper or through the brokers."""
