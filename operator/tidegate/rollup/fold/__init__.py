"""One broker's samples -> its rows of 5 minutes: exact bytes from counters, estimates from Kafka's gauges, and how far the two agree.

Pure arithmetic: nothing in here reads, writes or asks for the time, and no result depends on the order of series or on how a range was cut
into runs. What is exact and what is estimated is told to people in docs/usage.md.
"""
