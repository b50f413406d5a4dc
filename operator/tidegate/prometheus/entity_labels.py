"""Whom a client's series is about: Kafka's tags `user` and `client-id` as the JMX exporter shows them, turned back into names.

Kafka leaves a tag out where the quota that meters the client does not tell users, or client ids, apart. The user is spelled by Kafka's
`Sanitizer` (every byte but `A-Z a-z 0-9 - _ .` as `%XX`), the client id as it is, in JMX's quotes where it has signs that JMX uses
itself. Default entities are no tags: who is metered by a default quota has a bucket, and tags, of his own.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote, unquote_to_bytes

from controller_logic.model import Entity

_REMEMBERED = 16384  # each client is told by every broker, in four queries, at every reading
_JMX_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_JMX_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def entity_of(labels: Mapping[str, str]) -> Entity | None:
    """The entity by `user` and `client_id` (this project's rules), `clientId` (the exporter's example) or `clientid` (all names lowered).

    None where the labels name neither user nor client id, or a user that Kafka's Sanitizer would not have spelled so.
    """
    get = labels.get
    client = get("client_id") or get("clientId") or get("clientid") or ""  # written out for speed: it is asked 100,000 times a reading
    return _entity(get("user", ""), client)


@lru_cache(maxsize=_REMEMBERED)
def _entity(user_tag: str, client_tag: str) -> Entity | None:
    user = _user(user_tag) if user_tag else None
    client = _client_id(client_tag) if client_tag else None
    if (user_tag and not user) or not (user or client):
        return None
    return Entity(user=user, client_id=client)


def _user(tag: str) -> str | None:
    try:
        name = unquote_to_bytes(tag).decode("utf-8")
    except UnicodeError:
        return None
    spelled = quote(name, safe="").replace("~", "%7E")  # quote() leaves the tilde alone, Java does not
    return name if spelled == tag else None


def _client_id(tag: str) -> str | None:
    # javax.management.ObjectName.quote, backwards: \n is a line break, before every other sign the backslash goes
    if not _JMX_QUOTED.fullmatch(tag):
        return tag
    return _JMX_ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], tag[1:-1]) or None
