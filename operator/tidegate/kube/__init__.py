"""Reads and writes Kubernetes objects behind the protocol of `api`.

The objects are custom resources, statuses, Events, Secrets, Leases and Jobs. It imports the
official client and the errors, nothing of Kafka or of the control pass. kopf watches, in `main`.
"""
