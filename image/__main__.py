"""`python -m image`: builds the image and its bill of materials and prints the size.

Both go into out/image/.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from image import packages
from image.cuts import Saving
from image.layers import (
    CONSOLE,
    FORWARDER,
    OPERATOR,
    OUT,
    ROLLUP,
    Edition,
    Layer,
    build,
    reproducible_digest,
)
from image.rootfs import add_rollup_parts, make_all
from lab.errors import LabError
from lab.process import output_of

_ROW = "{:<10}{:>14}{:>14}  {}"


def size_table(layers: Sequence[Layer]) -> str:
    """A line for each layer and one for all.

    MB (10^6 bytes) in a registry and on a node's disk, and the layer's digest.
    """
    rows = [
        _row(layer.name, layer.compressed_bytes, layer.content_bytes, f"sha256:{layer.digest}")
        for layer in layers
    ]
    compressed_bytes = sum(layer.compressed_bytes for layer in layers)
    content_bytes = sum(layer.content_bytes for layer in layers)
    head = _ROW.format("layer", "compressed", "unpacked", "digest")
    return "\n".join([head, *rows, _row("all", compressed_bytes, content_bytes, "")])


def savings_list(savings: Sequence[Saving]) -> str:
    """A line for everything left out, the largest first; empty when nothing was."""
    largest_first = sorted(savings, key=lambda saving: -saving.saved_bytes)
    return "\n".join(
        f"{_megabytes(saving.saved_bytes):>10} in {saving.files:5} files  {saving.name}"
        for saving in largest_first
    )


def _row(name: str, compressed_bytes: int, content_bytes: int, digest: str) -> str:
    return _ROW.format(
        name, _megabytes(compressed_bytes), _megabytes(content_bytes), digest
    ).rstrip()


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.2f} MB"


# Builds the image twice from nothing, in ways that must not matter: from copies of the sources in
# two places, with two homes and umasks.
#
# Only what `.dockerignore` lets through is copied, so it is seen, too, that this is enough.


_BUILD_TIMEOUT_SECONDS = 1800.0
_UMASKS = ("022", "077")
_LITTER = shutil.ignore_patterns("__pycache__")


def digests(*options: str) -> Iterator[str]:
    """The digest of each build with these options as soon as it is known. Raises `LabError`.

    The operator's takes about half a minute each time and downloads 30 MB, that of rollups some
    minutes and 600 MB.
    """
    for umask in _UMASKS:
        with tempfile.TemporaryDirectory(prefix=f"tidegate-image-{umask}-") as folder:
            place = Path(folder)
            sources = place / f"checkout-{umask}"
            _copy_sources(sources)
            build = [sys.executable, "-m", "image", "--digest", *options]
            command = ["sh", "-c", 'umask "$0"; exec "$@"', umask, *build]
            yield output_of(
                command,
                timeout_seconds=_BUILD_TIMEOUT_SECONDS,
                working_directory=sources,
                environment=_environment(place),
            ).strip()


def _copy_sources(target: Path) -> None:
    for line in (packages.ROOT / ".dockerignore").read_text().splitlines():
        for source in packages.ROOT.glob(line.removeprefix("!")) if line.startswith("!") else ():
            copy = target / source.relative_to(packages.ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, copy, ignore=_LITTER)
            else:
                shutil.copy(source, copy)


def _environment(place: Path) -> dict[str, str]:
    """This process's environment with a home and a cache in `place`.

    Where packages come from is still found where people configure it.
    """
    configured = os.environ.get("XDG_CONFIG_HOME") or os.path.join(
        os.path.expanduser("~"), ".config"
    )
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("VIRTUAL_ENV", "UV_CACHE_DIR")
    }
    return kept | {
        "HOME": str(place / "home"),
        "XDG_CACHE_HOME": str(place / "cache"),
        "XDG_CONFIG_HOME": configured,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Build; the exit code is 0, or 1 with the reason on stderr."""
    options = _parser().parse_args(arguments)
    try:
        edition = options.edition
        if options.parts is not None and edition not in (OPERATOR, ROLLUP):
            raise LabError(
                f"The Dockerfile makes no image of the {_name_of(edition)}. Build it without "
                "--parts."
            )
        if options.parts is not None:
            lay_out = add_rollup_parts if edition is ROLLUP else make_all
            print(savings_list(lay_out(options.parts.resolve())))
        elif options.digest:
            print(reproducible_digest(build(options.revision, edition=edition)))
        elif options.twice:
            return _twice(*([] if edition is OPERATOR else [f"--{_name_of(edition)}"]))
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
    bill = OUT / "-".join([*([] if edition is OPERATOR else [_name_of(edition)]), "sbom.cdx.json"])
    named = write_bill(image, bill)
    print(size_table(image.layers))
    print(
        f"\nleft "
        f"out\n{savings_list([saving for layer in image.layers for saving in layer.savings])}\n"
    )
    print(f"{image.name}  {image.digest}  in {time.monotonic() - started:.1f} s")
    print(
        f"  {image.archive.relative_to(packages.ROOT)}\n  {bill.relative_to(packages.ROOT)}, "
        f"{named} packages"
    )
    if tried:
        from image.smoke import smoke

        print(smoke(image))


def _name_of(edition: Edition) -> str:
    """What its option is called."""
    return edition.repository.removeprefix("tidegate-")


def _twice(*edition: str) -> int:
    found = []
    for digest in digests(*edition):
        print(digest, flush=True)
        found.append(digest)
    same = len(set(found)) == 1
    print(
        "Built twice, the same byte for byte (but for an archive of Java's classes, where there "
        "is one)."
        if same
        else "The two builds differ."
    )
    return 0 if same else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m image", description="Builds Tidegate's container image without an engine."
    )
    parser.add_argument(
        "--revision",
        default="",
        metavar="COMMIT",
        help="what `tidegate version` says it was built from",
    )
    parser.add_argument(
        "--parts",
        type=Path,
        metavar="DIRECTORY",
        help="lay the file system out in DIRECTORY and stop, as the Dockerfile does",
    )
    which = parser.add_mutually_exclusive_group()
    for edition, what in (
        (ROLLUP, "the image of rollup Jobs, with Java and Spark,"),
        (CONSOLE, "the console's image, with a web server,"),
        (FORWARDER, "the image of delay queues' forwarders, with Kafka's C client,"),
    ):
        which.add_argument(
            f"--{_name_of(edition)}",
            action="store_const",
            dest="edition",
            const=edition,
            default=OPERATOR,
            help=f"{what} instead of the operator's",
        )
    parser.add_argument(
        "--digest",
        action="store_true",
        help="print the digest, of what is the same each time, and nothing else",
    )
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="then start it in a namespace of its own, as its own user; needs root",
    )
    parser.add_argument(
        "--twice",
        action="store_true",
        help="build it twice from nothing, in other places, and compare",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
