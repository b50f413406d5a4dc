"""Decisions about delay queues: who forwards which level topic."""
