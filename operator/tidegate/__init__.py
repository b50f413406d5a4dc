"""Tidegate: a Kubernetes operator that keeps Kafka brokers within limits and contracts."""

__version__ = "0.1.0"
