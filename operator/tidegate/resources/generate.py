"""Writes what is generated from the models: `crds/*.yaml` and `docs/resources.md`; with --check only compares.

Run as `python -m tidegate.resources.generate [--check]` from a checkout.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from tidegate.resources.crd import crd_document
from tidegate.resources.kinds import GROUP, KINDS, Kind
from tidegate.resources.reference_page import reference_page

CHECKOUT = Path(__file__).parents[3]
_HEADER = "# Generated from operator/tidegate/resources; do not edit: change the models and run `make generate`.\n"


def crd_yaml(kind: Kind) -> str:
    """The CRD of a kind as the text of its file in `crds/`."""
    return _HEADER + yaml.safe_dump(crd_document(kind), sort_keys=False, width=120, allow_unicode=True)


def generated_files() -> Mapping[Path, str]:
    """Every generated file, relative to the checkout, with its text."""
    crds = {Path("crds") / f"{GROUP}_{kind.plural}.yaml": crd_yaml(kind) for kind in KINDS}
    return {**crds, Path("docs/resources.md"): reference_page(KINDS)}


def stale_files(checkout: Path) -> list[Path]:
    """Generated files under `checkout` that are missing or differ from what the models say."""
    return [path for path, text in generated_files().items() if _text_of(checkout / path) != text]


def _text_of(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def main(arguments: list[str] | None = None) -> int:
    """Write the files and return 0, or with --check return 1 and name the stale ones on stderr."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a generated file is stale")
    parser.add_argument("--checkout", type=Path, default=CHECKOUT, help="root of the checkout")
    options = parser.parse_args(arguments)
    stale = stale_files(options.checkout)
    if options.check:
        for path in stale:
            print(f"{path} is not what the models say: run `make generate` and commit it.", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        (options.checkout / path).parent.mkdir(parents=True, exist_ok=True)
        (options.checkout / path).write_text(generated_files()[path], encoding="utf-8")
        print(f"Wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
