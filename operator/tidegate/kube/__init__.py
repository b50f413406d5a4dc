"""Kubernetes, as Tidegate uses it: custom resources, their statuses, Events, Secrets and Leases behind the protocol of `api`.

Knows the official client and the errors; nothing of Kafka, of the models of the custom resources, or of the control pass. Watching is
kopf's part and lives in `main`.
"""
