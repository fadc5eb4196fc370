"""Each module of the query language that registers a name is imported with its package, and declares all that others
have to know of the name.

Another test imports every module there is, and so would hide that a module is never imported at run time.
"""

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bson
import pytest

from mongottl.document.types import BSON_TYPES, type_name
from mongottl.query.context import ParseContext
from mongottl.query.expr.base import collated_expression, expression, expression_parser, unary_expression
from mongottl.query.match import parse_match
from mongottl.query.match.registry import match_operator, match_operators, root_operator, root_operators
from mongottl.query.match.tree import (
    LAST,
    ListExpression,
    MatchExpression,
    NotExpression,
    PathExpression,
    describe_operand,
    leaf_order,
)
from mongottl.query.pipeline.accumulators import accumulator
from mongottl.query.pipeline.stage import stage
from mongottl.query.pipeline.window.function import window_function
from mongottl.query.update.registry import modifier
from mongottl.versions import OLDEST

QUERY = Path(__file__).resolve().parent.parent.parent / "mongottl" / "query"
PACKAGES = ("match", "expr", "update", "pipeline")


def registers(source: str) -> bool:
    """Whether a decorator such as `@stage("$match", …)` is on a function or class of this module."""
    for node in ast.walk(ast.parse(source)):
        for decorator in getattr(node, "decorator_list", ()):
            for argument in getattr(decorator, "args", ()):
                if isinstance(argument, ast.Constant) and str(argument.value).startswith("$"):
                    return True
    return False


def test_modules_that_register_are_found() -> None:
    assert registers('@match_operator("$size")\ndef parse_size() -> None: ...')
    assert not registers("@cache\ndef parse_size(name: str) -> None: ...")


def test_packages_import_what_registers_names() -> None:
    registering = {
        ".".join(("mongottl.query", *path.relative_to(QUERY).with_suffix("").parts))
        for path in QUERY.rglob("*.py")
        if registers(path.read_text(encoding="utf-8"))
    }
    assert len(registering) > 40
    for package in PACKAGES:
        program = f"import sys, mongottl.query.{package}; print(*sys.modules)"
        loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        missing = {name for name in registering if name.startswith(f"mongottl.query.{package}.")} - set(loaded.split())
        assert not missing, f"mongottl/query/{package}/__init__.py does not import {missing}"


SINCE = {"since": OLDEST}
REASONS = ("did not match", "did match")
# By decorator: all that has to be declared of a name.
DECLARED: dict[Callable[..., Any], dict[str, Any]] = {
    match_operator: {"order": LAST, "reasons": REASONS, "types": (), **SINCE},
    root_operator: {"reasons": REASONS, **SINCE},
    expression: SINCE,
    collated_expression: {"minimum": 1, **SINCE},
    unary_expression: SINCE,
    expression_parser: SINCE,
    modifier: SINCE,
    accumulator: SINCE,
    window_function: SINCE,
    stage: SINCE,
}


@pytest.mark.parametrize(
    ("decorator", "missing"), [(decorator, name) for decorator, declared in DECLARED.items() for name in declared]
)
def test_an_incomplete_declaration_ends_the_import_of_its_module(decorator: Callable[..., Any], missing: str) -> None:
    declared = DECLARED[decorator]
    decorator("$new", **declared)
    with pytest.raises(TypeError, match=missing):
        decorator("$new", **{name: value for name, value in declared.items() if name != missing})


def test_no_two_operators_have_the_same_place() -> None:
    places = [place for place in leaf_order.values() if place != LAST]
    assert len(places) == len(set(places))
    assert max(places) < LAST


def test_operators_are_of_types() -> None:
    known = {type_name(code) for code in BSON_TYPES}
    for name in match_operators.names():
        declared = match_operators.get(name)
        assert declared is not None
        assert known.issuperset(declared.types), name


def test_reasons_are_words() -> None:
    for registry in (match_operators, root_operators):
        for name in registry.names():
            declared = registry.get(name)
            assert declared is not None
            assert declared.reasons is None or all(reason.strip() for reason in declared.reasons), name


POINT = {"$geometry": {"type": "Point", "coordinates": [0, 0]}}
BOX = {"$box": [[0, 0], [1, 1]]}
NUMBERS = [1, 2]
# An operand of each operator on a field: by them a test asks which leaves it is parsed into.
OPERANDS: dict[str, Any] = {
    **dict.fromkeys(("$eq", "$gt", "$gte", "$lt", "$lte", "$ne", "$size", "$bitsAllSet", "$bitsAllClear"), 1),
    **dict.fromkeys(("$bitsAnySet", "$bitsAnyClear", "$exists"), 1),
    **dict.fromkeys(("$in", "$nin", "$all"), NUMBERS),
    **dict.fromkeys(("$near", "$nearSphere", "$geoNear", "$geoIntersects"), POINT),
    **dict.fromkeys(("$geoWithin", "$within"), BOX),
    "$elemMatch": {"$gt": 1},
    "$mod": [2, 1],
    "$not": {"$gt": 1},
    "$regex": "a",
    "$type": "int",
}
# Only beside another operator: their leaves are those of the other.
BESIDE = {
    "$options": {"$regex": "a", "$options": "i"},
    "$maxDistance": {"$near": [0, 0], "$maxDistance": 1},
    "$minDistance": {"$near": [0, 0], "$minDistance": 1},
}


def operators_of_leaves(tree: MatchExpression) -> Iterator[str]:
    """The operators by which the leaves of a tree are sorted."""
    if isinstance(tree, ListExpression):
        for child in tree.children:
            yield from operators_of_leaves(child)
    elif isinstance(tree, NotExpression):
        yield from operators_of_leaves(tree.child)
    elif isinstance(tree, PathExpression):
        yield next(iter(describe_operand(tree)))


def test_operators_with_leaves_of_their_own_declare_their_place() -> None:
    """The names that fail need an operand in OPERANDS, or another `order`."""
    assert (OPERANDS.keys() | BESIDE.keys()) ^ set(match_operators.names()) == set()
    found: set[str] = set()
    for name in match_operators.names():
        condition = BESIDE.get(name) or {name: OPERANDS[name]}
        tree = parse_match(bson.encode({"a": condition}), ParseContext(0), near=True)
        found.update(operators_of_leaves(tree))
    assert found ^ set(leaf_order) == set()


def leaves(base: type[PathExpression]) -> Iterator[type[PathExpression]]:
    for leaf in base.__subclasses__():
        yield leaf
        yield from leaves(leaf)


def test_leaves_with_ranges_say_on_which_collations_these_depend() -> None:
    """A range of texts without its collation would be read from indexes of any collation."""
    with_ranges = {leaf for leaf in leaves(PathExpression) if "intervals" in vars(leaf)}
    assert len(with_ranges) > 8
    assert {leaf.__name__ for leaf in with_ranges if "add_text_orders" not in vars(leaf)} == set()


@pytest.mark.parametrize(
    "declaration",
    ["@expression(", "@match_operator`", "@modifier(", "@stage(", "@command(", "@storage_engine(", "@dialect("],
)
def test_the_page_says_how_to_add_to_each_registry(declaration: str) -> None:
    page = (QUERY.parent.parent / "docs" / "building.md").read_text(encoding="utf-8")
    assert declaration in page.partition("## How to add to it")[2].partition("## Tests")[0]
