"""The operator's side of DelayQueues: topics, claims, forwarders and statuses."""
