"""dropConnections, about connections to other members, and rotateCertificates, about those of clients.

Source: MongoDB's reference of the two commands.
"""

from functools import partial
from typing import Annotated, Final, NamedTuple

from mongottl.commands.access import on_cluster
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ARRAY_FIELD, ONE, TEXT, Field
from mongottl.document.bson_field import wrong_type
from mongottl.document.interrupt import give_way
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode, shortened
from mongottl.exec.operation.context import OperationContext

_MAX_PORT: Final = 65535


class DropConnectionsRequest(NamedTuple):
    command: Annotated[Value, Field("dropConnections", ONE)]
    addresses: Annotated[list[Value], Field("hostAndPort", ARRAY_FIELD)]


@command(
    "dropConnections",
    DropConnectionsRequest,
    access=on_cluster("dropConnections"),
    help="Checks the given addresses; there are no connections to other servers that it could end.",
    admin_only=True,
)
def drop_connections(op: OperationContext, request: DropConnectionsRequest) -> Reply:
    """Ends the outgoing connections to the members with these addresses, of which a replica set with one has none.

    TypeMismatch (14) for what is no string, FailedToParse (9) for what is no `host:port`; null is ignored.
    """
    op.compute(partial(_check_addresses, request.addresses))
    return {}


def _check_addresses(addresses: list[Value]) -> None:
    for position, address in enumerate(addresses):
        give_way()
        if address is None:
            continue
        if not isinstance(address, str):
            raise wrong_type(f"dropConnections.hostAndPort.{position}", address, "string")
        _check_address(address)


def _check_address(address: str) -> None:
    """FailedToParse (9) for what is no host, with or without a port. IPv6 addresses stand in brackets."""
    if address.startswith("["):
        host, closed, rest = address[1:].partition("]")
        valid = bool(host) and bool(closed) and (not rest or rest.startswith(":"))
        port = rest[1:] if rest else None
    else:
        host, colon, given = address.partition(":")
        valid = bool(host)
        port = given if colon else None
    if valid and port is not None:
        valid = port.isascii() and port.isdecimal() and 0 < int(port[:6]) <= _MAX_PORT
    if not valid:
        raise CommandError(ErrorCode.FailedToParse, f"'{shortened(address)}' is no host with a port")


class RotateCertificatesRequest(NamedTuple):
    command: Annotated[Value, Field("rotateCertificates", ONE)]
    message: Annotated[str, Field("message", TEXT)] = ""


@command(
    "rotateCertificates",
    RotateCertificatesRequest,
    access=on_cluster("rotateCertificates"),
    help="Reads the files of the server's certificate again, for new connections.",
    admin_only=True,
)
def rotate_certificates(op: OperationContext, request: RotateCertificatesRequest) -> Reply:
    """Connections that are open keep the certificate with which they began. Without TLS there is nothing to do.

    OperationFailed (96) for files that cannot be used; then the earlier certificate is used as before.
    """
    try:
        op.service.hooks.rotate_certificates()
    except OSError as error:
        raise CommandError(ErrorCode.OperationFailed, f"the certificates were not rotated: {error}") from error
    return {}
