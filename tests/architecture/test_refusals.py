"""Every refusal says what to do about it (`CommandError.advice`), and what it says is so."""

import ast
import re
from pathlib import Path

import pytest

from mongottl.config import COSMOS_VERSIONS, WIRE_VERSIONS
from mongottl.dialect.cosmos.account import Account, AccountSettings
from mongottl.dialect.cosmos.features import CosmosFeatures, missing_names
from mongottl.versions import INTRODUCED, Features, parse_version

PACKAGE = Path(__file__).resolve().parent.parent.parent / "mongottl"
# Where Cosmos DB's refusals are made.
PLACES = sorted((PACKAGE / "dialect" / "cosmos").rglob("*.py"))
ERRORS = ("CommandError", "WriteError", "InactiveTransaction")
# Functions that raise what MongoDB raises as well, or whose callers know what helps.
MONGODB_TOO = {"refused_command", "refused_stage", "accepted_spec", "not_authenticated"}
# Those that refuse what no account would be asked: values of this server's own commands, and names of actions.
MALFORMED = {"_checked_commands", "_wrong_value", "configure_cosmos", "custom_action"}
_OPTION = re.compile(r"--([a-z-]+) ([\w.-]*\w)")


def errors_without_advice(path: Path) -> list[tuple[str, int]]:
    """Function and line of each error that is made without an advice."""
    found = []
    for function in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS:
                has_advice = any(keyword.arg == "advice" for keyword in node.keywords)
                found += [] if has_advice else [(function.name, node.lineno)]
    return found


def test_every_refusal_has_an_advice() -> None:
    found = {path: errors_without_advice(path) for path in PLACES}
    assert {name for places in found.values() for name, _ in places} == MONGODB_TOO | MALFORMED, found
    # MongoDB, too, refuses `unique` on `_id`.
    assert len(found[PACKAGE / "dialect" / "cosmos" / "indexes.py"]) == 1


@pytest.mark.parametrize("version", COSMOS_VERSIONS)
def test_each_way_to_what_a_version_of_cosmos_db_lacks(version: str) -> None:
    features = CosmosFeatures(version, Account(version))
    names = {(kind, name) for kind, table in INTRODUCED.items() for name in table}
    names |= {(kind, name) for kind in features.kinds() for name in missing_names(kind, parse_version(version))}
    lacking = sorted((kind, name) for kind, name in names if features.lacks(kind, name))
    assert lacking
    helpless = set()
    for kind, name in lacking:
        ways = [_OPTION.findall(way) for way in features.advice(kind, name).split(", or ")]
        for way in ways:
            options = dict(way)
            other = options.get("server-version", version)
            account = Account(other)
            account.configure(AccountSettings(allow=frozenset(options.get("cosmos-allow", "").split())))
            assert CosmosFeatures(other, account).lacks(kind, name) == (not way), (kind, name, way)
        if not any(ways):
            helpless.add((kind, name))
    # What came to MongoDB later than to any version of Cosmos DB.
    latest = parse_version(COSMOS_VERSIONS[-1])
    assert helpless == {(kind, name) for kind, name in lacking if INTRODUCED.get(kind, {}).get(name, (0, 0)) > latest}


@pytest.mark.parametrize("version", list(WIRE_VERSIONS)[:-1])
def test_the_version_that_has_what_an_older_one_lacks(version: str) -> None:
    features = Features(version)
    lacking = [(kind, name) for kind, table in INTRODUCED.items() for name in table if features.lacks(kind, name)]
    assert lacking
    known = list(WIRE_VERSIONS)
    for kind, name in lacking:
        [(option, first)] = _OPTION.findall(features.advice(kind, name))
        assert option == "server-version" and not Features(first).lacks(kind, name), name
        assert Features(known[known.index(first) - 1]).lacks(kind, name), name


def test_supported_and_unknown_names_have_no_advice() -> None:
    assert CosmosFeatures("7.0", Account("7.0")).advice("stage", "$match") == ""
    assert Features("3.6").advice("stage", "$match") == ""
    assert Features("3.6").advice("stage", "$unknown") == ""
