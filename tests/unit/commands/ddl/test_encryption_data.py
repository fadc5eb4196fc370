"""compactStructuredEncryptionData and cleanupStructuredEncryptionData: their checks; there is nothing to compact."""

from typing import Any

import pytest
from bson import Binary

from tests.running import Running

COMMANDS = [
    ("compactStructuredEncryptionData", "compactionTokens"),
    ("cleanupStructuredEncryptionData", "cleanupTokens"),
]


@pytest.fixture
def running() -> Running:
    running = Running()
    paths = {"a": 1, "b.c": 2}
    fields = [{"path": path, "keyId": Binary(bytes([key]) * 16, 4)} for path, key in paths.items()]
    running.run({"create": "encrypted", "encryptedFields": {"fields": fields}})
    running.run({"create": "plain"})
    running.run({"create": "view", "viewOn": "encrypted"})
    return running


@pytest.mark.parametrize(("name", "tokens"), COMMANDS)
def test_an_encrypted_collection(running: Running, name: str, tokens: str) -> None:
    reply = running.run({name: "encrypted", tokens: {"a": None, "b.c": {"x": 1}, "other": 1}})
    assert reply["stats"]["ecoc"] == {"read": 0, "deleted": 0}
    assert reply["stats"]["esc"] == {"read": 0, "inserted": 0, "updated": 0, "deleted": 0}


@pytest.mark.parametrize(("name", "tokens"), COMMANDS)
@pytest.mark.parametrize(
    ("collection", "given", "code"),
    [
        ("encrypted", {}, 7294900),
        ("encrypted", {"a": 1, "b": {"c": 1}}, 7294900),
        ("encrypted", None, 40414),
        ("encrypted", [], 14),
        ("plain", {}, 6346807),
        ("view", {}, 166),
        ("absent", {}, 26),
        ("$absent", {}, 26),
        ("system.buckets.absent", {}, 26),
        ("", {}, 73),
        (1, {}, 73),
    ],
)
def test_refusals(running: Running, name: str, tokens: str, collection: Any, given: Any, code: int) -> None:
    assert running.code({name: collection, tokens: given}) == code
    assert running.code({name: collection, tokens: {}, "other": 1}) in (40415, 73)
