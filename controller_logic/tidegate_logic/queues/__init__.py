"""Decisions about DelayQueues."""
