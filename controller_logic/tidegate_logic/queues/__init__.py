"""Decisions about DelayQueues: what is due when."""
