"""Messages of the parts that a command shares with the operator, in a command's own words.

They also say what the operator does next (quotas stay, the next pass tries again), which no command
does, and name a cause as a library of Python does. Both are put right here, where messages reach
people, so that the operator's conditions keep theirs.
"""

import re
import socket
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tidegate_logic.model import Observation, Readings

_SENTENCES = re.compile(r"(?<=[.!?]) +(?=[A-Z])")
_OPERATORS = re.compile(
    r"(?:every quota stays as it is"
    r"|(?:it|tidegate|the next pass) tries again"
    r"|it is read (?:again|back)"
    r"|give the operator's serviceaccount this right).*",
    re.IGNORECASE,
)
_OPERATORS_CLAUSE = re.compile(
    r"[;,]? (?:and )?(?:every quota stays as it is(?: until [^;.]+)?|the next pass tries again)",
    re.IGNORECASE,
)
_ADVICE = re.compile(r"(?:Check|Correct|Give|Grant|Set|Use|Add|Name|Run|Write)\b.*")
# what libraries say, in the order in which it is put right
_CAUSES = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"\[(?:Errno -?\d+|SSL: \w+)\] | ?\(_ssl\.c:\d+\)", ""),
        (r"\b(?:[A-Z]\w+: )?Failed to establish a new connection: ", ""),
        (r"\b(?:[A-Z]\w+: )?Failed to resolve '[^']+' \(([^)]+)\)", r"\1"),
        (r"\b(?:[A-Z]\w+: )?Connection to \S+ timed out\. \(connect timeout=(\d+)[.\d]*\)",
         r"no connection within \1 s"),
        (r"\b(?:[A-Z]\w+: )?Read timed out\. \(read timeout=(\d+)[.\d]*\)",
         r"no answer within \1 s"),
        (r"\b(?:[A-Z]\w+: )?\('Connection aborted\.'[^)]*\)+", "the connection was closed"),
        (r"\b(?:SSL|Protocol|NewConnection|NameResolution|MaxRetry|OS|Timeout)Error: ", ""),
        (r"Name or service not known|No address associated with hostname", "no such host"),
        (r"Temporary failure in name resolution", "the name of the host cannot be looked up"),
        (r"Connection refused", "connection refused"),
        (r"Invalid kube-config file\. No configuration found", "there is no kubeconfig"),
    )
)  # fmt: skip
_TRIED = re.compile(
    r"(No broker at \S+ answered|ZooKeeper \S+ did not answer) within ([\d.]+) s \((.+?)\)(?=\.|$)"
)
_SILENT_ZOOKEEPER = re.compile(
    r"ZooKeeper (\S+) gave no answer within [\d.]+ s; the connection was lost or the server is "
    r"overloaded"
)
_AT_ONCE = ("connection refused", "no such host")
_LOOK_SECONDS = 1.0
_LISTED = 5


def own_words(message: str) -> str:
    """The message without what only the operator does, and with causes as people name them.

    A ZooKeeper that gave no answer is connected to once more, to say whether it refuses.
    """
    sentences = (
        _OPERATORS_CLAUSE.sub("", sentence)
        for sentence in _SENTENCES.split(message)
        if not _OPERATORS.fullmatch(sentence)
    )
    text = " ".join(sentences)
    for pattern, words in _CAUSES:
        text = pattern.sub(words, text)
    return _SILENT_ZOOKEEPER.sub(_why_silent, _TRIED.sub(_no_answer, text))


def cause_and_advice(message: str) -> tuple[str, str]:
    """A message's sentences up to the advice at its end, and the advice; empty = it has none."""
    sentences = _SENTENCES.split(message)
    count = len(sentences)
    while count > 1 and _ADVICE.fullmatch(sentences[count - 1]):
        count -= 1
    return " ".join(sentences[:count]), " ".join(sentences[count:])


def in_own_words(observation: Observation) -> Observation:
    """The same observation, with the reasons why parts of it are missing in a command's words."""
    missing = tuple((reason, own_words(message)) for reason, message in observation.missing)
    return replace(observation, missing=missing)


def readings_in_own_words(readings: Readings) -> Readings:
    """The same readings, with their problems in a command's words."""
    problems = tuple(replace(one, message=own_words(one.message)) for one in readings.problems)
    return replace(readings, problems=problems)


def listed_words(names: Sequence[str]) -> str:
    """The names; of more than five the first ones, and how many more there are."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{', '.join(names[:_LISTED])}{more}"


def _no_answer(found: re.Match[str]) -> str:
    """Each cause once, and a time only where somebody waited."""
    causes: dict[str, list[str]] = {}
    for attempt in found[3].split("; "):
        server, _, cause = attempt.partition(": ")
        causes.setdefault(cause, []).append(server)
    within = "" if set(causes) <= set(_AT_ONCE) else f" within {found[2]} s"
    tried = "; ".join(f"{', '.join(servers)}: {cause}" for cause, servers in causes.items())
    who = "No broker answered" if found[1].startswith("No") else found[1]
    return f"{who}{within} ({tried})"


def _why_silent(found: re.Match[str]) -> str:
    causes = set(_causes(found[1].partition("/")[0].split(",")))
    if len(causes) != 1 or None in causes:
        return found[0]
    return f"ZooKeeper {found[1]} does not answer: {causes.pop()}"


def _causes(servers: Iterable[str]) -> Iterable[str | None]:
    """Why each of these hosts refuses at once; None where it does not."""
    for server in servers:
        host, _, port = server.rpartition(":")
        try:
            address = (host.strip("[]"), int(port))
            socket.create_connection(address, timeout=_LOOK_SECONDS).close()
            yield None
        except ConnectionRefusedError:
            yield "connection refused"
        except socket.gaierror:
            yield "no such host"
        except (OSError, ValueError):
            yield None
