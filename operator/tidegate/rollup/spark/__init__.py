"""What runs on Spark, and the only place that imports it: scheduling the first stage, and the sums
of the second.
"""
