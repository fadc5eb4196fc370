"""The tables of what each version of Cosmos DB has place every name of the registries, once."""

from typing import Any

import pytest

from mongottl.commands import COMMANDS, UNSUPPORTED_COMMANDS
from mongottl.commands.request import fields_of
from mongottl.config import WIRE_VERSIONS
from mongottl.dialect.cosmos.account import Account, AccountSettings
from mongottl.dialect.cosmos.features import MISSING_FEATURES, REFUSED_FIELDS, CosmosFeatures, missing_names, placed
from mongottl.query.expr.base import EXPRESSIONS
from mongottl.query.expr.path import SYSTEM_VARIABLES
from mongottl.query.match.registry import match_operators, root_operators
from mongottl.query.pipeline import ACCUMULATORS, STAGES
from mongottl.query.pipeline.window.function import WINDOW_FUNCTIONS
from mongottl.query.registry import Registry
from mongottl.query.update.registry import modifiers
from mongottl.versions import COMMAND, GEO_SHAPE, VARIABLE, Features, parse_version

REGISTRIES: tuple[Registry[Any], ...] = (
    STAGES,
    EXPRESSIONS,
    ACCUMULATORS,
    WINDOW_FUNCTIONS,
    match_operators,
    root_operators,
    modifiers,
)
# Commands that MongoDB, too, has removed.
REMOVED = {"copydb", "eval", "getPrevError", "parallelCollectionScan", "resetError"}
KINDS = [COMMAND, GEO_SHAPE, VARIABLE, *(registry.kind for registry in REGISTRIES)]


def test_every_table_is_of_a_registry() -> None:
    assert set(CosmosFeatures.kinds()) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_no_name_is_placed_twice(kind: str) -> None:
    names = placed(kind)
    assert len(names) == len(set(names))


def test_every_command_is_placed() -> None:
    """A new command has to be: in the versions of Cosmos DB that have it, or among those that it never has."""
    known = {spec.name for spec in COMMANDS.values() if not spec.test_only} | UNSUPPORTED_COMMANDS
    assert known <= set(placed(COMMAND))
    assert set(placed(COMMAND)) - known <= REMOVED


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
def test_every_operator_is_placed(registry: Registry[Any]) -> None:
    names = {*registry.names(), *registry.unsupported_names(), *registry.removed_names()}
    assert set(placed(registry.kind)) == names


def test_every_variable_is_placed() -> None:
    assert set(placed(VARIABLE)) >= SYSTEM_VARIABLES


def test_refused_fields_are_fields() -> None:
    for owner, names in REFUSED_FIELDS.items():
        assert names
        command, _, field = owner.partition(".")
        if command in COMMANDS:
            known = {each.name for each in fields_of(COMMANDS[command].request)}
            assert field in known if field else set(names) <= known
        else:
            assert STAGES.known(owner) is not None


def test_cosmos_has_nothing_before_mongodb() -> None:
    for version in WIRE_VERSIONS:
        features, mongodb = CosmosFeatures(version, Account(version)), Features(version)
        for kind in KINDS:
            missing = missing_names(kind, parse_version(version))
            assert all(features.lacks(kind, name) for name in missing)
            assert not [name for name in placed(kind) if mongodb.lacks(kind, name) and name not in missing]


def test_the_refusal_can_be_switched_off() -> None:
    account = Account("7.0")
    features = CosmosFeatures("7.0", account)
    assert features.lacks("stage", "$bucket")
    account.configure(AccountSettings(allow=frozenset([MISSING_FEATURES])))
    assert not features.lacks("stage", "$bucket")
    assert features.lacks("stage", "$listClusterCatalog")
