"""The first stage: one hour of one broker is read from Prometheus, folded to rows of 5 minutes and written into the store's staging.

Nothing here knows Spark; a worker of it, a test or a plain loop may carry the work out.
"""
