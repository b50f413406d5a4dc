"""Whether what usage tables need is installed: the operator itself does without, and its image has no Spark."""

from importlib.util import find_spec

from controller_logic.reasons import Reason
from tidegate.errors import NotFound

_PACKAGES = ("numpy", "pandas", "pyarrow", "pyspark")


def require_extra() -> None:
    """Raises NotFound with the command that installs what is missing."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        told = f"Usage tables need {', '.join(missing)}, which this installation does not have."
        raise NotFound(Reason.INVALID_SPEC, f"{told} `pip install 'tidegate[rollup]'` brings them; `make setup` of a clone does, too.")
