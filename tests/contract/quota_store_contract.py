"""The contract of `tidegate.kafka.quota_store.QuotaStore`, as tests that ZooKeeper and the in-memory double both pass.

A subclass gives the fixtures `faults` (the tree under the store, with faults on demand) and `others`
(another writer that, like Kafka itself, reads, changes and writes without comparing). Each way in
which a writer of ZooKeeper can break brokers has a test that this store does not do it.
"""

from tests.contract.quota_store_bytes import BytesContract
from tests.contract.quota_store_safety import SafetyContract


class QuotaStoreContract(BytesContract, SafetyContract):
    """The whole contract of a store."""
