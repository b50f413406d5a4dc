"""Usage rollups: usage tables, reports and recommended contracts from Prometheus samples, apart
from the control loop.

Only the command line uses it, and only with the extra `rollup` installed; a rollup that fails
throttles no one.
"""
