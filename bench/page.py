"""The page docs/benchmarks.md: our figures under the machine they were measured on, and the peers' beside them."""

from collections.abc import Sequence

from bench.records import Record

_PEERS = (
    ("Strimzi User Operator: 500 users created, modified and deleted", "53.9 s", "its project's own published figure (strimzi#12091)"),
    ("Strimzi User Operator: 200 users, the same", "31.5 s", "its project's own published figure (strimzi#12091)"),
)


def _surroundings(record: Record) -> str:
    taken = "" if record.stolen_percent is None else f"{record.stolen_percent:g} %"
    return f"{record.load:g} | {taken}"


def _measured(records: Sequence[Record]) -> str:
    """A machine, and the figures of the parts that were measured on it."""
    facts = "\n".join(f"| {label} | {text} |" for label, text in records[0].machine.items())
    rows = "\n".join(f"{figure.row()} {record.day} | {_surroundings(record)} |" for record in records for figure in record.figures)
    return f"""| machine | |
|---|---|
{facts}

| what | measured | bound | verdict | note | day | load | taken |
|---|---|---|---|---|---|---|---|
{rows}
"""


def page(records: Sequence[Record]) -> str:
    """The page as Markdown, with the newest figures of each part."""
    peers = "\n".join(f"| {what} | {value} | {source} |" for what, value, source in _PEERS)
    machines = list({tuple(record.machine.items()): None for record in records})
    measured = "\n".join(_measured([one for one in records if tuple(one.machine.items()) == machine]) for machine in machines)
    return f"""# Benchmarks

Written by `make bench`; each part also runs alone (`python -m bench cold-5000`; `python -m bench --help` lists them). Real Kafka 3.9.2
brokers with ZooKeeper on loopback, a real Kubernetes API server, the operator as a process of its own: all of them share one machine,
where a real cluster has one for each; so does the real Prometheus that rollups read. Python's garbage collector is set as the operator
sets it. `load` is the load average of the minute before the part began, `taken` the share of the processors' time that the host of this
virtual machine gave to others meanwhile.

{measured}
## Others

| what | figure | source |
|---|---|---|
{peers}
"""
