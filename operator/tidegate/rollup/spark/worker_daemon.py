"""`spark.python.daemon.module`: Spark forks its Python workers from it, with their imports done.

Spark's own daemon imports nothing, so each worker takes most of a second to import pyarrow and
numpy for itself, and memory to keep them. Forked from here they have both at once and share the
memory. That is safe as long as nothing imported here starts a thread; the one of pyarrow's
allocator ends at a fork by itself.
"""

import gc

import pandas as pd
from pyspark import worker
from pyspark.daemon import manager

from tidegate.rollup import ingest
from tidegate.rollup.spark import stages

# pyarrow imports pandas as soon as it makes an array of a list
PRELOADED = (worker, pd, ingest, stages)


def main() -> None:
    """Serve forks until Spark closes standard input."""
    # a collection in a worker would write to every object and so end the sharing of its memory
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
