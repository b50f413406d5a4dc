"""Sizes are said in MB, of each layer and of all."""

from pathlib import Path

from image.__main__ import savings_list, size_table
from image.cuts import Saving
from image.layers import Layer

LAYERS = [
    Layer("base", Path("a"), "aa", 30_000_000, 10_000_000, (Saving("manuals", files=3, saved_bytes=1_000_000),)),
    Layer("own", Path("b"), "bb", 3_000_000, 1_234_567, (Saving("tests", files=1, saved_bytes=2_500_000),)),
]


def test_layers_are_added_up() -> None:
    assert size_table(LAYERS).splitlines() == [
        "layer         compressed      unpacked  digest",
        "base            10.00 MB      30.00 MB  sha256:aa",
        "own              1.23 MB       3.00 MB  sha256:bb",
        "all             11.23 MB      33.00 MB",
    ]


def test_the_largest_saving_comes_first() -> None:
    savings = [saving for layer in LAYERS for saving in layer.savings]
    assert savings_list(savings).splitlines() == ["   2.50 MB in     1 files  tests", "   1.00 MB in     3 files  manuals"]


def test_nothing_left_out_says_nothing() -> None:
    assert savings_list([]) == ""
