"""The command `tidegate`: puts the commands together and turns errors into sentences and exit codes.

An expected error never shows a traceback: it says what happened and what to do, on stderr. What a command does is in
`commands/`, one module each.
"""

import logging
import sys
import traceback
from collections.abc import Sequence

import typer

from tidegate.commands import audit, explain, plan, report, restore, rollup, run, top
from tidegate.commands.context import Surroundings
from tidegate.commands.output import ExitCode, Page
from tidegate.errors import RetryLater, TidegateError

EPILOGUE = (
    "Exit codes, the same for every command: 0 nothing to do, or done; 1 an error, or not all of it was done; "
    "2 something would change. Wrong options are errors (1), so that 2 always means a change."
)

INTERRUPTED = 130  # what shells expect after Ctrl-C
TERMINATED = 143  # and after SIGTERM, where a command ends by it in its own way
_UNHEARD = logging.NullHandler()  # libraries log each lost connection; people get one sentence. `run` puts its own in place

app = typer.Typer(
    name="tidegate",
    help="Keep Kafka brokers under their network limits and every business at its promised rate, with Kafka's own quotas.",
    epilog=EPILOGUE,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("run", short_help="Run the operator.")(run.run)
app.command("plan", short_help="Show what would be written to Kafka, and why.")(plan.plan)
app.command("explain", short_help="Say which quota a client gets, and why.")(explain.explain)
app.command("top", short_help="Watch brokers, levels and members.")(top.top)
app.command("audit", short_help="Show what the operator did, and why.")(audit.audit)
app.command("restore", short_help="Give every quota back, without Kubernetes.")(restore.restore)
app.command("report", short_help="Write the report of a period from usage tables.")(report.report)
app.add_typer(rollup.app, name="rollup", short_help="Usage tables: who used what.")
app.command("version", short_help="Say which version this is.")(run.version)


def main(arguments: Sequence[str] | None = None, surroundings: Surroundings | None = None) -> int:
    """Run one command and return its exit code. `arguments` are those after the program's name; None takes them from the process."""
    around = surroundings or Surroundings()
    logging.getLogger().addHandler(_UNHEARD)
    try:
        typer.main.get_command(app).main(args=arguments, prog_name="tidegate", obj=around)
    except SystemExit as end:
        return _ended(end.code, around)
    except Exception as error:
        return _report(error, around)
    return around.exit_code


def _ended(code: object, around: Surroundings) -> int:
    if code == TERMINATED:
        return TERMINATED
    if code == INTERRUPTED:
        Page(around.err).say("interrupted: what is already written stays; run the same command again to go on.", "red")
        return INTERRUPTED
    return ExitCode.ERROR if code else around.exit_code


def _report(error: Exception, around: Surroundings) -> int:
    if around.debug:
        traceback.print_exception(error, file=around.err)
    page = Page(around.err)
    if isinstance(error, TidegateError):
        page.say(f"error: {error.message}", "red")
        if isinstance(error, RetryLater):
            page.say("This may pass by itself: nothing has to be undone before you try again.")
    else:
        page.say(f"error: a bug in Tidegate, {type(error).__name__}: {error}", "red")
        page.say("Please report it with the output of the same command and --debug.")
    return around.exit_code_of(error)


if __name__ == "__main__":
    sys.exit(main())
