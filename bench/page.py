"""The page docs/benchmarks.md: our figures with the machine they were measured on, and the peers' beside them."""

from collections.abc import Mapping, Sequence

from bench.records import Record

_PEERS = (
    ("Strimzi User Operator: 500 users created, modified and deleted", "53.9 s", "its project's own published figure (strimzi#12091)"),
    ("Strimzi User Operator: 200 users, the same", "31.5 s", "its project's own published figure (strimzi#12091)"),
)


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
Machine = tuple[tuple[str, str], ...]


def page(sections: Mapping[str, Sequence[Record]]) -> str:
    """The page as Markdown: the records of each section under its title, none where it has none, and the machines of all of them."""
    letters = dict(zip(dict.fromkeys(_machine(record) for records in sections.values() for record in records), _LETTERS, strict=False))
    peers = "\n".join(f"| {what} | {value} | {source} |" for what, value, source in _PEERS)
    measured = "\n".join(_section(title, records, letters) for title, records in sections.items() if records)
    return f"""# Benchmarks

Written by `make bench`; each part also runs alone (`python -m bench cold-5000`; `python -m bench --help` lists them). Real Kafka 3.9.2
brokers with ZooKeeper on loopback, a real Kubernetes API server, the operator as a process of its own: all of them share one machine,
where a real cluster has one for each; so does the real Prometheus that rollups read. Python's garbage collector is set as the operator
sets it. `load` is the load average of the minute before the part began, `taken` the share of the processors' time that the host of this
virtual machine gave to others meanwhile, `on` the machine.

{_machines(letters)}

{measured}
## Others

| what | figure | source |
|---|---|---|
{peers}
"""


def _machine(record: Record) -> Machine:
    return tuple(record.machine.items())


def _machines(letters: Mapping[Machine, str]) -> str:
    """A column for each machine."""
    labels = list(dict.fromkeys(label for machine in letters for label, _ in machine))
    rows = [[label, *(dict(machine).get(label, "") for machine in letters)] for label in labels]
    head = ["machine", *letters.values()]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def _section(title: str, records: Sequence[Record], letters: Mapping[Machine, str]) -> str:
    rows = "\n".join(
        f"{figure.row()} {record.day} | {_surroundings(record)} | {letters[_machine(record)]} |"
        for record in records
        for figure in record.figures
    )
    return f"""## {title}

| what | measured | bound | verdict | note | day | load | taken | on |
|---|---|---|---|---|---|---|---|---|
{rows}
"""


def _surroundings(record: Record) -> str:
    taken = "" if record.stolen_percent is None else f"{record.stolen_percent:g} %"
    return f"{record.load:g} | {taken}"
