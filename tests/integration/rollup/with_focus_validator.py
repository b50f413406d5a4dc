"""The FOCUS file with the published validator of the FinOps Foundation (focus-validator on PyPI).

`make test-focus` runs it. `make test` does not, so the file has another name: the validator needs
older libraries than ours, in an environment of its own. Its newest version has the rules of FOCUS
1.0; a dataset of 1.2 has all columns of 1.0. The rules of 1.2 are in `test_focus.py`.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.unit.report.sample_report import sample_figures
from tests.unit.report.test_focus import TABLE
from tidegate.report.focus import csv_lines, focus_table

pytestmark = pytest.mark.integration

# These rules name columns as they were called before FOCUS 1.0 (its ProviderName was Provider,
# ResourceId was ResourceID, ChargeCategory was ChargeType), so no dataset of 1.0 can keep them.
_OF_OLDER_NAMES = (
    "InvoiceIssuer_Required",
    "Provider_Required",
    "Publisher_Required",
    "ResourceID_Required",
    "SkuPriceId_Nullable",
)
# it reads its list of currencies by a path that is relative to where it is installed
_START = (
    "import os, focus_validator as v; os.chdir(os.path.dirname(os.path.dirname(v.__file__))); "
    "from focus_validator.main import main; main()"
)


def validated(file: Path) -> str:
    rules = file.with_suffix(".yaml")
    rules.write_text("overrides:\n" + "".join(f"- {name}\n" for name in _OF_OLDER_NAMES))
    packages = ("focus-validator==1.0.0", "multimethod<2", "pandas<3")
    command = [
        *(os.environ["UV"], "run", "--quiet", "--isolated", "--no-project", "--python", "3.11"),
        *(part for package in packages for part in ("--with", package)),
        *("python", "-c", _START, "--data-file", str(file), "--override-file", str(rules)),
        *("--validate-version", "1.0"),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    return ended.stdout + ended.stderr


@pytest.mark.parametrize("name", ["every model", "the sample"])
def test_the_file_is_a_sound_dataset(tmp_path: Path, name: str) -> None:
    table = TABLE if name == "every model" else focus_table(sample_figures(), issuer="Platform")
    file = tmp_path / "focus.csv"
    file.write_text(csv_lines(table), newline="")
    assert "Validation succeeded." in validated(file)


@pytest.mark.parametrize(
    ("right", "wrong", "rule"),
    [
        (",EUR,", ",EURO,", "BillingCurrency_IsCurrencyCode"),
        (",Integration,", ",Cables,", "ServiceCategory_Enum"),
        ("BilledCost", "Cost", "BilledCost_Required"),
    ],
)
def test_the_validator_finds_what_is_wrong(
    tmp_path: Path, right: str, wrong: str, rule: str
) -> None:
    file = tmp_path / "focus.csv"
    text = csv_lines(TABLE)
    assert right in text
    file.write_text(text.replace(right, wrong), newline="")
    said = validated(file)
    assert "Validation succeeded." not in said
    assert rule in said
