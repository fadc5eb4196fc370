"""getnonce, saslStart, saslContinue, authenticate, logout, connectionStatus.

Source: the driver specifications' "Authentication"; MongoDB's command reference.
"""

from functools import partial
from typing import Annotated, NamedTuple

from mongottl.catalog.catalog import new_uuid
from mongottl.commands.access import ANYONE
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ANY, BOOL_FIELD, DOCUMENT_FIELD, IGNORED, ONE, TEXT, Field
from mongottl.commands.security.login import MAX_LOGIN_BYTES, X509, log_in_by_certificate, proceed, start, unavailable
from mongottl.document.build import EMPTY_DOCUMENT, encode
from mongottl.document.types import Value
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.security.names import EXTERNAL


class GetNonceRequest(NamedTuple):
    command: Annotated[Value, Field("getnonce", ONE)]


@command(
    "getnonce",
    GetNonceRequest,
    access=ANYONE,
    help="Returns a nonce, with which clients logged in before there was SCRAM.",
    strict=False,
)
def get_nonce(op: OperationContext, request: GetNonceRequest) -> Reply:
    """`{nonce}`: 16 hexadecimal digits. The login that used it (MONGODB-CR) is gone; Cosmos DB lists the command."""
    return {"nonce": new_uuid()[8:].hex()}


class SaslStartRequest(NamedTuple):
    command: Annotated[Value, Field("saslStart", ONE)]
    mechanism: Annotated[str, Field("mechanism", TEXT)]
    payload: Annotated[Value, Field("payload", ANY)]
    auto_authorize: Annotated[Value, Field("autoAuthorize", IGNORED)] = None
    options: Annotated[bytes, Field("options", DOCUMENT_FIELD)] = EMPTY_DOCUMENT


@command(
    "saslStart",
    SaslStartRequest,
    access=ANYONE,
    help="Begins a login on this connection, by SCRAM-SHA-256, SCRAM-SHA-1 or MONGODB-X509.",
    strict=False,
    stable=True,
    by_op_query=True,
    secret_fields=("payload",),
)
def sasl_start(op: OperationContext, request: SaslStartRequest) -> Reply:
    """`{conversationId, done, payload}`. BadValue (2) for longer options than a login has.

    `done` is false until the client has proved that it knows the password."""
    if len(request.options) > MAX_LOGIN_BYTES:
        raise CommandError(ErrorCode.BadValue, f"The options of saslStart must have at most {MAX_LOGIN_BYTES} bytes")
    skip = get_value(request.options, "skipEmptyExchange") is True
    return start(op, request.mechanism, request.payload, skip)


class SaslContinueRequest(NamedTuple):
    command: Annotated[Value, Field("saslContinue", ONE)]
    conversation_id: Annotated[Value, Field("conversationId", ANY)]
    payload: Annotated[Value, Field("payload", ANY)]


@command(
    "saslContinue",
    SaslContinueRequest,
    access=ANYONE,
    help="Continues a login that saslStart has begun.",
    strict=False,
    stable=True,
    by_op_query=True,
    secret_fields=("payload",),
)
def sasl_continue(op: OperationContext, request: SaslContinueRequest) -> Reply:
    return proceed(op, request.conversation_id, request.payload)


class AuthenticateRequest(NamedTuple):
    command: Annotated[Value, Field("authenticate", ONE)]
    mechanism: Annotated[str, Field("mechanism", TEXT)]
    user: Annotated[str, Field("user", TEXT)] = ""


@command(
    "authenticate",
    AuthenticateRequest,
    access=ANYONE,
    help="Logs in the user that the client's TLS certificate names (MONGODB-X509).",
    strict=False,
    stable=True,
    by_op_query=True,
)
def authenticate(op: OperationContext, request: AuthenticateRequest) -> Reply:
    """`{dbname, user}`. BadValue (2) on another database than `$external`, MechanismUnavailable (334)."""
    if request.mechanism != X509:
        raise unavailable(request.mechanism)
    if op.database != EXTERNAL:
        raise CommandError(ErrorCode.BadValue, f"{X509} requires the database {EXTERNAL}")
    user = log_in_by_certificate(op, request.user)
    return {"dbname": user.database, "user": user.name}


class LogoutRequest(NamedTuple):
    command: Annotated[Value, Field("logout", ONE)]


@command("logout", LogoutRequest, access=ANYONE, help="Ends the login of this connection.")
def logout(op: OperationContext, request: LogoutRequest) -> Reply:
    op.client.login = None
    op.client.conversation = None
    return {}


class ConnectionStatusRequest(NamedTuple):
    command: Annotated[Value, Field("connectionStatus", ONE)]
    show_privileges: Annotated[bool, Field("showPrivileges", BOOL_FIELD)] = False
    show_authentication_restrictions: Annotated[Value, Field("showAuthenticationRestrictions", ANY)] = None


@command(
    "connectionStatus",
    ConnectionStatusRequest,
    access=ANYONE,
    help="Returns the user of this connection, with its roles and, on request, its privileges.",
    in_transaction=True,
    begins_transaction=False,
)
def connection_status(op: OperationContext, request: ConnectionStatusRequest) -> Reply:
    return op.compute(partial(_connection_status, op, request))


def _connection_status(op: OperationContext, request: ConnectionStatusRequest) -> Reply:
    login = op.client.login
    grants = None if login is None else op.service.accounts.grants(login)
    users: list[Value] = []
    roles: list[Value] = []
    privileges: list[Value] = []
    if login is not None and grants is not None:
        users.append(encode({"user": login.user.name, "db": login.user.database}))
        roles = [encode({"role": role.name, "db": role.database}) for role in grants.all_roles]
        if request.show_privileges:
            privileges = grants.privileges.documents()
    info: dict[str, Value] = {"authenticatedUsers": users, "authenticatedUserRoles": roles}
    if request.show_privileges:
        info["authenticatedUserPrivileges"] = privileges
    return {"authInfo": info, "uuid": op.client.uuid}
