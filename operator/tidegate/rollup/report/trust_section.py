"""How sure the numbers are, and how to get them again by hand."""

from tidegate.rollup.report.exactness import ENOUGH_COVERAGE, HIGHEST_FACTOR, LOWEST_FACTOR
from tidegate.rollup.report.figures import ReportFigures
from tidegate.rollup.report.html_table import html_table
from tidegate.rollup.report.markup import element, join
from tidegate.rollup.report.section import Section
from tidegate.rollup.report.sheets import Sheet

_POINTS = (
    ("Exact", "bytes of brokers' cards, of their clients and of replication: differences of counters, to the byte."),
    (
        "Estimated",
        "who moved them. Kafka counts no bytes of users; it has only a gauge of each user's rate. The gauge's bytes are scaled, for each "
        "broker, direction and 5 minutes, so that all users together add up to the broker's own count. The factor is published below.",
    ),
    (
        "Billed to nobody",
        "what brokers counted and no user's gauge explains, even scaled up twofold. Nobody is ever billed for more than was counted.",
    ),
    (
        "Too high for some",
        "while a client is throttled its gauge runs 3 to 18 % above its quota. Scaling corrects the sum over a broker's users, not each "
        "one: throttled members may be billed a little too much, and others as much too little.",
    ),
    (
        "Without a counter",
        "where Prometheus has no byte counter of a broker for a window, there is nothing to scale to: what gauges tell stands as it is, "
        "and their sum stands for the count. Those windows have no factor.",
    ),
    ("Estimated too", "deferred bytes, seconds throttled and peaks: they are made of gauges, read once a scrape."),
)


def trust_section(figures: ReportFigures, sheets: dict[str, Sheet]) -> Section:
    points = [element("li", element("b", f"{name}: "), text) for name, text in _POINTS]
    return Section(
        "trust",
        "What is exact, and what is estimated",
        join(
            [
                element("ul", *points),
                element("p", _windows(figures)),
                element("h3", "Calibration"),
                element(
                    "p", f"A factor of 1 means that gauges and counters agree. It is kept between {LOWEST_FACTOR:g} and {HIGHEST_FACTOR:g}."
                ),
                html_table(
                    sheets["calibration"], "Factors by broker and direction, over windows of 5 minutes", empty="No broker was seen."
                ),
                element("h3", "Members to doubt"),
                element("p", f"Never scaled, or with a window that has less than {ENOUGH_COVERAGE * 100:.0f} % of its samples."),
                html_table(
                    sheets["doubtful"], "Members whose bytes are less sure", empty="None: everybody was scaled and measured throughout."
                ),
            ]
        ),
    )


def _windows(figures: ReportFigures) -> str:
    period = figures.period
    found = f"In the tables: {period.published_windows} of {period.windows} windows of one {period.grain} each."
    return found if figures.five_minutes else f"{found} The 5-minute rows are gone, or too many for one page, so factors are not known."


def recipes_section(sheets: dict[str, Sheet]) -> Section:
    told = (
        "Every number of this page is in report.json and in the CSV files with all its digits. The tables that they were made of can be "
        "asked again, with DuckDB for example; and the tables come from Prometheus."
    )
    return Section("recipes", "How to get a number again", join([element("p", told), html_table(sheets["recipes"], "By hand", empty="")]))
