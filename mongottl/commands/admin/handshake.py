"""hello and its older names, ping, whatsmyuri, _isSelf: commands of the driver handshake.

Source: the driver specifications' "MongoDB Handshake", "Server Discovery and Monitoring" and "Load Balancer Support".
"""

from typing import Annotated, Final, NamedTuple

from mongottl.commands.access import ANYONE
from mongottl.commands.registry import CommandSpec, Reply, command
from mongottl.commands.request import ANY, BOOL_FIELD, DOCUMENT_FIELD, MOST_OTHER_FIELDS, NAMES, ONE, WHOLE, Field
from mongottl.commands.security.login import MAX_LOGIN_BYTES, Conversation, log_in_by_certificate, start
from mongottl.document.bson_field import missing_field, read_known, unknown_field
from mongottl.document.build import DocumentBuilder
from mongottl.document.types import (
    MAX_DOCUMENT_BYTES,
    MISSING,
    Date,
    Int64,
    ObjectId,
    Value,
    type_code_of,
    type_name,
)
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import ElementCursor, first_field_name, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.running.signal import Signal
from mongottl.exec.sessions.sessions import SESSION_TIMEOUT_MINUTES
from mongottl.security.names import EXTERNAL, UserName
from mongottl.security.scram import MECHANISMS
from mongottl.versions import COMPRESSOR, HELLO_FIELD, MECHANISM, OPTION, REPLY_FIELD, Features
from mongottl.wire.compression import negotiate_compression

_MAX_METADATA_BYTES: Final = 512
_MAX_APP_NAME_BYTES: Final = 128
# Which field of the reply a field of the request is about, where it has another name.
_ABOUT: Final = {"maxAwaitTimeMS": "topologyVersion"}
_API_FIELDS: Final = ("apiVersion", "apiStrict", "apiDeprecationErrors")


class HelloRequest(NamedTuple):
    command: Annotated[Value, Field("hello", ONE)]
    client: Annotated[bytes | None, Field("client", DOCUMENT_FIELD)] = None
    compression: Annotated[list[Value] | None, Field("compression", NAMES)] = None
    topology_version: Annotated[bytes | None, Field("topologyVersion", DOCUMENT_FIELD)] = None
    max_await_time_ms: Annotated[int | None, Field("maxAwaitTimeMS", WHOLE)] = None
    hello_ok: Annotated[bool, Field("helloOk", BOOL_FIELD)] = False
    load_balanced: Annotated[bool, Field("loadBalanced", BOOL_FIELD)] = False
    sasl_user: Annotated[Value, Field("saslSupportedMechs", ANY)] = MISSING
    speculative: Annotated[bytes | None, Field("speculativeAuthenticate", DOCUMENT_FIELD)] = None


def without_unknown(body: bytes, features: Features) -> bytes:
    """The request without the fields that this version does not know: `hello` ignores them, whatever their types.

    40415 for more than that parsing takes (`MOST_OTHER_FIELDS`).
    """
    known = DocumentBuilder()
    cursor = ElementCursor(body, 0)
    count = 0
    while cursor.next():
        name = cursor.name()
        count += 1
        if count > 2 * MOST_OTHER_FIELDS:
            raise unknown_field(f"hello.{name}")
        if not features.lacks(HELLO_FIELD, _ABOUT.get(name, name)) and not (
            name in _API_FIELDS and features.lacks(OPTION, name)
        ):
            known.append_raw_element(cursor.raw_element())
    return known.finish()


def _describes_alone(op: OperationContext, request: HelloRequest) -> bool:
    """Whether the reply neither waits nor asks for users."""
    return request.topology_version is None and request.sasl_user is MISSING and request.speculative is None


@command(
    "hello",
    HelloRequest,
    access=ANYONE,
    help="Describes the server and its replica set; with maxAwaitTimeMS it waits for a change of topology.",
    strict=False,
    may_be_abandoned=True,
    stable=True,
    handshake=True,
    by_op_query=True,
    is_prompt=_describes_alone,
    touches_no_data=True,
)
def hello(op: OperationContext, request: HelloRequest) -> Reply:
    """With `topologyVersion` and `maxAwaitTimeMS` the reply waits for a topology change; there is never one.

    The error of a dialect without it, as some accounts of Cosmos DB are; drivers then use isMaster, which does not
    offer `helloOk` there.
    """
    dialect = op.service.dialect
    if not dialect.has_hello():
        raise dialect.hello_refused(is_logged_in=op.client.login is not None or not op.service.authorizes)
    return _answer(op, request, "isWritablePrimary")


