"""The command `tidegate`: the commands of `commands/`, and errors as sentences and exit codes.

An expected error never shows a traceback: its message on stderr has what happened and what to do.
"""

import functools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import PurePath
from typing import Annotated, Any, TextIO, cast

import typer
from typer.core import TyperCommand, TyperGroup

from tidegate import __version__
from tidegate.commands.context import CommandContext, command_context
from tidegate.commands.help_page import HelpfulCommand
from tidegate.commands.output import ExitCode, Page, PatientStream
from tidegate.errors import OutcomeUnknown, RetryLater, TidegateError

EPILOGUE = (
    "Exit codes of every command: 0 done, or nothing to do; 1 an error, or only partly done; 2 "
    "something would change. Invalid options exit with 1, so 2 always means a change."
)

INTERRUPTED = 130  # what shells expect after Ctrl-C
TERMINATED = 143  # and after SIGTERM, where a command ends by it in its own way

AnyCommand = TyperCommand | TyperGroup


# A shell's completion: the shell calls the program again, with what was typed in its environment.


_COMPLETE_VARIABLE = "_TIDEGATE_COMPLETE"
_KUBECTL_PLUGIN = "kubectl-tidegate"


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    context: typer.Context,
    *,
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="Shell to complete in.")],
) -> None:
    """Print a shell completion script.

    It completes commands and options on Tab. Load it into the current shell with `source <(tidegate
    completion bash)`, or add that line to the shell's startup file. For fish, use `tidegate
    completion fish | source`.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    around = command_context(context, debug=False)
    script = get_completion_script(
        prog_name="tidegate", complete_var=_COMPLETE_VARIABLE, shell=shell.value
    )
    around.out.write(script + "\n")


def help_of(
    context: typer.Context,
    *,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]...", help="A command, or none.")
    ] = None,
) -> None:
    """Show the help of a command, as its option --help does."""
    around = command_context(context, debug=False)
    around.exit_code = ExitCode(main([*(words or ()), "--help"], around))


@functools.cache
def _hear_no_library() -> None:
    """Keep libraries' log lines from people: they log each lost connection, people get one
    sentence. `run` puts its own handlers in place.
    """
    import logging

    logging.getLogger().addHandler(logging.NullHandler())


def _with_light_help(command: Any) -> Any:
    """The same command, whose unset --help is false: typer checks None with pydantic, the import of
    which takes as long as all else that help needs.
    """
    made = command.get_help_option

    def with_default(ctx: Any) -> Any:
        option = made(ctx)
        if option is not None:
            option.default = False
        return option

    command.get_help_option = with_default
    return command


@dataclass(frozen=True, slots=True)
class _Entry:
    """One line of `tidegate --help`, and where the command is: a function, or a group."""

    short_help: str
    module_and_name: str

    def command(self, name: str) -> AnyCommand:
        """The command as typer makes it from its function."""
        module, _, attribute = self.module_and_name.partition(":")
        loaded = getattr(import_module(module, "tidegate.commands"), attribute)
        _hear_no_library()
        if isinstance(loaded, typer.Typer):
            for registered in loaded.registered_commands:
                registered.cls = HelpfulCommand
            group = typer.main.get_group(loaded)
            group.name, group.short_help = name, self.short_help
            for inner in group.commands.values():
                _with_light_help(inner)
            return cast(TyperGroup, _with_light_help(group))
        alone = typer.Typer(
            add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
        )
        alone.command(name, cls=HelpfulCommand, short_help=self.short_help)(loaded)
        return cast(TyperCommand, _with_light_help(typer.main.get_command(alone)))


_GROUPS = {
    "Inspect": {
        "doctor": _Entry("Diagnose problems and suggest fixes.", ".doctor:doctor"),
        "plan": _Entry("Preview the changes that the operator would make now.", ".plan:plan"),
        "explain": _Entry("Explain which quota applies to a client.", ".explain:explain"),
        "top": _Entry("Watch brokers, levels and members.", ".top:top"),
        "reassignments": _Entry(
            "Show partition reassignments and when they finish.", ".reassignments:reassignments"
        ),
        "queues": _Entry("Show delay queues.", ".queues:queues"),
        "audit": _Entry("Show what the operator decided, and why.", ".audit:audit"),
        "console": _Entry("Open the web console.", ".console:console"),
        "simulate": _Entry("Simulate throttling under a given load.", ".simulate:simulate"),
    },
    "Change": {
        "import": _Entry(
            "Generate BusinessTiers from existing quotas.", ".import_quotas:import_quotas"
        ),
        "pause": _Entry("Pause all quota changes of a policy.", ".pause:pause"),
        "resume": _Entry("Resume a paused policy.", ".pause:resume"),
        "override": _Entry("Manage temporary overrides.", ".override:app"),
        "confirm-removal": _Entry("Approve a held bulk removal.", ".pause:confirm_removal"),
        "resync": _Entry("Reapply quotas changed by another writer.", ".resync:resync"),
        "restore": _Entry("Restore the original quotas from the ledger.", ".restore:restore"),
    },
    "Operate": {
        "run": _Entry("Run the operator.", ".run:run"),
        "forward": _Entry("Forward a delay queue's records when they are due.", ".forward:forward"),
        "ledger": _Entry("Recover or move the ledger of original quotas.", ".ledger:app"),
    },
    "Usage": {
        "rollup": _Entry("Build and inspect usage tables.", ".rollup:app"),
        "forecast": _Entry(
            "Forecast brokers over their limits, and propose a calendar.", ".forecast:forecast"
        ),
        "report": _Entry("Write usage reports and close months.", ".report_close:app"),
    },
    "Other": {
        "help": _Entry("Show the help of a command.", "..cli:help_of"),
        "version": _Entry("Show the version of Tidegate.", ".version:version"),
        "completion": _Entry("Print a shell completion script.", "..cli:completion"),
    },
}
_ENTRIES = {name: entry for group in _GROUPS.values() for name, entry in group.items()}


class _Commands(Mapping[str, AnyCommand]):
    """The commands by name. One is imported when it is asked for: together they take a second."""

    def __getitem__(self, name: str) -> AnyCommand:
        return _ENTRIES[name].command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_ENTRIES)

    def __len__(self) -> int:
        return len(_ENTRIES)


# kubectl's, and whether each takes a value
_ANYWHERE = {
    **dict.fromkeys(("--kubeconfig", "--context", "--as", "--namespace", "-n"), True),
    **dict.fromkeys(("--all-namespaces", "-A", "--debug"), False),
}


def _behind_the_command(arguments: Sequence[str]) -> list[str]:
    """The same command line with the options before the command put at its end."""
    first: list[str] = []
    rest = list(arguments)
    while rest and (name := rest[0].partition("=")[0]) in _ANYWHERE:
        count = 2 if _ANYWHERE[name] and "=" not in rest[0] else 1
        first, rest = [*first, *rest[:count]], rest[count:]
    end = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:end], *first, *rest[end:]] if rest else []


class _LazyGroup(TyperGroup):
    """A group whose help is written without importing its commands."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = _Commands()  # type: ignore[assignment]  # it is only read from

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Let options of how to reach Kubernetes stand before the command too, as kubectl does, and
        show the help where there is no command.
        """
        return super().parse_args(ctx, _behind_the_command(args) or ["--help"])

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a value that does not fit is refused without a library's words."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Complete names of commands from their lines in the help, without importing them."""
        known = self.commands
        self.commands = {
            name: TyperCommand(name, short_help=entry.short_help)
            for name, entry in _ENTRIES.items()
        }
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self.commands = known

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # typer's way to call
        longest = max(map(len, _ENTRIES))  # so that all groups have one column
        for title, entries in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(longest), entry.short_help) for name, entry in entries.items()]
                )


