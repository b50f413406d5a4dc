"""Usage rollups from Prometheus samples: usage tables, and recommended contracts from them.

They are apart from the control loop: a rollup that fails throttles no one. Only the command line
uses them, and only with the extra `rollup` installed.
"""
