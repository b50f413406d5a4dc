"""Tidegate's container images: `python -m image`, or `image.build()`.

They are built without a container engine and without a registry.
"""

from image.layers import CONSOLE, FORWARDER, OPERATOR, ROLLUP, BuiltImage, Edition, build

__all__ = ["CONSOLE", "FORWARDER", "OPERATOR", "ROLLUP", "BuiltImage", "Edition", "build"]
