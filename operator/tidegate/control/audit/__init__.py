"""The audit trail: every change of a quota, with its reason."""
