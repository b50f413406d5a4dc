"""What was promised and what was held back, and when: contracts, limits, throttle episodes and the states of tiers.

The operator's own metrics tell it as history, if Prometheus scrapes them; the policy and its tiers tell how it is now.
"""
