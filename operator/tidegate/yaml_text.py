"""Write YAML that reads back as what was written, whatever a name has in it.

With `allow_unicode`, PyYAML writes the line breaks of Unicode (U+0085, U+2028, U+2029) into plain
and single-quoted text, where a reader takes them for spaces or line feeds. Here such text is
written in double quotes, where they are escaped.
"""

from typing import Any

import yaml

_BREAKS = frozenset("\x85\u2028\u2029")


class _Dumper(yaml.SafeDumper):
    """As SafeDumper, but for text with a line break that is no line feed."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if _BREAKS & set(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def yaml_text(*documents: Any) -> str:
    """These documents, in the order of their keys, separated by `---` where there are several."""
    return str(
        yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    )
