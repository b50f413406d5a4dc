"""Which forwarder forwards which level topic: balanced by count, with the fewest moves.

It reads no load: a level topic costs its forwarder what is written to it, which changes faster than
topics should move. It is a module of its own because it is pure, and its caller is not.
"""

from collections.abc import Collection, Iterator, Mapping

Assignment = Mapping[str, tuple[str, ...]]
"""The topics of each member, in the order of their names."""


def assign(topics: Collection[str], members: Collection[str], before: Assignment) -> Assignment:
    """Give every topic to one member, so that their counts differ by one at most.

    A member keeps what it has `before`, up to its share. So a member that joins gets its share and
    nothing else moves; of a member that left, only its own topics move. The rest goes out one by
    one in the order of names, so that topics of one delay get different members. The same arguments
    give the same result, which is also the result of assigning again. No members: an empty mapping.
    """
    kept = _kept(set(topics), sorted(set(members)), before)
    shares = dict(_shares(len(set(topics)), kept))
    result = {member: sorted(has)[: shares[member]] for member, has in kept.items()}
    for topic in sorted(set(topics).difference(*result.values())) if result else ():
        open_members = (member for member in result if len(result[member]) < shares[member])
        result[min(open_members, key=lambda member: len(result[member]))].append(topic)
    return {member: tuple(sorted(has)) for member, has in result.items()}


def _kept(topics: set[str], members: list[str], before: Assignment) -> dict[str, set[str]]:
    """What each member has and could keep; a topic that two members have is the first one's."""
    kept: dict[str, set[str]] = {}
    for member in members:
        kept[member] = topics.intersection(before.get(member, ())).difference(*kept.values())
    return kept


def _shares(topic_count: int, kept: Mapping[str, set[str]]) -> Iterator[tuple[str, int]]:
    """How many topics each member gets; what is left over goes to those that have most already."""
    if kept:
        least, left_over = divmod(topic_count, len(kept))
        richest_first = sorted(kept, key=lambda member: (-len(kept[member]), member))
        for place, member in enumerate(richest_first):
            yield member, least + (place < left_over)
