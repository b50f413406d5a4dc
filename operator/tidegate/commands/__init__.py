"""The commands of `tidegate`, one module each; `cli.py` only puts them together.

A command asks the same functions as the operator and shows what they answer: it never computes a quota itself. What
it touches outside (ZooKeeper, Kafka, Kubernetes, the clock, the terminal) comes in as `surroundings.CommandContext`.
"""
