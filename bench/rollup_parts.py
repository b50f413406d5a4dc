"""The parts of `make bench` that measure usage rollups, in the order in which a rollup goes on."""

from collections.abc import Callable, Mapping

from bench.figure import Figure
from bench.rollup_fold import fold_figures
from bench.rollup_kills import kill_figures
from bench.rollup_raw import raw_figures
from bench.rollup_run import cold_figures, growth_figures, ingest_figures
from bench.rollup_transport import rollup_transport

PARTS: Mapping[str, Callable[[], list[Figure]]] = {
    "rollup-transport": rollup_transport,
    "rollup-fold": fold_figures,
    "rollup-ingest": ingest_figures,
    "rollup-cold": cold_figures,
    "rollup-growth": growth_figures,
    "rollup-raw": raw_figures,
    "rollup-kills": kill_figures,
}
