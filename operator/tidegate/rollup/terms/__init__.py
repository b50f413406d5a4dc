"""Contracts, limits, throttle episodes and states of tiers, over time.

The operator's own metrics have its history, if Prometheus scrapes them. The policy and its tiers
have the present state.
"""
