"""How a connection becomes that of a user: for the commands of `authentication`, and for `hello`, which can begin a
login to save a round trip (`speculativeAuthenticate`).

Source: the driver specifications' "Authentication".
"""

import base64
import hmac
from functools import partial
from typing import Final

from mongottl.commands.registry import Reply
from mongottl.document.bson_field import wrong_type
from mongottl.document.types import BinData, Value
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode, shortened
from mongottl.exec.operation.context import OperationContext
from mongottl.security import scram
from mongottl.security.accounts import Login
from mongottl.security.names import EXTERNAL, UserName
from mongottl.security.scram import ScramConversation, authentication_failed
from mongottl.versions import MECHANISM

X509: Final = "MONGODB-X509"
# The ways to log in that this server has.
KNOWN_MECHANISMS: Final = (X509, *scram.MECHANISMS)
# Bytes of a document that describes a login. A message of the conversation has at most half of it, as base64, too.
MAX_LOGIN_BYTES: Final = 2 * scram.MAX_MESSAGE_CHARACTERS
# A connection has one conversation at a time.
_CONVERSATION_ID: Final = 1
_NO_USERS: Final = (
    "This server has no users: leave the user and its password out of the connection string, or start the server with "
    "--user, or as the account of a connection string of Cosmos DB with --dialect cosmos, --cosmos-account and its key "
    "in MONGOTTL_COSMOS_KEY"
)
# Characters of a user name that the log shows; clients choose the name.
_LOGGED_CHARACTERS: Final = 200


class Conversation:
    """A SCRAM login that has begun. verified: whether only the empty exchange is left, which ends it."""

    def __init__(self, scram: ScramConversation, user: UserName, skip_empty_exchange: bool) -> None:
        self.scram = scram
        self.user = user
        self.skip_empty_exchange = skip_empty_exchange
        self.verified = False


def start(op: OperationContext, mechanism: str, payload: Value, skip_empty_exchange: bool) -> Reply:
    """The reply to `saslStart`. MechanismUnavailable (334) for an unknown mechanism, AuthenticationFailed (18)."""
    op.client.conversation = None
    if mechanism == X509:
        sent = _payload_bytes("saslStart", payload)
        if len(sent) > scram.MAX_MESSAGE_BYTES:
            raise authentication_failed()
        log_in_by_certificate(op, sent.decode("utf-8", "replace"))
        return _reply(b"", True)
    features = op.service.features
    if mechanism not in scram.MECHANISMS:
        raise unavailable(mechanism)
    if features is not None and features.lacks(MECHANISM, mechanism):
        raise unavailable(mechanism, features.advice(MECHANISM, mechanism))
    user: UserName | None = None
    try:
        conversation = ScramConversation(mechanism, _payload_bytes("saslStart", payload))
        user = op.service.accounts.named(conversation.user, op.database)
        mechanisms = op.service.accounts.mechanisms(user)
        if mechanisms is not None and mechanism not in mechanisms:
            raise authentication_failed()  # `hello` shows it as well, and clients then try the other mechanism
        accounts = op.service.accounts
        second = accounts.second_credentials.get((user, mechanism))
        answer = conversation.set_first(accounts.credential(user, mechanism), second)
    except CommandError as error:
        _log(op, mechanism, user, _unknown(op, user) or "the user has no credentials for this mechanism")
        raise _explained(op, error) from None
    op.client.conversation = Conversation(conversation, user, skip_empty_exchange)
    return _reply(answer, False)


def proceed(op: OperationContext, conversation_id: Value, payload: Value) -> Reply:
    """The reply to `saslContinue`. ProtocolError (17) without a conversation, AuthenticationFailed (18).

    What a client sends in the empty exchange is not looked at, as mongod does not: the Java driver before 4.0 repeats
    there what the server has sent.
    """
    conversation = op.client.conversation
    if not isinstance(conversation, Conversation):
        raise CommandError(ErrorCode.ProtocolError, "No SASL session state found")
    if conversation_id != _CONVERSATION_ID:
        raise CommandError(ErrorCode.ProtocolError, "sasl: Mismatched conversation id")
    sent = _payload_bytes("saslContinue", payload)
    user = conversation.user
    mechanism = conversation.scram.mechanism
    try:
        if conversation.verified:
            _finish(op, user, mechanism)
            return _reply(b"", True)
        answer = conversation.scram.set_final(sent)
        conversation.verified = True
        if conversation.scram.by_second:
            user = op.service.accounts.second_users[user]
            conversation.user = user
        if conversation.skip_empty_exchange:
            _finish(op, user, mechanism)
        return _reply(answer, conversation.skip_empty_exchange)
    except CommandError as error:
        op.client.conversation = None
        reason = f"the {op.service.dialect.secret_name} is wrong"
        if conversation.verified:
            reason = "the user was dropped meanwhile, or may not log in from this address, or another one is logged in"
        _log(op, mechanism, user, _unknown(op, user) or reason)
        raise _explained(op, error) from None


