"""What the rows of a run say: how near clients come to their quotas, how the card swings, how long clients are silent. Pure arithmetic."""

from collections.abc import Iterable, Sequence
from statistics import mean

from bench.quota_window_clients import CLIENTS, Client, Kind
from bench.quota_window_rows import Phase, Second, of_phase
from bench.quota_window_run import mute_seconds
from bench.results import Figure
from lab.rates import ByteSeries, Sample, steady_mean

CUTS = (Phase.HALF, Phase.FIFTH)


def share_percent(rows: Sequence[Second], client: Client) -> float:
    """The client's steady mean as a share of its quota, in percent; whole teeth count alike wherever the minute begins."""
    steady = of_phase(rows, Phase.STEADY)
    begin = steady[0].second
    series = ByteSeries([Sample(begin, 0), *(Sample(row.second + 1, row.of(client)) for row in steady)])
    return 100 * steady_mean(series, begin, len(steady)) / client.quota


def peak(carried: Sequence[int]) -> float:
    """The highest second over the mean second; ValueError without seconds, ZeroDivisionError where nothing was carried."""
    return max(carried) / mean(carried)


def egress_peak(rows: Sequence[Second]) -> float:
    """How far the highest steady second of the card's egress is above the mean, as a factor."""
    return peak([row.egress for row in of_phase(rows, Phase.STEADY)])


def ingress_peak(rows: Sequence[Second]) -> float:
    """The same of its ingress."""
    return peak([row.ingress for row in of_phase(rows, Phase.STEADY)])


def silence_seconds(rows: Sequence[Second], client: Client, phase: Phase) -> int:
    """The longest run of seconds without a byte that reaches into the phase; seconds before the phase count as the client felt them."""
    longest = run = 0
    for row in rows:
        run = 0 if row.of(client) else run + 1
        if row.phase is phase:
            longest = max(longest, run)
    return longest


def longest_silence_seconds(rows: Sequence[Second], kinds: Iterable[Kind], phase: Phase) -> int:
    """The longest of all clients of these kinds."""
    wanted = set(kinds)
    return max(silence_seconds(rows, client, phase) for client in CLIENTS if client.kind in wanted)


def figures(rows: Sequence[Second]) -> list[Figure]:
    """Two rows of the benchmarks' page for one run."""
    return [_accuracy(rows), _silence(rows)]


def _accuracy(rows: Sequence[Second]) -> Figure:
    shares = {client: share_percent(rows, client) for client in CLIENTS}
    farthest = max(abs(shares[client] - 100) for client in CLIENTS if client.kind is Kind.PRODUCER)
    least = min(shares, key=lambda client: shares[client])
    what = f"quota.window.num {rows[0].window}: share of its quota that the worst of nine flat-out clients gets"
    peaks = f"highest second of the card's egress {egress_peak(rows):.1f}, ingress {ingress_peak(rows):.1f} times its mean"
    note = f"{least.kind} of {least.quota // 1_000_000} MB/s; producers within {farthest:.0f} % of theirs; {peaks}"
    return Figure(what, shares[least], "%", None, note)


def _silence(rows: Sequence[Second]) -> Figure:
    samples = rows[0].window
    what = f"quota.window.num {samples}: longest silence of nine flat-out clients, quotas cut to a fifth in one moment"
    half, fifth = (f"{mute_seconds(samples, phase):g} s predicted" for phase in CUTS)
    to_half, uncut = (longest_silence_seconds(rows, Kind, phase) for phase in (Phase.HALF, Phase.STEADY))
    note = f"{fifth}; cut to a half {to_half} s, {half}; not cut {uncut} s"
    return Figure(what, longest_silence_seconds(rows, Kind, Phase.FIFTH), "s", None, note)
