"""`python -m image`: builds the image and its bill of materials into out/image/ and says how large it is. It reads arguments and prints."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from image import twice, wheels
from image.product import OPERATOR, OUT, ROLLUP, Edition, build, reproducible_digest
from image.rootfs import add_rollup_parts, make_all
from image.sizes import savings_list, size_table
from lab.errors import LabError


def main(arguments: Sequence[str] | None = None) -> int:
    """Build; the exit code is 0, or 1 with the reason on stderr."""
    options = _parser().parse_args(arguments)
    try:
        edition = ROLLUP if options.rollup else OPERATOR
        if options.parts is not None:
            lay_out = add_rollup_parts if options.rollup else make_all
            print(savings_list(lay_out(options.parts.resolve())))
        elif options.digest:
            print(reproducible_digest(build(options.revision, edition=edition)))
        elif options.twice:
            return _twice(*(["--rollup"] if options.rollup else []))
        else:
            _once(options.revision, edition, tried=options.smoke)
    except LabError as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _once(revision: str, edition: Edition, *, tried: bool) -> None:
    from image.bill import write_bill  # the only part that needs more than the standard library

    started = time.monotonic()
    image = build(revision, edition=edition)
    bill = OUT / f"{'rollup-' if edition is ROLLUP else ''}sbom.cdx.json"
    packages = write_bill(image, bill)
    print(size_table(image.layers))
    print(f"\nleft out\n{savings_list([saving for layer in image.layers for saving in layer.savings])}\n")
    print(f"{image.name}  {image.digest}  in {time.monotonic() - started:.1f} s")
    print(f"  {image.archive.relative_to(wheels.ROOT)}\n  {bill.relative_to(wheels.ROOT)}, {packages} packages")
    if tried:
        from image.smoke import smoke

        print(smoke(image))


def _twice(*edition: str) -> int:
    found = []
    for digest in twice.digests(*edition):
        print(digest, flush=True)
        found.append(digest)
    same = len(set(found)) == 1
    print(
        "Built twice, the same byte for byte (but for an archive of Java's classes, where there is one)."
        if same
        else "The two builds differ."
    )
    return 0 if same else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m image", description="Builds Tidegate's container image without an engine.")
    parser.add_argument("--revision", default="", metavar="COMMIT", help="what `tidegate version` says it was built from")
    parser.add_argument(
        "--parts", type=Path, metavar="DIRECTORY", help="lay the file system out in DIRECTORY and stop, as the Dockerfile does"
    )
    parser.add_argument("--rollup", action="store_true", help="the image of rollup Jobs, with Java and Spark, in place of the operator's")
    parser.add_argument("--digest", action="store_true", help="print the digest, of what is the same each time, and nothing else")
    parser.add_argument("--smoke", action="store_true", help="then start it in a namespace of its own, as its own user; needs root")
    parser.add_argument("--twice", action="store_true", help="build it twice from nothing, in other places, and compare")
    return parser


if __name__ == "__main__":
    sys.exit(main())
