"""Turns one broker's samples into its rows of 5 minutes: exact bytes from counters, estimates from
Kafka's gauges.

This is pure arithmetic: nothing in here reads, writes or asks for the time. No result depends on
the order of series or on how a range was cut into runs. docs/usage.md describes what is exact and
what is estimated.
"""
