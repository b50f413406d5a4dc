"""Tidegate's container images, built without a container engine and without a registry: `python -m
image`, or `image.build()`.
"""

from image.layers import OPERATOR, ROLLUP, BuiltImage, Edition, build

__all__ = ["OPERATOR", "ROLLUP", "BuiltImage", "Edition", "build"]
