"""The data plane of a DelayQueue: sends records to their targets when they are due."""
