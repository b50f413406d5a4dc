"""The commands of `tidegate`, one module each. `cli.py` puts them together.

A command calls the same functions as the operator and prints their results. It never computes a
quota itself. Whatever it needs from outside (ZooKeeper, Kafka, Kubernetes, the clock, the terminal)
comes in as `context.CommandContext`.
"""
