"""Scenarios on a real Kafka and a real cluster with nodes: the operator is a Pod of its image,
installed by its chart.
"""
