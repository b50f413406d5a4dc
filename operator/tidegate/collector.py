"""Python's garbage collector as an operator of thousands of quotas wants it: seldom, and not over what stays for ever."""

import gc

# New objects before a collection, and collections of one age before one of the next. A pass over 5000 entities makes some 100,000
# objects that die without the collector's help; with Python's own 700 it would look through all of them again and again.
THRESHOLDS = (50_000, 20, 20)


def tune_collector() -> None:
    """Call once, when everything that stays for ever (modules, models, handlers) has been made."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
