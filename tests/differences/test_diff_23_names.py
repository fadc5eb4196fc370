"""Names of databases and collections must be UTF-8.

No page and no test of MongoDB's that is known says what it does with others. Drivers decode lists of names as UTF-8, so
a name that is not would make a client unable to list the collections beside it.
"""

from contextlib import closing
from typing import Any

import pytest
from pymongo.database import Database

import mongottl
from mongottl.document.utf8 import decode_text
from mongottl.errors import ErrorCode
from tests.drivers.wire_client import AnyTextClient

BAD = decode_text(b"\xff")


@pytest.mark.parametrize("command", [{"create": BAD}, {"insert": BAD, "documents": [{}]}, {"find": BAD}], ids=list)
def test_a_collection_name_that_is_no_utf_8_is_refused(
    server: mongottl.RunningServer, database: Database[dict[str, Any]], command: dict[str, Any]
) -> None:
    with closing(AnyTextClient(server.uri)) as client:
        assert client.refusal(command, database.name)[0] == ErrorCode.InvalidNamespace
    assert database.list_collection_names() == []