@command(
    "isMaster",
    HelloRequest,
    access=ANYONE,
    help="The older form of hello.",
    aliases=("ismaster",),
    strict=False,
    may_be_abandoned=True,
    handshake=True,
    by_op_query=True,
    is_prompt=_describes_alone,
    touches_no_data=True,
)
def is_master(op: OperationContext, request: HelloRequest) -> Reply:
    return _answer(op, request, "ismaster")


def _answer(op: OperationContext, request: HelloRequest, primary_field: str) -> Reply:
    if op.service.config.workers > 1 and not request.load_balanced and not op.client.is_greeted:
        # Its next connection may come to another worker, which does not know its cursors and transactions.
        raise CommandError(
            ErrorCode.LoadBalancerSupportMismatch,
            "The server is being accessed through a load balancer, but this driver does not have load balancing"
            " enabled: with --workers the URI needs loadBalanced=true",
        )
    op.client.is_greeted = True
    if request.client is not None:
        _take_metadata(op, request.client)
    user = None if request.sasl_user is MISSING else _user_name(request.sasl_user)
    if (request.topology_version is None) != (request.max_await_time_ms is None):
        raise CommandError(
            31368, "A request with a 'topologyVersion' must include 'maxAwaitTimeMS', and the other way round"
        )
    if (
        request.topology_version is not None
        and request.max_await_time_ms
        and _process_id(request.topology_version) == op.service.process_id
    ):
        return _wait_for_change(op, request, primary_field, request.max_await_time_ms / 1000)
    reply = _describe(op, request, primary_field)
    if user is not None:
        mechanisms = _mechanisms(op, user)
        if mechanisms is not None:
            reply["saslSupportedMechs"] = mechanisms
    if request.speculative is not None:
        return _begin_login(op, request.speculative, reply)
    return reply


def _mechanisms(op: OperationContext, user: UserName) -> list[Value] | None:
    """The mechanisms by which `hello` says that a user can log in; None if it says nothing of the user.

    Where users are checked every name has an answer, so that nobody learns which users exist; elsewhere, as mongod
    does, only of those that exist.
    """
    mechanisms = op.service.accounts.mechanisms(user)
    if mechanisms is None:
        if not op.service.authorizes:
            return None
        mechanisms = list(MECHANISMS)
    features = op.service.features
    return [*(mechanisms if features is None else features.known(MECHANISM, mechanisms))]


def _user_name(user: Value) -> UserName:
    """The user of `saslSupportedMechs`, `"db.user"` or `{user, db}`: BadValue (2) for another form, TypeMismatch
    (14)."""
    if isinstance(user, str):
        database, dot, name = user.partition(".")
        if not dot:
            raise CommandError(ErrorCode.BadValue, "UserName must contain a '.' separated database.user pair")
        return UserName(name, database)
    if isinstance(user, bytes):
        if len(user) > MAX_LOGIN_BYTES:
            raise CommandError(ErrorCode.BadValue, f"UserName must have at most {MAX_LOGIN_BYTES} bytes")
        given, of = get_value(user, "user"), get_value(user, "db")
        if not isinstance(given, str) or not isinstance(of, str):
            raise CommandError(ErrorCode.BadValue, "UserName must contain fields 'user' and 'db', both strings")
        return UserName(given, of)
    raise CommandError(
        ErrorCode.TypeMismatch,
        f"BSON field 'hello.saslSupportedMechs' is the wrong type '{type_name(type_code_of(user))}', expected types"
        " '[string, object]'",
    )


