"""Decisions about DelayQueues: what is due when, and who forwards what."""
