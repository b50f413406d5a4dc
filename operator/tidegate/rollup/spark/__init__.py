"""What runs on Spark, and the only code that imports it: the stages of a run, and notebooks."""
