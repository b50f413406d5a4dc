"""The share groups of a cluster that have members now (KIP-932), as their coordinators report them.

Every broker is asked which groups it coordinates, and then for their members. Kafka reports the
client ids of these and never their users. Brokers before 4.1 have no share groups that can be
described, and a login without the right to describe a group does not learn of it: then there are
none. The rights are DESCRIBE and DESCRIBE_CONFIGS on groups.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing

from tidegate.errors import Unreachable
from tidegate.kafka.adminapi.client import AdminClient, Lost
from tidegate.kafka.protocol import ShareGroupDescribeRequest, admin, for_code
from tidegate.kafka.settings import KafkaConnection
from tidegate_logic.model import ShareGroup
from tidegate_logic.reasons import Reason

_DESCRIBE = 77  # the number of ShareGroupDescribe
_GROUP_RESOURCE = 32
_LOCK = "share.record.lock.duration.ms"
_GONE = 69  # it was deleted since it was listed
_NOT_AUTHORIZED = frozenset({29, 30, 31})
_WITHOUT_MEMBERS = frozenset({"Empty", "Dead"})


class KafkaShareGroups:
    """Reads them, each time over connections of its own: they are read seldom, beside passes."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._settings = connection

    def read(self) -> tuple[ShareGroup, ...]:
        """Every share group with members, by name. Raises Unreachable if a broker is silent."""
        with closing(AdminClient(self._settings)) as client:
            try:
                found = list(_Reading(client).all())
            except Lost as error:
                raise _unknown(str(error)) from error
        return tuple(sorted(found, key=lambda group: group.name))


class _Reading:
    """One reading, broker by broker."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    def all(self) -> Iterator[ShareGroup]:
        if not self._client.has_request(_DESCRIBE):
            return
        for broker in self._client.metadata().brokers:
            yield from self._of_broker((broker.host, broker.port))

    def _of_broker(self, broker: tuple[str, int]) -> Iterator[ShareGroup]:
        """Those that this broker coordinates."""
        answer = self._client.ask(admin.ListGroupsRequest(types_filter=["share"]), broker)
        if answer.error_code in _NOT_AUTHORIZED:
            return
        _require(answer.error_code, "the list of groups")
        names = [one.group_id for one in answer.groups if one.group_state not in _WITHOUT_MEMBERS]
        if not names:
            return
        locks = self._locks(names, broker)
        request = ShareGroupDescribeRequest(group_ids=names, include_authorized_operations=False)
        for group in self._client.ask(request, broker).groups:
            if group.error_code in _NOT_AUTHORIZED:
                # its name is known, and that it has members: a tier's member may name it
                yield ShareGroup(group.group_id, lock_seconds=locks.get(group.group_id))
            elif group.error_code != _GONE:
                _require(group.error_code, f"share group {group.group_id}")
                yield ShareGroup(
                    group.group_id,
                    frozenset(one.client_id for one in group.members),
                    frozenset(name for one in group.members for name in one.subscribed_topic_names),
                    locks.get(group.group_id),
                )

    def _locks(self, names: Iterable[str], broker: tuple[str, int]) -> Mapping[str, float]:
        """The record lock of each group in seconds, as far as this login may know it."""
        kind = admin.DescribeConfigsRequest.DescribeConfigsResource
        resources = [
            kind(resource_type=_GROUP_RESOURCE, resource_name=name, configuration_keys=[_LOCK])
            for name in names
        ]
        request = admin.DescribeConfigsRequest(resources=resources, include_synonyms=False)
        return {
            result.resource_name: int(config.value) / 1000
            for result in self._client.ask(request, broker).results
            for config in result.configs
            if config.name == _LOCK and config.value
        }


def _require(code: int, what: str) -> None:
    if code:
        raise _unknown(f"{what}: {for_code(code).__name__}")


def _unknown(why: str) -> Unreachable:
    return Unreachable(
        Reason.BROKERS_UNREACHABLE,
        f"The share groups are not known ({why}).",
        consequence="Every quota stays as it is; Tidegate asks again.",
    )