def _begin_login(op: OperationContext, request: bytes, reply: dict[str, Value]) -> Reply:
    """Adds the answer to `speculativeAuthenticate`: `{saslStart: 1, mechanism, payload, db}` or `{authenticate: 1, …}`.

    If the login cannot begin, the reply has no answer, and the client then begins it by a command of its own. It has
    none either for a user of whom `saslSupportedMechs` says nothing: .NET's driver takes no conversation of a mechanism
    that the reply did not have.
    """
    if len(request) > MAX_LOGIN_BYTES:
        return reply
    mechanism = get_value(request, "mechanism")
    database = get_value(request, "db")
    if not isinstance(mechanism, str):
        return reply
    op.database = database if isinstance(database, str) else EXTERNAL
    try:
        if first_field_name(request) == "authenticate":
            given = get_value(request, "user")
            user = log_in_by_certificate(op, given if isinstance(given, str) else "")
            reply["speculativeAuthenticate"] = {"dbname": user.database, "user": user.name}
        else:
            options = get_value(request, "options")
            skip = isinstance(options, bytes) and get_value(options, "skipEmptyExchange") is True
            begun = start(op, mechanism, get_value(request, "payload"), skip)
            assert isinstance(begun, dict)
            conversation = op.client.conversation
            if isinstance(conversation, Conversation) and _mechanisms(op, conversation.user) is None:
                op.client.conversation = None
                return reply
            reply["speculativeAuthenticate"] = begun
    except CommandError:
        pass
    return reply


def _process_id(topology_version: bytes) -> Value:
    """The `processId` of a `topologyVersion` `{processId, counter}`. The server's own counter is always 0."""
    process_id: Value = MISSING
    counter: Value = MISSING
    for name, value in read_known("topologyVersion", topology_version, ("processId", "counter")).items():
        if name == "processId":
            process_id = value
        else:
            counter = value
    for name, value, right in (
        ("processId", process_id, isinstance(process_id, ObjectId)),
        ("counter", counter, isinstance(counter, Int64)),
    ):
        if value is MISSING:
            raise missing_field(f"topologyVersion.{name}")
        if not right:
            raise CommandError(ErrorCode.TypeMismatch, f"BSON field 'topologyVersion.{name}' is the wrong type")
    if isinstance(counter, Int64) and counter < 0:
        raise CommandError(31372, "topologyVersion must have a non-negative counter")
    return process_id


def _wait_for_change(op: OperationContext, request: HelloRequest, primary_field: str, seconds: float) -> Reply:
    op.wait(seconds, Signal())  # nothing changes; the wait counts as one for news
    return _describe(op, request, primary_field)


def _describe(op: OperationContext, request: HelloRequest, primary_field: str) -> dict[str, Value]:
    service = op.service
    config = service.config
    now_ms = service.clock.now_ms()
    reply: dict[str, Value] = {"helloOk": True} if request.hello_ok and op.service.dialect.has_hello() else {}
    reply.update(
        {
            primary_field: True,
            "topologyVersion": {"processId": service.process_id, "counter": Int64(0)},
            **_membership(op),
            "maxBsonObjectSize": MAX_DOCUMENT_BYTES,
            "maxMessageSizeBytes": service.bounds.max_message_bytes,
            "maxWriteBatchSize": service.bounds.max_write_batch_size,
            "localTime": Date(now_ms),
            "logicalSessionTimeoutMinutes": SESSION_TIMEOUT_MINUTES,
            "connectionId": op.client.connection_id,
            "minWireVersion": 0,
            "maxWireVersion": config.max_wire_version(),
            "readOnly": False,
        }
    )
    if request.load_balanced and config.is_sharded:
        # By it drivers know the servers apart that they reach by one address. Without it they refuse the server.
        reply["serviceId"] = service.process_id
    if request.compression is not None:
        offered = [name for name in request.compression if isinstance(name, str)]
        if service.features is not None:
            offered = service.features.known(COMPRESSOR, offered)
        chosen = negotiate_compression(offered)
        if chosen:
            reply["compression"] = chosen
    features = service.features
    return reply if features is None else {name: reply[name] for name in features.known(HELLO_FIELD, list(reply))}


