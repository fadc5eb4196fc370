"""Encrypted collections take no encrypted writes.

MongoDB's drivers send `encryptionInformation` with what they encrypt automatically. Source: MongoDB manual, "Queryable
Encryption".
"""

from typing import Any

import pymongo.errors
import pytest
from bson import Binary
from pymongo.database import Database


def test_an_encrypted_write_is_refused(database: Database[dict[str, Any]]) -> None:
    described = {"path": "ssn", "bsonType": "string", "keyId": Binary(bytes(16), 4)}
    database.command({"create": "c", "encryptedFields": {"fields": [described]}})
    assert next(iter(database.list_collections()))["options"]["encryptedFields"] == {"fields": [described]}
    database.c.insert_one({"ssn": Binary(b"\x10", 6)})
    with pytest.raises(pymongo.errors.WriteError) as refused:
        database.c.insert_one({"ssn": "123-45-6789"})
    assert refused.value.code == 121
    with pytest.raises(pymongo.errors.OperationFailure) as unsupported:
        database.command(
            {"insert": "c", "documents": [{}], "encryptionInformation": {"type": 1, "schema": {"differences.c": {}}}}
        )
    assert unsupported.value.code == 115
