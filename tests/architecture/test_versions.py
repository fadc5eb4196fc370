"""The tables of what each version of MongoDB introduced name what the registries have."""

from typing import Any

import bson
import pytest

from mongottl import errors
from mongottl.commands import COMMANDS, UNSUPPORTED_COMMANDS
from mongottl.commands.request import fields_of
from mongottl.commands.security.login import KNOWN_MECHANISMS
from mongottl.config import LATEST_VERSION, NEWEST_PATCHES, WIRE_VERSIONS
from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.expr.base import EXPRESSIONS
from mongottl.query.match.registry import match_operators, root_operators
from mongottl.query.pipeline import ACCUMULATORS, STAGES
from mongottl.query.pipeline.window.function import WINDOW_FUNCTIONS
from mongottl.query.registry import Registry
from mongottl.query.update.driver import parse_update
from mongottl.query.update.registry import modifiers
from mongottl.versions import (
    _TABLES,
    COMMAND,
    COMPOUND_HASHED,
    COMPRESSOR,
    ERROR_LABEL,
    EVENT_FIELD,
    HELLO_FIELD,
    INTRODUCED,
    MECHANISM,
    OLDEST,
    OPTION,
    REPLY_FIELD,
    SYNTAX,
    VARIABLE,
    Features,
    features_of,
)
from mongottl.wire.compression import COMPRESSOR_NAMES

REGISTRIES: tuple[Registry[Any], ...] = (
    STAGES,
    EXPRESSIONS,
    ACCUMULATORS,
    WINDOW_FUNCTIONS,
    match_operators,
    root_operators,
    modifiers,
)


def test_every_table_is_of_a_registry() -> None:
    assert set(INTRODUCED) <= {
        COMMAND,
        COMPRESSOR,
        ERROR_LABEL,
        EVENT_FIELD,
        HELLO_FIELD,
        MECHANISM,
        OPTION,
        REPLY_FIELD,
        SYNTAX,
        VARIABLE,
        *(registry.kind for registry in REGISTRIES),
    }


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
def test_operators_declare_their_versions(registry: Registry[Any]) -> None:
    """Not in a table of `versions`, and each of them: a decorator without `since` raises a TypeError."""
    assert registry.kind not in _TABLES
    assert set(INTRODUCED[registry.kind]) <= {*registry.names(), *registry.unsupported_names()}
    assert all(registry.since(name) == since for name, since in INTRODUCED[registry.kind].items())


def test_tables_name_commands_and_their_fields() -> None:
    assert set(INTRODUCED[COMMAND]) <= set(COMMANDS) | UNSUPPORTED_COMMANDS
    for path in INTRODUCED[OPTION]:
        owner, _, option = path.partition(".")
        if owner in COMMANDS and "." not in option and option != "comment":
            assert option in {field.name for field in fields_of(COMMANDS[owner].request)}, path
        elif option:
            assert owner in COMMANDS or STAGES.known(owner) is not None or EXPRESSIONS.known(owner) is not None, path


def test_tables_name_what_drivers_decide_by() -> None:
    labels = {value for name, value in vars(errors).items() if name.endswith("_LABEL")}
    assert set(INTRODUCED[ERROR_LABEL]) == labels
    assert set(INTRODUCED[MECHANISM]) <= set(KNOWN_MECHANISMS)
    assert set(INTRODUCED[COMPRESSOR]) <= set(COMPRESSOR_NAMES)
    # What hello has in which version is held against a table of its own:
    # tests/drivers/protocol/test_announced_version.py.
    assert set(WIRE_VERSIONS) == set(NEWEST_PATCHES)


def test_specs_tell_their_version() -> None:
    assert COMMANDS["bulkWrite"].since == (8, 0)
    assert COMMANDS["find"].since == OLDEST
    assert STAGES.since("$fill") == (5, 3)


def test_versions_are_between_those_that_can_be_announced() -> None:
    oldest, latest = Features("3.6").version, Features(LATEST_VERSION).version
    assert oldest == OLDEST
    assert max(Features(version).version for version in WIRE_VERSIONS) == latest
    for names in INTRODUCED.values():
        assert all(oldest < introduced <= latest for introduced in names.values())


@pytest.mark.parametrize("kind", _TABLES)
def test_no_name_is_in_two_versions(kind: str) -> None:
    names = [name for table in _TABLES[kind].values() for name in table.split()]
    assert len(names) == len(set(names))


def test_the_latest_version_has_everything() -> None:
    assert features_of(LATEST_VERSION, LATEST_VERSION) is None
    assert not any(Features(LATEST_VERSION).lacks(kind, name) for kind, names in INTRODUCED.items() for name in names)


def test_old_versions_lack_later_names() -> None:
    old = Features("3.6")
    assert old.lacks(COMMAND, "commitTransaction")
    assert old.lacks("expression", "$convert")
    assert not old.lacks("expression", "$dateFromString")
    assert Features("4.2").lacks("stage", "$unionWith")
    assert not Features("4.4").lacks("stage", "$unionWith")
    statements = [bson.encode({"q": {}, "u": {}, "hint": "_id_"})]
    assert (
        old.missing_argument("update", bson.encode({"update": "c"}), [("updates", statements)]) == "update.updates.hint"
    )
    body = bson.encode({"update": "c", "updates": [{"q": {}, "u": {}, "c": {}}]})
    assert Features("4.4").missing_argument("update", body, []) == "update.updates.c"
    assert Features("5.0").missing_argument("update", body, []) == ""
    body = bson.encode({"find": "c", "lsid": {}, "apiVersion": "1"})
    assert Features("4.4").missing_argument("find", body, []) == "find.apiVersion"
    assert old.missing_option("$dateToString", bson.encode({"date": 1, "onNull": 1})) == "$dateToString.onNull"
    assert not Features("4.4").lacks(SYNTAX, COMPOUND_HASHED)
    with pytest.raises(CommandError):
        parse_update([bson.encode({"$set": {"a": 1}})], ParseContext(features=Features("4.0")))
    parse_update([bson.encode({"$set": {"a": 1}})], ParseContext(features=Features("4.2")))
