"""Three moves of 200 MiB at 300 KiB/s, as an article measured them with Kafka's own throttle.

Both from one leader, both to one follower, and two that have nothing in common. Here nobody sets a
throttle but Tidegate, which has to see each move first: so NICs send 10 MB/s, not as fast as a
machine's memory. All three are played at once on clusters of their own.
"""

import threading
from collections.abc import Mapping
from contextlib import ExitStack

from bench.control.world import OnKubernetes, operator_beside
from bench.replication import parts
from bench.results import Figure
from lab.episodes import fill_topic
from lab.errors import LabError

NIC = 10 * parts.MB
RATE = 300 * parts.KIB
SIZE = 200 * parts.MIB
# name -> what the article measured at full size, and where each topic's leader and new replica are
MOVES: Mapping[str, tuple[float, tuple[tuple[int, int], tuple[int, int]]]] = {
    "independent": (663.0, ((1, 2), (2, 3))),
    "both from one leader": (1151.0, ((1, 2), (1, 3))),
    "both to one follower": (1235.0, ((1, 3), (2, 3))),
}
_LEAST, _MOST = 0.8, 1.1
_ESTIMATE_PERCENT = 15.0
_CLEAN_UP_SECONDS = 15.0
TOPICS = ("topic-1", "topic-2")


def seed_figures(size: int = SIZE) -> list[Figure]:
    """Seconds of each move, and how far the worst estimate was off from a tenth on."""
    with ExitStack() as stack:
        clusters = {name: stack.enter_context(parts.brokers_with_nics(NIC)) for name in MOVES}
        views = {name: parts.Replication(kafka) for name, kafka in clusters.items()}
        for name, (_, ends) in MOVES.items():
            for topic, (leader, _) in zip(TOPICS, ends, strict=True):
                clusters[name].create_topic(topic, [[leader]])
                fill_topic(clusters[name], topic, total_bytes=size)
        on = stack.enter_context(operator_beside(next(iter(clusters.values()))))
        rate = {"max": str(RATE), "min": "100k"}
        policies = [
            parts.replication_policy(
                kafka,
                name.replace(" ", "-"),
                {"reassignments": {"mode": "Fixed", "rate": rate}},
            )
            for name, kafka in clusters.items()
        ]
        with parts.declared(on, [(parts.POLICIES, one) for one in policies]):
            played = _at_once(views, on, size)
            left = {name: view.left_after(_CLEAN_UP_SECONDS) for name, view in views.items()}
    figures: list[Figure] = []
    for name, (seconds, _) in MOVES.items():
        figures += _figures(name, seconds * size / SIZE, played[name], size, left[name])
    return figures


def _at_once(
    views: Mapping[str, parts.Replication], on: OnKubernetes, size: int
) -> Mapping[str, parts.Played]:
    played: dict[str, parts.Played] = {}

    def run(name: str) -> None:
        seconds, ends = MOVES[name]
        view = views[name]
        targets = {
            (topic, 0): [leader, follower]
            for topic, (leader, follower) in zip(TOPICS, ends, strict=True)
        }
        played[name] = parts.play(
            view,
            lambda: view.kafka.admin.reassign(targets),
            longest_seconds=2 * seconds * size / SIZE + 60,
            on=on,
            policy_name=name.replace(" ", "-"),
        )

    threads = [threading.Thread(target=run, args=(name,)) for name in views]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if missing := views.keys() - played.keys():
        raise LabError(f"These moves did not end in time: {sorted(missing)}.")
    return played


def _figures(
    name: str, article_seconds: float, played: parts.Played, size: int, left: int
) -> list[Figure]:
    what = f"two replicas of {size // parts.MIB} MiB at 300 KiB/s, {name}"
    ratio = played.seconds / article_seconds
    worst = played.worst_estimate_percent(0.1, 2 * size)
    seen = played.seen_after_seconds
    return [
        Figure(
            f"{what}: took",
            played.seconds,
            "s",
            _MOST * article_seconds,
            f"{100 * ratio:.0f} % of the article's {article_seconds:.0f} s"
            + ("" if ratio >= _LEAST else f", **below** the {100 * _LEAST:.0f} % wanted")
            + f"; by the rates alone {_by_rates(name, size):.0f} s; first throttle "
            + ("never seen" if seen is None else f"{seen:.1f} s after the request")
            + f"; {left} throttles left at the end",
        ),
        Figure(
            f"{what}: worst of {len(played.foretold)} estimates, from a tenth on",
            100.0 if worst is None else worst,
            "%",
            _ESTIMATE_PERCENT,
            "of the whole time; as the status had it",
        ),
    ]


def _by_rates(name: str, size: int) -> float:
    return size / RATE * (1 if name == "independent" else 2)
