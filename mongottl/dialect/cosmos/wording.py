"""The texts that Cosmos DB puts around the words of an error: clients compare and search them.

    Error=2, Details='Response status code does not indicate success: BadRequest (400); Substatus: 0; ActivityId: …;
    Reason: (…);'

Source: errors that users of the service have reported.
"""

import uuid


def wrapped(code: int, reason: str, status: str = "BadRequest (400)", substatus: int = 0, hint: str = "") -> str:
    """The text of an error that Cosmos DB's storage gives to its MongoDB gateway.

    reason: the words themselves. status, substatus: of HTTP. hint: what stands behind the code, with its comma.
    """
    activity = uuid.uuid4()
    return (
        f"Error={code}, {hint}Details='Response status code does not indicate success: {status}; "
        f"Substatus: {substatus}; ActivityId: {activity}; Reason: ({reason});"
    )


def query_failure(reason: str) -> str:
    """The text of BadValue (2) for a query that the storage refuses."""
    return wrapped(2, f'Message: {{"Errors":["{reason}"]}}')
