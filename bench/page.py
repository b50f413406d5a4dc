"""The page docs/benchmarks.md: the machine, our figures, and the peers' beside them."""

from collections.abc import Mapping, Sequence

from bench.records import Record

_PEERS = (
    ("Strimzi User Operator: 500 users created, modified and deleted", "53.9 s", "its project's own published figure (strimzi#12091)"),
    ("Strimzi User Operator: 200 users, the same", "31.5 s", "its project's own published figure (strimzi#12091)"),
)


def _surroundings(record: Record) -> str:
    taken = "" if record.stolen_percent is None else f"{record.stolen_percent:g} %"
    return f"{record.load:g} | {taken}"


def page(machine: Mapping[str, str], records: Sequence[Record]) -> str:
    """The page as Markdown, with the newest figures of each part."""
    facts = "\n".join(f"| {label} | {text} |" for label, text in machine.items())
    peers = "\n".join(f"| {what} | {value} | {source} |" for what, value, source in _PEERS)
    rows = "\n".join(f"{figure.row()} {record.day} | {_surroundings(record)} |" for record in records for figure in record.figures)
    return f"""# Benchmarks

Written by `make bench`; each part also runs alone (`python -m bench cold-5000`; `python -m bench --help` lists them). Real Kafka 3.9.2
brokers with ZooKeeper on loopback, a real Kubernetes API server, the operator as a process of its own: all of them share this one
machine, where a real cluster has one for each; so does the real Prometheus that rollups read. Python's garbage collector is set as the
operator sets it. `load` is the load average of the minute before the part began, `taken` the share of the processors' time that the host
of this virtual machine gave to others meanwhile.

| machine | |
|---|---|
{facts}

| what | measured | bound | verdict | note | day | load | taken |
|---|---|---|---|---|---|---|---|
{rows}

## Others

| what | figure | source |
|---|---|---|
{peers}
"""
