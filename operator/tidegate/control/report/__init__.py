"""What a pass says: statuses, conditions, Events, and metrics."""
