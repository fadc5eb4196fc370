"""The client of commands that ask a running server. It logs in if the URI names a user."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from mongottl.cli.arguments import ArgumentParser, positive_seconds
from mongottl.config import WIRE_VERSIONS
from mongottl.errors import ErrorCode

if TYPE_CHECKING:
    import pymongo

_DEFAULT_URI: Final = "mongodb://127.0.0.1:27017/"
# Where `mongottl container` writes its server's URI, for what is run beside it in the same container. The second folder
# is in memory, and can be written in a container whose root file system is read-only, too.
CONTAINER_URI_FILES: Final = ("/tmp/mongottl-container-uri", "/dev/shm/mongottl-container-uri")
_DEFAULT_TIMEOUT_S: Final = 5.0
# That of the oldest --server-version. PyMongo refuses servers that announce an old one; ours takes the same messages
# whatever it announces.
_LEAST_WIRE_VERSION: Final = min(WIRE_VERSIONS.values())


def add_server_arguments(parser: ArgumentParser) -> None:
    """Gives a command the arguments `uri` and `timeout`."""
    parser.add_argument("uri", metavar="URI", nargs="?", default=_DEFAULT_URI, help=f"by default {_DEFAULT_URI}")
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=_DEFAULT_TIMEOUT_S,
        metavar="SECONDS",
        help=f"how long to wait for the answer; by default {_DEFAULT_TIMEOUT_S:g}",
    )


def write_container_uri(uri: str) -> bool:
    """Writes the URI of the container's server, which may have a password, for its owner alone. False if no folder can
    be written."""
    for path in CONTAINER_URI_FILES:
        try:
            with open(path, "w", encoding="utf-8", opener=_open_for_owner) as file:
                file.write(uri)
        except OSError:
            continue
        return True
    return False


def _open_for_owner(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def container_uri() -> str | None:
    """The URI of the container's server; None outside of a container, and before the server accepts connections."""
    for path in CONTAINER_URI_FILES:
        with suppress(OSError), open(path, encoding="utf-8") as file:
            return file.read()
    return None


@contextmanager
def connect(uri: str, timeout_s: float, is_long: bool = False) -> Iterator["pymongo.MongoClient[dict[str, Any]]"]:
    """A client of the server that the URI names: that one alone, whatever host its `hello` advertises, unless the URI
    names several or says otherwise. Raises ConfigurationError or InvalidURI (PyMongoError) for a bad URI.

    is_long: whether answers may take longer than finding the server (`timeout_s`).
    """
    import pymongo
    from pymongo import common
    from pymongo.uri_parser import parse_uri

    timeout_ms = max(1, round(timeout_s * 1000))
    options: dict[str, Any] = {
        "serverSelectionTimeoutMS": timeout_ms,
        "connectTimeoutMS": timeout_ms,
    }
    if not is_long:
        options["socketTimeoutMS"] = timeout_ms
    if not uri.startswith("mongodb+srv://"):
        parsed = parse_uri(uri)
        given = parsed["options"]
        if len(parsed["nodelist"]) == 1 and "directConnection" not in given and not given.get("loadBalanced"):
            options["directConnection"] = True
    least = common.MIN_SUPPORTED_WIRE_VERSION
    common.MIN_SUPPORTED_WIRE_VERSION = min(least, _LEAST_WIRE_VERSION)
    try:
        with pymongo.MongoClient[dict[str, Any]](uri, **options) as client:
            yield client
    finally:
        common.MIN_SUPPORTED_WIRE_VERSION = least


def _reason_of(error: Exception) -> str:
    """The text of an error, without what PyMongo adds: its settings, its view of the deployment, the reply."""
    reason = str(error)
    for addition in (" (configured timeouts", ", Timeout:", ", full error:"):
        reason = reason.partition(addition)[0]
    return reason


def failure_of(error: Exception, meanings: Mapping[int, str] | None = None) -> str:
    """Why a command has failed that asks a server: no answer, a refusal, or a URI that is none.

    meanings: what error codes of the server mean for this command.
    """
    from pymongo.errors import ConnectionFailure, OperationFailure

    if isinstance(error, ConnectionFailure):
        return f"no answer: {_reason_of(error)}"
    if not isinstance(error, OperationFailure):
        return _reason_of(error)
    known = {ErrorCode.CommandNotFound: "the server is not mongottl", **(meanings or {})}
    meaning = known.get(error.code or 0)
    return f"{meaning}: {_reason_of(error)}" if meaning else _reason_of(error)
