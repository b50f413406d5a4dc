"""The operator at work: kopf's handlers, the passes of each policy, and what they report."""
