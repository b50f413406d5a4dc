"""Reads and writes Kubernetes: custom resources, statuses, Events, Secrets, Leases and Jobs behind
the protocol of `api`.

It imports the official client and the errors, nothing of Kafka or of the control pass. kopf
watches, in `main`.
"""
