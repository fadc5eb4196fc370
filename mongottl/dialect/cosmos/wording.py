"""The texts that Cosmos DB puts around the words of an error: clients compare and search them.

    Error=2, Details='Response status code does not indicate success: BadRequest (400); Substatus: 0; ActivityId: …;
    Reason: (…);'

Source: errors that users of the service have reported.
"""

import uuid


def activity_id() -> str:
    """By which the service's support would find a request."""
    return str(uuid.uuid4())


def wrapped(code: int, reason: str, status: str = "BadRequest (400)", substatus: int = 0, hint: str = "") -> str:
    """The text of an error that Cosmos DB's storage gives to its MongoDB gateway.

    reason: the words themselves. status, substatus: of HTTP. hint: what stands behind the code, with its comma.
    """
    return f"Error={code}, {hint}Details='{_failed_response(status, substatus, activity_id(), reason)}"


def query_failure(reason: str) -> str:
    """The text of BadValue (2) for a query that the storage refuses: the response is wrapped twice."""
    status = "BadRequest (400)"
    activity = activity_id()
    message = f'Message: {{"Errors":["{reason}"]}}\r\nActivityId: {activity}'
    return wrapped(2, _failed_response(status, 0, activity, message), status) + "'"


def duplicate_key(namespace: str) -> str:
    """The text of DuplicateKey (11000): it tells neither the index nor the value."""
    return f"E11000 duplicate key error collection: {namespace}. Failed _id or unique index constraint."


def _failed_response(status: str, substatus: int, activity: str, reason: str) -> str:
    return (
        f"Response status code does not indicate success: {status}; Substatus: {substatus}; ActivityId: {activity}; "
        f"Reason: ({reason});"
    )


def unauthorized(command: str) -> str:
    """The text of Unauthorized (13) for what a read-only key does not allow. The reason's words are assumed."""
    return wrapped(13, f"The key does not allow {command}", "Unauthorized (401)")
