"""Arrow arrays over the memory of numpy arrays and names, made without `pyarrow.array` and `pyarrow.scalar`.

Those import pandas wherever it is installed: two seconds of processor time in each worker process, for nothing.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def array_of(values: NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    """Fixed-width values whose bytes are those of `kind`; NaN stays what it is."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def nullable_array_of(values: NDArray[np.float64]) -> pa.Array:
    """Numbers in which NaN stands for null."""
    known = np.packbits(~np.isnan(values), bitorder="little")
    return pa.Array.from_buffers(pa.float64(), len(values), [pa.py_buffer(known), pa.py_buffer(np.ascontiguousarray(values))])


def strings_of(names: Sequence[str]) -> pa.Array:
    """Names in UTF-8."""
    encoded = [name.encode() for name in names]
    offsets = np.array([0, *accumulate(map(len, encoded))], np.int32)
    return pa.Array.from_buffers(pa.string(), len(names), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))])
