"""Write YAML that reads back as what was written, with any text in it and for every parser.

kubectl reads by Go's rules, in which a bare `y`, `0o7` or `1e5` is no text, and PyYAML by others.
So text is bare only where nobody can take it for anything else. All other text is in quotes, and
in double quotes, where they are escaped, where it has line breaks or characters that a reader may
refuse or replace.
"""

import re
from typing import Any

import yaml

# Words of letters, digits, `_`, `.`, `/` and `-`, and amounts such as 10M and 5Mi.
_BARE = re.compile(
    r"[A-Za-z][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./][A-Za-z0-9_./-]*)*"
    r"|[0-9]+(?:\.[0-9]+)?(?:k|[MGTP]|[KMGTP]i)"
)
_OTHER_THAN_TEXT = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


class _Dumper(yaml.SafeDumper):
    """As SafeDumper, but for text."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_bare = _BARE.fullmatch(text) is not None and text.lower() not in _OTHER_THAN_TEXT
    quotes = "'" if text.isascii() and text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_bare else quotes)


_Dumper.add_representer(str, _text)


def yaml_text(*documents: Any) -> str:
    """These documents, in the order of their keys, separated by `---` where there are several."""
    return str(
        yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    )
