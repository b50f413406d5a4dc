"""The page docs/benchmarks.md: the machine, our figures, and the peers' beside them."""

from collections.abc import Mapping, Sequence

from bench.figure import Figure

_PEERS = (
    ("Strimzi User Operator: 500 users created, modified and deleted", "53.9 s", "its project's own published figure (strimzi#12091)"),
    ("Strimzi User Operator: 200 users, the same", "31.5 s", "its project's own published figure (strimzi#12091)"),
    ("kafka-configs: one quota", "1.1 s", "measured on a lab of three Kafka 3.9.2 brokers"),
    ("AlterClientQuotas: 1000 quotas in one request, applied by all brokers", "5.8 s", "measured on the same lab"),
)


def page(machine: Mapping[str, str], figures: Sequence[Figure]) -> str:
    """The page as Markdown."""
    facts = "\n".join(f"| {label} | {text} |" for label, text in machine.items())
    peers = "\n".join(f"| {what} | {value} | {source} |" for what, value, source in _PEERS)
    return f"""# Benchmarks

Written by `make bench`; each part also runs alone (`python -m bench cold --entities 5000`). Real Kafka 3.9.2 brokers with ZooKeeper on
loopback, a real Kubernetes API server, the operator as a process of its own, all on this one machine.

| machine | |
|---|---|
{facts}

| what | measured | bound | verdict | note |
|---|---|---|---|---|
{chr(10).join(figure.row() for figure in figures)}

How fast a killed broker is answered is measured by `make demo` on every run; its report gives the time from the new leader to the
committed quota, by ZooKeeper's own clock.

## Others

| what | figure | source |
|---|---|---|
{peers}
"""
