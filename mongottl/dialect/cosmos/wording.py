"""The texts that Cosmos DB puts around the words of an error: clients compare and search them.

    Error=2, Details='Response status code does not indicate success: BadRequest (400); Substatus: 0; ActivityId: …;
    Reason: (…);

Source: errors that users of the service have reported.
"""

import uuid
from typing import Final

from mongottl.dialect.cosmos.account import Account
from mongottl.dialect.cosmos.advice import advice, allow_variant
from mongottl.errors import CommandError, ErrorCode

# How often the response of the storage is wrapped.
_LEVELS: Final = 3
# In the form of those that users have reported.
_REPLICA: Final = (
    "/apps/9e107d9d-372b-4b6b-8c0f-1d2f3a4b5c6d/services/3a7bd3e2-360a-4f3d-8e5c-7f8a9b0c1d2e/partitions/"
    "e4d909c2-90d0-4fb1-9ca0-68ffaddf22cb/replicas/133694283049277431"
)
_CLIENT: Final = (
    "RequestStats: Microsoft.Azure.Cosmos.Tracing.TraceData.ClientSideRequestStatisticsTraceDatum,"
    " SDK: Windows/10.0.20348 cosmos-netstandard-sdk/3.18.0"
)


def activity_id() -> str:
    """By which the service's support would find a request."""
    return str(uuid.uuid4())


def wrapped(code: int, reason: str, status: str = "BadRequest (400)", substatus: int = 0, hint: str = "") -> str:
    """The text of an error that Cosmos DB's storage gives to its MongoDB gateway.

    reason: the words themselves. status, substatus: of HTTP. hint: what stands after the code, with its comma.
    """
    return f"Error={code}, {hint}Details='{_failed_response(status, substatus, activity_id(), reason)}"


def storage_failure(reason: str, substatus: int = 0, is_write: bool = False) -> str:
    """The text of BadValue (2) for what the storage refuses, whose response is wrapped three times.

    reason: the words themselves. is_write: whether a primary replica answers.

    Recorded of sorts in more than 20 issues, with all of it in maryamaljanabi/bestbags-nodejs-ecommerce#27 and
    hcengineering/huly-selfhost#29, and of writes in transactions in payloadcms/payload#6820: one ActivityId in all
    levels, and no quote at the end.
    """
    status = "BadRequest (400)"
    activity = activity_id()
    replica = f"{_REPLICA}{'p' if is_write else 's'}"
    text = f'Message: {{"Errors":["{reason}"]}}\r\nActivityId: {activity}, Request URI: {replica}/, {_CLIENT}'
    for _ in range(_LEVELS):
        text = _failed_response(status, substatus, activity, text)
    return f"Error=2, Details='{text}"


def internal_error() -> str:
    """The text of InternalError (1) for what the gateway does not expect: featbit/featbit#513,
    microsoft/vscode-cosmosdb#1819."""
    return f"[ActivityId={activity_id()}] Internal error."


def hello_refused(account: Account, is_logged_in: bool) -> CommandError:
    """CommandNotSupported (115) for `hello`. The first text was reported of Spring Boot's health check, the second by
    MicrosoftDocs/azure-dev-docs#1260."""
    text = "Command hello not supported." if is_logged_in else "Command Hello not supported prior to authentication"
    return CommandError(
        ErrorCode.CommandNotSupported,
        text,
        advice=advice("Some accounts have no hello", "use isMaster", allow_variant(account, "hello")),
    )


def not_authenticated() -> str:
    """The text of Unauthorized (13) for a command without login: microsoft/vscode-cosmosdb#1170 (2019)."""
    activity = f"{activity_id()[:8]}-0000-0000-0000-000000000000"
    return f"Not Authenticated.  ConnectionId {uuid.uuid4()}  ActivityId: {activity}"


def duplicate_key(namespace: str) -> str:
    """The text of DuplicateKey (11000): it has neither the index nor the value."""
    return f"E11000 duplicate key error collection: {namespace}. Failed _id or unique index constraint."


def _failed_response(status: str, substatus: int, activity: str, reason: str) -> str:
    return (
        f"Response status code does not indicate success: {status}; Substatus: {substatus}; ActivityId: {activity}; "
        f"Reason: ({reason});"
    )


def unauthorized(command: str) -> str:
    """The text of Unauthorized (13) for what a read-only key does not allow. The reason's words are assumed."""
    return wrapped(13, f"The key does not allow {command}", "Unauthorized (401)")
