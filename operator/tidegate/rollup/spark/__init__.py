"""What runs on Spark: the stages of a run. Only this package and `tidegate.notebook` import it."""
