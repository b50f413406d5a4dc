"""What was promised and what was held back, and when: contracts, limits, throttle episodes and the
states of tiers.

The operator's own metrics have its history, if Prometheus scrapes them. The policy and its tiers
have the present state.
"""
