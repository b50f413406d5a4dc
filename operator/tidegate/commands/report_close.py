"""`tidegate report close` and `adjustments`: months whose figures stay, and what changed since."""

from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer
from typer.core import TyperGroup

from tidegate.commands import options
from tidegate.commands.context import command_context
from tidegate.commands.inputs import policy_of
from tidegate.commands.output import Column, OutputFormat, Page, Sheet, publish
from tidegate.commands.report import report
from tidegate.commands.rollup import PolicyFiles, Store, store_address
from tidegate.commands.rollup_job import require_extra
from tidegate.errors import InvalidResource

if TYPE_CHECKING:
    from tidegate.rollup.closing import Adjustments
    from tidegate.rollup.schemas import Direction

_WRITE = "write"


class _WritesByDefault(TyperGroup):
    """`tidegate report --store ...` is `tidegate report write --store ...`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = args[0] if args else _WRITE
        if first not in self.commands and first not in ("--help", "-h"):
            args = [_WRITE, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_WritesByDefault,
    name="report",
    help="The report of a period, which is what happens without a command; and closed months.",
    rich_markup_mode=None,
)
app.command(_WRITE, short_help="Write the report of a period (the default).")(report)

MonthName = Annotated[str, typer.Argument(metavar="MONTH", help="Such as 2026-10.")]


@app.command("close", short_help="Keep a month's figures: later corrections are adjustments.")
def close(
    context: typer.Context,
    *,
    month: MonthName,
    store: Store,
    timezone: Annotated[
        str,
        typer.Option("--timezone", metavar="NAME", help="Whose month, such as Europe/Berlin."),
    ] = "UTC",
    with_gaps: Annotated[
        bool, typer.Option("--with-gaps", help="Close it though hours are not published.")
    ] = False,
    file: PolicyFiles = None,
    output: options.Output = OutputFormat.TABLE,
    debug: options.Debug = False,
) -> None:
    """Write the figures of a month that is over, with a checksum, to the store. Nothing replaces
    them: what is computed again afterwards shows in `tidegate report adjustments`.

    With the policy's file its prices per GiB are kept too, and adjustments are priced with them.
    """
    around = command_context(context, debug=debug)
    require_extra()
    from tidegate.rollup.closing import Month, close_month
    from tidegate.rollup.tables.store import UsageStore

    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidResource(
            f"There is no time zone {timezone!r}. Write it as Europe/Berlin."
        ) from error
    source = policy_of(around, file)
    rollup = None if source is None else source.declared.spec.rollup
    price = None if rollup is None else rollup.price_per_gib
    per_gib: dict[Direction, Decimal] = {}
    if price is not None and price.fetch is not None:
        per_gib["fetch"] = Decimal(price.fetch)
    if price is not None and price.produce is not None:
        per_gib["produce"] = Decimal(price.produce)
    closed = close_month(
        UsageStore.at(store_address(store)),
        Month.named(month, zone),
        per_gib=per_gib,
        now_ms=around.now_ms(),
        with_gaps=with_gaps,
    )
    total = sum(one.bytes for one in closed.usage)
    document = {"month": month, "timezone": timezone, "bytes": total, "sha256": closed.sha256}
    publish(
        around.out,
        output,
        document,
        show=lambda page: page.say(
            f"{month} ({timezone}) is closed with {total:,} bytes of {len(closed.usage)} clients, "
            f"brokers and directions, sha256 {closed.sha256}, in {closed.path} of the store."
        ),
    )


@app.command("adjustments", short_help="Show what changed since a month was closed.")
def adjustments(
    context: typer.Context,
    *,
    month: MonthName,
    store: Store,
    output: options.Output = OutputFormat.TABLE,
    debug: options.Debug = False,
) -> None:
    """Compare a closed month with the tables as they are now, client by client, and price the
    difference with the prices that it was closed with.
    """
    around = command_context(context, debug=debug)
    require_extra()
    from tidegate.rollup.closing import adjustments as changes
    from tidegate.rollup.closing import read_closed
    from tidegate.rollup.tables.store import UsageStore

    found = UsageStore.at(store_address(store))
    made = changes(found, read_closed(found, month))
    publish(around.out, output, made.document(), show=partial(_show, made))


def _show(made: "Adjustments", page: Page) -> None:
    from tidegate.rollup.closing import rows_for_people

    closed = made.closed
    when = f"{closed.month.name} ({closed.month.zone}) was closed at {closed.closed_at}"
    if not made.rows:
        again = f" {len(made.changed)} hours were published again," if made.changed else ""
        page.say(f"{when};{again or ' nothing was published again,'} and no byte changed.")
        return
    titles = ("Tier", "Client", "Broker", "Direction", "Closed", "Now", "Difference", "Price")
    columns = tuple(Column(title, right=number > 3) for number, title in enumerate(titles))
    page.sheet(Sheet(columns, rows_for_people(made.rows)))
    page.say(f"{when}; {len(made.changed)} hours were published again since.")
