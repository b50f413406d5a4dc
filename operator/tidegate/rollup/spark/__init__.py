"""What runs on Spark: the first stage's schedule, the second's sums. No other code imports it."""
