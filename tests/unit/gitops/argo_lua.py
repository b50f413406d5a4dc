"""Lua as Argo CD opens it for a health script: the base and table libraries, and of `os` only
`time` and `date`.

Argo CD's own interpreter (written in Go) runs the same samples in `make test-argo`; this one is
here at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lupa.lua51 import LuaRuntime

_AS_STRICT_AS_ARGO_CD = """
getmetatable("").__index = nil
os = {time = os.time, date = os.date}
string, io, math, debug, coroutine, python, jit, bit = nil
"""


def health_of(script: str, document: Mapping[str, Any]) -> dict[str, str]:
    """The health that the script returns for the object: `status` and `message`. Raises LuaError
    where the script fails.
    """
    lua = LuaRuntime(register_eval=False, unpack_returned_tuples=True)
    lua.execute(_AS_STRICT_AS_ARGO_CD)
    lua.globals().obj = lua.table_from(document, recursive=True)
    return {str(key): str(value) for key, value in lua.execute(script).items()}
