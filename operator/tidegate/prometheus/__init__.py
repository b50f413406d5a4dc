"""Reads Prometheus: NIC usage of brokers, and client rates, as readings a pass can judge."""
