"""Tidegate: a Kubernetes operator that keeps Kafka brokers under their limits and businesses at
their contracts.
"""

__version__ = "0.1.0"
