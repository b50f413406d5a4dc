"""Moves and recovery of real brokers under Tidegate's throttles, with the peers beside them."""
