"""A modelled Kafka cluster that plays a load through the operator's own decisions.

No cluster, no network, no clock: the same scenario always gives the same result.
"""
