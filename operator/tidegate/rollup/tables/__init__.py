"""The store of usage tables: Parquet files that count only once a manifest names them.

    storage      bytes on a disk or in a bucket; one file is written whole or not at all
    format       windows and their folders, rows as file content with sums and checksum, manifests
    store        which files are valid for which windows, their rows, what those were made from
    publication  what workers stage is verified and written sorted, then the manifest swapped
    iceberg      the same files as Iceberg tables, for engines that know no manifests
    upkeep       one sorted file a day instead of one an hour, retention, unnamed files removed
    verify       every file read again, tables compared with each other, and hours that are missing

No lock and no rename is needed: files have names of their own for each run, and one object's write
is atomic. Two runs of a window at once leave the one that came last. What rows mean is `schemas`'
business.
"""
