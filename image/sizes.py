"""How large the image is, layer by layer, and what each thing that was left out would have added: for people to read."""

from __future__ import annotations

from collections.abc import Sequence

from image.cuts import Saving
from image.layers import Layer

_ROW = "{:<10}{:>14}{:>14}  {}"


def size_table(layers: Sequence[Layer]) -> str:
    """A line for each layer and one for all: MB (10^6 bytes) in a registry and on a node's disk, and the layer's digest."""
    rows = [_row(layer.name, layer.compressed_bytes, layer.content_bytes, f"sha256:{layer.digest}") for layer in layers]
    compressed_bytes = sum(layer.compressed_bytes for layer in layers)
    content_bytes = sum(layer.content_bytes for layer in layers)
    head = _ROW.format("layer", "compressed", "unpacked", "digest")
    return "\n".join([head, *rows, _row("all", compressed_bytes, content_bytes, "")])


def savings_list(savings: Sequence[Saving]) -> str:
    """A line for everything left out, the largest first; empty when nothing was."""
    largest_first = sorted(savings, key=lambda saving: -saving.saved_bytes)
    return "\n".join(f"{_megabytes(saving.saved_bytes):>10} in {saving.files:5} files  {saving.name}" for saving in largest_first)


def _row(name: str, compressed_bytes: int, content_bytes: int, digest: str) -> str:
    return _ROW.format(name, _megabytes(compressed_bytes), _megabytes(content_bytes), digest).rstrip()


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.2f} MB"
