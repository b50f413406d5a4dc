"""Ways to read Prometheus' history, from the fastest to the most common; all give the same rows."""
