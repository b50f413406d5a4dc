"""The parts of `make bench` that measure usage rollups, in the order in which a rollup goes on."""

from collections.abc import Callable, Mapping

from bench.results import Figure
from bench.rollup.kills import kill_figures
from bench.rollup.raw import raw_figures
from bench.rollup.speed import cold_figures, growth_figures, ingest_figures
from bench.rollup_fold import fold_figures
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
