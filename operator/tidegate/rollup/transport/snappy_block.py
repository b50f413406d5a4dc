"""Snappy's block format, in which remote read's questions and plain answers are packed, through pyarrow, which rollups need anyway."""

import pyarrow as pa

from tidegate.rollup.transport.wire import Malformed, read_varint

_CODEC = "snappy"


def packed(content: bytes) -> bytes:
    """The block that holds `content`."""
    block: bytes = pa.compress(content, codec=_CODEC, asbytes=True)
    return block


def unpacked_bytes(block: bytes) -> int:
    """How long the content of a block says it is; raises Malformed where it does not say."""
    return read_varint(block, 0, len(block))[0]


def unpacked(block: bytes) -> bytes:
    """The content of a block; raises Malformed when it is damaged. See `unpacked_bytes` first: this makes room for what the block says."""
    try:
        content: bytes = pa.decompress(block, decompressed_size=unpacked_bytes(block), codec=_CODEC, asbytes=True)
    except (pa.ArrowException, OSError) as error:
        raise Malformed("it is not packed as it should be") from error
    return content
