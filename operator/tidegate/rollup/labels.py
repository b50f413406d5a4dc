"""Labels of members as the usage tables have them: a JSON text, the same for the same labels.

Text is what every engine groups by and joins on, and SQL reads it: `labels ->> '$.team'` in DuckDB,
`get_json_object(labels, '$.team')` in Spark.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final

NO_LABELS: Final = "{}"


def labels_text(labels: Iterable[tuple[str, str]]) -> str:
    """`{"costCenter":"4711","team":"shop"}`, with keys in order."""
    return json.dumps(dict(labels), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def labels_of(text: str) -> Mapping[str, str]:
    """The labels in a text of the tables."""
    return dict(json.loads(text))
