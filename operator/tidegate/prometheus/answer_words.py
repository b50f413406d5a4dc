"""What answers and errors of HTTP say, in a few words for a message."""

import json

SHOWN_CHARACTERS = 300


def said_in(beginning: bytes) -> str:
    """The reason that the beginning of an answer gives: Prometheus' own, or what a gateway before it says."""
    text = beginning.decode("utf-8", "replace")
    try:
        text = str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        text = "a web page" if text.lstrip().startswith("<") else text
    shown = "".join(sign if sign.isprintable() else " " for sign in text)
    return " ".join(shown.split())[:SHOWN_CHARACTERS].rstrip(".") or "no reason given"


def shortly(error: Exception) -> str:
    """What the innermost error says; those around it repeat it, and hold the whole query."""
    inner: object = error
    while isinstance(inner, Exception):
        error = inner
        inner = getattr(error, "reason", None) or next((part for part in error.args if isinstance(part, Exception)), None)
    # urllib3 puts the text form of the connection in front: "HTTPConnection(host='10.0.0.1', port=9090): Failed to ..."
    return (getattr(error, "strerror", None) or str(error)).rsplit("): ", 1)[-1][:SHOWN_CHARACTERS]
