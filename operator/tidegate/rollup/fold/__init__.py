"""Fold one broker's samples into rows of 5 minutes: exact counters, estimates from Kafka's gauges.

This is pure arithmetic: nothing in here reads, writes or asks for the time. No result depends on
the order of series or on how a range was cut into runs. docs/usage.md describes what is exact and
what is estimated.
"""
