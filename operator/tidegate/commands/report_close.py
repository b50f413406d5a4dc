"""`tidegate report close` and `adjustments`: months whose figures stay, and what changed since."""

import getpass
import os
import socket
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import policy_of, terms_of
from tidegate.commands.output import Column, OutputFormat, Page, Sheet, publish
from tidegate.commands.report import (
    Currency,
    ExpectedDigests,
    RateCardFile,
    card_given,
    expected_digests,
    policy_prices,
    report,
    zone_named,
)
from tidegate.commands.rollup import PolicyFiles, Store, store_address
from tidegate.commands.rollup_job import require_extra

if TYPE_CHECKING:
    from tidegate.report.closing import Adjustments

_WRITE = "write"


class _WritesByDefault(TyperGroup):
    """`tidegate report --store ...` is `tidegate report write --store ...`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, "--help", "-h"):
            args = [_WRITE, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_WritesByDefault,
    name="report",
    help="Write usage reports and close months.",
    rich_markup_mode=None,
)
app.command(_WRITE, short_help="Write the usage report of a period (the default).")(report)

MonthName = Annotated[str, typer.Argument(metavar="MONTH", help="Month, such as 2026-10.")]


@app.command("close", short_help="Close a finished month and store its bill.")
@options.command
def close(
    around: CommandContext,
    *,
    month: MonthName,
    store: Store,
    timezone: Annotated[
        str,
        typer.Option(
            "--timezone", metavar="NAME", help="Time zone of the month, such as Europe/Berlin."
        ),
    ] = "UTC",
    with_gaps: Annotated[
        bool, typer.Option("--with-gaps", help="Close the month even if hours are not published.")
    ] = False,
    closed_by: Annotated[
        str | None,
        typer.Option(
            "--closed-by",
            metavar="NAME",
            help="Who closes the month, shown on the report's page. Unset: this user and machine.",
        ),
    ] = None,
    rate_card: RateCardFile = None,
    currency: Currency = "",
    file: PolicyFiles = None,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Close a finished month and store its bill.

    The bill is stored with its SHA-256 and never replaced. Keep the digest that this command prints
    somewhere else, for --expect-sha256 of `tidegate report`. Later changes of its figures become
    corrections on the next month's bill, at the closed month's rates.

    Use the same rate card and policy files as for `tidegate report`. Without prices, only bytes are
    kept, and there are no corrections.
    """
    require_extra()
    from tidegate.report.closing import Month, brokers_of, close_month
    from tidegate.report.rate_card import RateCard
    from tidegate.report.request import member_terms, total_of
    from tidegate.rollup.tables.store import UsageStore

    found, of = UsageStore.at(store_address(store)), Month.named(month, zone_named(timezone))
    source = policy_of(around, file)
    terms = terms_of(source)
    per_gib = {} if source is None else policy_prices(source)
    closed = close_month(
        found,
        of,
        card=card_given(rate_card, {}, currency) or RateCard.flat(per_gib, currency),
        members=() if terms is None else member_terms(terms, brokers=len(brokers_of(found, of))),
        now_ms=around.now_ms(),
        closed_by=_this_user() if closed_by is None else closed_by,
        with_gaps=with_gaps,
    )
    total = sum(one.bytes for one in closed.usage)
    amount = total_of(one.amount for one in closed.charges)
    corrected = total_of(one.amount for one in closed.corrections)
    document = {
        "month": month,
        "timezone": timezone,
        "bytes": total,
        "amount": None if amount is None else str(amount),
        "corrections": None if corrected is None else str(corrected),
        "currency": closed.card.currency,
        "kafkaClusterId": closed.cluster,
        "policy": closed.policy,
        "closedBy": closed.closed_by,
        "invoiceId": closed.invoice_id,
        "sha256": closed.sha256,
    }
    money = "no amount, as there are no prices" if amount is None else f"{amount:,}"
    money = f"{money} {closed.card.currency}".rstrip()
    if corrected is not None:
        money += f", and corrections of earlier months of {corrected:+,}"
    publish(
        around.out,
        output,
        document,
        show=lambda page: page.say(
            f"{month} ({timezone}) is closed with {money}; {total:,} bytes of {len(closed.usage)} "
            f"clients, brokers and directions; sha256 {closed.sha256}, in {closed.path} of the "
            f"store."
        ),
    )


def _this_user() -> str:
    """As `user@machine`; a user without a name by its number."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"


@app.command("adjustments", short_help="Show the corrections to a closed month.")
@options.command
def adjustments(
    around: CommandContext,
    *,
    month: MonthName,
    store: Store,
    expect_sha256: ExpectedDigests = None,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Show the corrections to a closed month.

    Compares it with the tables as they are now, client by client: the difference at the closed
    month's rates, and the bill that it appears on.
    """
    require_extra()
    from tidegate.report.closing import adjustments as changes
    from tidegate.report.closing import read_closed, require_digests
    from tidegate.rollup.tables.store import UsageStore

    found = UsageStore.at(store_address(store))
    require_digests(found, expected_digests(expect_sha256, month))
    made = changes(found, read_closed(found, month))
    publish(around.out, output, made.document(), show=partial(_show, made))


def _show(made: "Adjustments", page: Page) -> None:
    from tidegate.report.closing import correction_rows, usage_rows

    closed = made.closed
    by = f" by {closed.closed_by}" if closed.closed_by else ""
    when = f"{closed.month.name} ({closed.month.zone}) was closed at {closed.closed_at}{by}"
    corrected = correction_rows(made)
    if not made.rows and not corrected:
        again = f" {len(made.changed)} hours were published again," if made.changed else ""
        page.say(f"{when};{again or ' nothing was published again,'} and no byte changed.")
        return
    if made.rows:
        titles = ("Tier", "Client", "Broker", "Direction", "Closed", "Now", "Difference")
        columns = tuple(Column(title, right=number > 3) for number, title in enumerate(titles))
        page.sheet(Sheet(columns, usage_rows(made.rows)))
    if corrected:
        names = ("Bill", "Tier", "Charged for", "Direction", "Bytes", "Amount")
        columns = tuple(Column(name, right=number > 3) for number, name in enumerate(names))
        page.sheet(Sheet(columns, corrected))
    page.say(f"{when}; {len(made.changed)} hours were published again since.")