def _membership(op: OperationContext) -> dict[str, Value]:
    """The replica set and this member, as `hello` and serverStatus describe them; for a mongos, what says it is one.

    A driver that has found a mongos stays with the address that it was given, also one that a port is mapped to.
    Source: the driver specifications' "Server Discovery and Monitoring", "type".
    """
    service = op.service
    if service.config.is_sharded:
        return {"msg": "isdbgrid"}
    me = service.config.advertise_host or op.client.local
    op_time: Value = {"ts": service.cluster_clock.operation_time, "t": Int64(1)}
    written = Date(service.cluster_clock.written_ms // 1000 * 1000)
    return {
        "hosts": [me],
        "setName": service.config.replica_set,
        "setVersion": 1,
        "secondary": False,
        "primary": me,
        "me": me,
        "electionId": ObjectId("7fffffff0000000000000001"),
        "lastWrite": {
            "opTime": op_time,
            "lastWriteDate": written,
            "majorityOpTime": op_time,
            "majorityWriteDate": written,
        },
    }


def replica_set_state(op: OperationContext) -> dict[str, Value]:
    """The section `repl` of serverStatus, with `ismaster` in versions that do not know `isWritablePrimary`."""
    features = op.service.features
    is_older = features is not None and features.lacks(REPLY_FIELD, "serverStatus.repl.isWritablePrimary")
    return {
        "topologyVersion": {"processId": op.service.process_id, "counter": Int64(0)},
        "ismaster" if is_older else "isWritablePrimary": True,
        **_membership(op),
        "rbid": 1,
    }


def _take_metadata(op: OperationContext, metadata: bytes) -> None:
    """Stores the client metadata, once per connection. Errors 183 to 186 as in the handshake specification."""
    if op.client.metadata is not None:
        raise CommandError(
            ErrorCode.ClientMetadataCannotBeMutated, "The client metadata document may only be sent in the first hello"
        )
    if len(metadata) > _MAX_METADATA_BYTES:
        raise CommandError(
            ErrorCode.ClientMetadataDocumentTooLarge,
            f"The client metadata document must be less then or equal to {_MAX_METADATA_BYTES} bytes",
        )
    name = _application_name(metadata)
    if len(encode_text(name)) > _MAX_APP_NAME_BYTES:
        raise CommandError(
            ErrorCode.ClientMetadataAppNameTooLarge,
            f"The 'application.name' field must be less then or equal to {_MAX_APP_NAME_BYTES} bytes",
        )
    op.client.app_name = name
    op.client.metadata = metadata


def _application_name(metadata: bytes) -> str:
    application = get_value(metadata, "application")
    name = get_value(application, "name") if isinstance(application, bytes) else None
    return name if isinstance(name, str) else ""


def app_name(op: OperationContext, spec: CommandSpec, body: bytes) -> str:
    """The application name of a command's client: of the connection's first hello even before that has run."""
    if spec.handshake and op.client.metadata is None:
        metadata = get_value(body, "client")
        return _application_name(metadata) if isinstance(metadata, bytes) else ""
    return op.client.app_name


class PingRequest(NamedTuple):
    command: Annotated[Value, Field("ping", ONE)]


@command(
    "ping",
    PingRequest,
    access=ANYONE,
    help="Replies at once; tests whether the server responds.",
    stable=True,
    is_prompt=lambda op, request: True,
    touches_no_data=True,
)
def ping(op: OperationContext, request: PingRequest) -> Reply:
    return {}


class TestVersion2Request(NamedTuple):
    command: Annotated[Value, Field("testVersion2", ONE)]


@command(
    "testVersion2",
    TestVersion2Request,
    access=ANYONE,
    help="Does nothing; it is part of version 2 of the Stable API alone, for drivers' tests.",
    test_only=True,
)
def test_version_2(op: OperationContext, request: TestVersion2Request) -> Reply:
    return {}


class WhatsMyUriRequest(NamedTuple):
    command: Annotated[Value, Field("whatsmyuri", ONE)]


@command(
    "whatsmyuri",
    WhatsMyUriRequest,
    access=ANYONE,
    help="Returns the client's address as the server sees it.",
    strict=False,
)
def whats_my_uri(op: OperationContext, request: WhatsMyUriRequest) -> Reply:
    return {"you": op.client.remote}


class IsSelfRequest(NamedTuple):
    command: Annotated[Value, Field("_isSelf", ONE)]


@command(
    "_isSelf",
    IsSelfRequest,
    access=ANYONE,
    help="Returns an id of this run of the server, by which it would know itself among the members of a replica set.",
    strict=False,
    by_op_query=True,
)
def is_self(op: OperationContext, request: IsSelfRequest) -> Reply:
    return {"id": op.service.process_id}
