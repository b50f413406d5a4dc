"""Usage rollups: Prometheus samples become usage tables, reports and recommended contracts, apart from the control loop.

Only the command line uses it, and only with the extra `rollup` installed; a rollup that fails throttles nobody.
"""
