"""kafka-python's message classes, by the modules of its `kafka.protocol`.

The library is imported here only: its classes are not a stable API, and its import uses a
deprecated function of the standard library.
"""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.errors import for_code
    from kafka.net.sasl import get_sasl_mechanism as sasl_mechanism
    from kafka.net.sasl.msk import AwsMskIamClient
    from kafka.net.sasl.oauth import AbstractTokenProvider
    from kafka.protocol import admin, consumer, metadata, producer, sasl
    from kafka.protocol.api_message import ApiMessage
    from kafka.record import MemoryRecords, MemoryRecordsBuilder

__all__ = ["admin", "consumer", "metadata", "producer", "sasl"]
__all__ += ["AbstractTokenProvider", "AwsMskIamClient"]
__all__ += ["MemoryRecords", "MemoryRecordsBuilder", "for_code", "sasl_mechanism"]
__all__ += ["ShareGroupDescribeRequest", "ShareGroupDescribeResponse"]


# the library lacks these; it reads the fields of each from the JSON file of the same name
class ShareGroupDescribeRequest(ApiMessage, load_json=__package__):  # type: ignore[call-arg, misc]
    """Asks a coordinator for the members of share groups (KIP-932)."""


class ShareGroupDescribeResponse(ApiMessage, load_json=__package__):  # type: ignore[call-arg, misc]
    """Its answer."""
