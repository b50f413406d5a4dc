from hypothesis import given
from hypothesis import strategies as st

from tidegate.forwarder.metrics import LATE_BUCKETS_SECONDS, ForwarderMetrics, Lateness


@given(
    st.lists(st.lists(st.integers(0, 400_000), min_size=1, max_size=30).map(sorted), max_size=5),
)
def test_a_chunk_is_counted_as_its_records_one_by_one_would_be(chunks: list[list[int]]) -> None:
    lateness, now_ms = Lateness(), 400_000
    for due in chunks:
        lateness.observe(5, due, now_ms)
    late = [now_ms - at for due in chunks for at in due]
    samples = {(s.name, s.labels.get("le")): s.value for f in lateness.collect() for s in f.samples}
    if not late:
        assert not samples
        return
    name = "tidegate_queue_late_seconds"
    for bound in LATE_BUCKETS_SECONDS:
        expected = sum(1 for one in late if one <= bound * 1000)
        assert samples[f"{name}_bucket", str(bound)] == expected
    assert samples[f"{name}_bucket", "+Inf"] == samples[f"{name}_count", None] == len(late)
    assert abs(samples[f"{name}_sum", None] - sum(late) / 1000) < 1e-6


def test_all_metrics_have_the_prefix_of_queues() -> None:
    for family in ForwarderMetrics().registry.collect():
        assert family.name.startswith("tidegate_queue_")
