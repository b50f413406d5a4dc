"""kafka-python's message classes: the one place where that library is imported.

Its classes are not a stable API and its import uses a deprecated function of the standard library; both stay behind this door.
"""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.errors import for_code
    from kafka.net.sasl import get_sasl_mechanism
    from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse
    from kafka.protocol.metadata import MetadataRequest, MetadataResponse
    from kafka.protocol.sasl import (
        SaslAuthenticateRequest,
        SaslAuthenticateResponse,
        SaslHandshakeRequest,
        SaslHandshakeResponse,
    )

__all__ = [
    "DescribeConfigsRequest",
    "DescribeConfigsResponse",
    "MetadataRequest",
    "MetadataResponse",
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
    "SaslHandshakeRequest",
    "SaslHandshakeResponse",
    "for_code",
    "get_sasl_mechanism",
]
