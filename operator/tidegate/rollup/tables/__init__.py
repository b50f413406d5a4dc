"""The store of usage tables: Parquet files that count only once a manifest names them.

    storage      bytes on a disk or in a bucket; one file is written whole or not at all
    windows      times that are published at once, and where they lie
    parquet      rows to file content and back, with sums and checksum
    staging      what a worker hands over
    manifest     the statement of which files are a window's
    portions     rows of many files, sorted, as much as fits into memory
    publication  verify what was staged, write it sorted, then swap the manifest
    resolution   which files are valid for which windows; all readers go through it
    compaction   one sorted file a day instead of one an hour
    retention    windows that are old enough to go; clean-up removes files that no manifest names, after a grace
    lineage      what was made from rows that are replaced
    inspection   every file anew, for `verification`; agreement compares tables
    store        the face of all this

No lock and no rename is needed: files have names of their own for each run, and one object's write is atomic. Two runs of a window at once
leave the one that came last. What rows mean is `schemas`' business.
"""