app = typer.Typer(
    cls=_LazyGroup,
    name="tidegate",
    help="Keep Kafka brokers from saturating their network, with Kafka's own client quotas.\n\n"
    "`tidegate COMMAND --help` has examples. --kubeconfig, --context, --as and --namespace may "
    "stand before the command or after it.",
    context_settings={"help_option_names": ["-h", "--help"]},  # commands inherit it
    epilog=EPILOGUE,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"tidegate {__version__}")
        raise typer.Exit


@app.callback()
def _tidegate(
    *,
    version: Annotated[  # its callback does all
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """A group has to have a function; the other options are all those of its commands."""


def main(arguments: Sequence[str] | None = None, surroundings: CommandContext | None = None) -> int:
    """Run one command and return its exit code.

    `arguments` are those after the program's name; None takes them from the process.
    """
    around = surroundings or CommandContext(out=cast(TextIO, PatientStream(sys.stdout)))
    if _COMPLETE_VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    try:
        _with_light_help(typer.main.get_command(app)).main(
            args=arguments,
            prog_name=_program_name(sys.argv[0] if arguments is None else ""),
            complete_var=_COMPLETE_VARIABLE,
            obj=around,
        )
    except SystemExit as end:
        return _ended(end.code, around)
    except Exception as error:
        return _report_error(error, around)
    finally:
        around.out.flush()
    return around.exit_code


def _program_name(started_as: str) -> str:
    return "kubectl tidegate" if PurePath(started_as).stem == _KUBECTL_PLUGIN else "tidegate"


def _ended(code: object, around: CommandContext) -> int:
    if code == TERMINATED:
        return TERMINATED
    if code == INTERRUPTED:
        Page(around.err).say(
            "interrupted: what is already written stays; run the same command again to continue.",
            "red",
        )
        return INTERRUPTED
    return ExitCode.ERROR if code else around.exit_code


def _report_error(error: Exception, around: CommandContext) -> int:
    if around.debug:
        import traceback

        traceback.print_exception(error, file=around.err)
    page = Page(around.err)
    if isinstance(error, TidegateError):
        page.say(f"error: {error.for_command}", "red")
        if isinstance(error, OutcomeUnknown):
            page.say("It may have taken effect: check before you run the command again.")
        elif isinstance(error, RetryLater):
            page.say("This may be temporary: run the same command again.")
    else:
        page.say(f"error: a bug in Tidegate, {type(error).__name__}: {error}", "red")
        page.say("Please report it with the output of the same command and --debug.")
    return around.exit_code_of(error)


if __name__ == "__main__":
    sys.exit(main())
