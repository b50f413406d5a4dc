"""The commands are those of the product, with files that exist, for a time that holds the whole run."""

from itertools import pairwise
from pathlib import Path

import pytest
import typer

from demo import usage_outcome as module
from demo.usage_outcome import UsageCommands, carry_out, words_of
from tidegate.cli import app

START, END = 1_795_356_000 + 50, 1_795_356_600.0  # 14:00:50Z, 14:10


def commands(*, has_nics: bool = True, end: float = END) -> UsageCommands:
    return UsageCommands("http://127.0.0.1:9090", Path("out/demo"), START, end, has_nics=has_nics)


@pytest.mark.parametrize("has_nics", [True, False])
def test_each_is_a_command_that_there_is(has_nics: bool) -> None:
    asked = commands(has_nics=has_nics)
    for arguments in (asked.roll_up, asked.verify, asked.report):
        context = typer.main.get_command(app).make_context("tidegate", list(arguments))
        while hasattr(context.command, "resolve_command"):
            _, command, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
            assert command is not None
            context = command.make_context(command.name, rest, parent=context)
        assert context.params


def test_files_that_are_named_are_there() -> None:
    arguments = commands().roll_up
    files = [Path(value) for option, value in pairwise(arguments) if option == "-f"]
    assert len(files) == 2
    assert all(file.is_file() for file in files)


@pytest.mark.parametrize(("end", "until"), [(END, "2026-11-22T15:00:00Z"), (1_795_359_600.0, "2026-11-22T15:00:00Z")])
def test_the_report_is_until_the_end_of_the_hour_in_which_the_tables_end(end: float, until: str) -> None:
    words = words_of(commands(end=end).report)
    assert f"--from 2026-11-22T14:00:50Z --to {until}" in words
    assert words.startswith("tidegate report --store out/demo/usage-tables ")


def test_what_a_command_says_is_kept_with_its_exit_code(tmp_path: Path) -> None:
    done = carry_out(["rollup", "verify", "--store", "ftp://nowhere"], tmp_path)
    assert (done.words, done.exit_code) == ("tidegate rollup verify --store ftp://nowhere", 1)
    assert done.said[0].startswith("error: ftp://nowhere is no storage")


def test_one_that_does_not_end_is_ended_and_has_no_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST_SECONDS", 0.01)  # Python itself takes longer to start
    assert carry_out(["rollup", "verify", "--store", str(tmp_path)], tmp_path).exit_code is None
