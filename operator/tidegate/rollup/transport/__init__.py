"""Ways to read Prometheus' history, from the fastest to the one that every server offers; all give
the same rows.
"""