def _unknown(op: OperationContext, user: UserName | None) -> str:
    """Why a user cannot log in whatever its password is, for the log alone: clients do not learn which names exist.

    Empty for a user that there is.
    """
    accounts = op.service.accounts
    if not accounts.any_user():
        return "this server has no users"
    if user is None:
        return "the message is not one of the mechanism"
    if accounts.user_record(user) is not None:
        return ""
    return op.service.dialect.unknown_user


def _explained(op: OperationContext, error: CommandError) -> CommandError:
    """The error of a login; on a server without any user it says what to do instead."""
    if error.code != ErrorCode.AuthenticationFailed or op.service.accounts.any_user():
        return error
    return CommandError(ErrorCode.AuthenticationFailed, f"{error.message} {_NO_USERS}")


def log_in_by_certificate(op: OperationContext, name: str) -> UserName:
    """Logs in the user whose name is the subject of the client's certificate; `name` must be that, or empty.

    AuthenticationFailed (18). The log never shows `name`: what a client sends there by mistake may be a password.
    """
    subject = op.client.subject
    user = UserName(name or subject, EXTERNAL)
    try:
        if not subject or not hmac.compare_digest(encode_text(user.name), encode_text(subject)):
            raise authentication_failed()
        _finish(op, user, X509)
    except CommandError:
        if subject:
            reason = "the user is not the subject of the client's certificate, or may not log in"
            _log(op, X509, UserName(subject, EXTERNAL), _unknown(op, UserName(subject, EXTERNAL)) or reason)
        else:
            _log(op, X509, None, "the client has shown no certificate")
        raise
    return user


def unavailable(mechanism: str, advice: str = "") -> CommandError:
    return CommandError(
        ErrorCode.MechanismUnavailable,
        f"Received authentication for mechanism {shortened(mechanism)} which is not enabled",
        advice=advice,
    )


def _finish(op: OperationContext, user: UserName, mechanism: str) -> None:
    """Makes the connection that of the user. AuthenticationFailed (18) if the user was dropped meanwhile or may not log
    in from this address."""
    accounts = op.service.accounts
    op.client.conversation = None
    record = accounts.user_record(user)
    if record is None or not op.compute(partial(accounts.admits, user, op.client.remote, op.client.local)):
        raise authentication_failed()
    present = op.client.login
    if present is not None and present.user != user:
        raise CommandError(
            ErrorCode.Unauthorized,
            f"Each client connection may only be authenticated once. Previously authenticated as: {present.user}",
        )
    op.client.login = Login(user, get_value(record[1], "userId"), mechanism)
    _log(op, mechanism, user)


def _log(op: OperationContext, mechanism: str, user: UserName | None, failure: str = "") -> None:
    """Counts and logs a login. failure: why it failed."""
    name = "" if user is None else str(user)[:_LOGGED_CHARACTERS]
    if mechanism in KNOWN_MECHANISMS:
        op.service.metrics.count_login(mechanism, not failure)
    op.service.hooks.log_login(op.client, mechanism, name, failure)


def _reply(payload: bytes, done: bool) -> dict[str, Value]:
    return {"conversationId": _CONVERSATION_ID, "done": done, "payload": BinData(payload)}


def _payload_bytes(command: str, payload: Value) -> bytes:
    """A message of the conversation: binary data, or a string in base64."""
    if isinstance(payload, BinData):
        return payload.data
    if isinstance(payload, str):
        if len(payload) > scram.MAX_MESSAGE_CHARACTERS:
            raise authentication_failed()
        try:
            return base64.b64decode(payload, validate=True)
        except ValueError:
            raise authentication_failed() from None
    raise wrong_type(f"{command}.payload", payload, "[string, binData]")
