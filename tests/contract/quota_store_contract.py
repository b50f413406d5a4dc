"""The promise of `tidegate.kafka.quota_store.QuotaStore`, as tests that ZooKeeper and the in-memory twin both pass.

A subclass gives the fixtures `faults` (the tree under the store, with bad luck on demand) and `others` (another writer who, like Kafka
itself, reads, changes and writes without comparing). The rows of "ways an external writer can break a cluster" (kafka-quotas 1.5) that
a writer can cause are tests that this one cannot.
"""

from tests.contract.quota_store_bytes import BytesContract
from tests.contract.quota_store_safety import SafetyContract


class QuotaStoreContract(BytesContract, SafetyContract):
    """What every store promises."""
