"""Requests of any length, for `test_growth`: every registered operator, stage and command with long arguments.

The registries give the names, so whatever is added to them is measured as well. Most names refuse most of the shapes;
a refusal must not take long either. Names that need arguments of a certain form to get anywhere have a template.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import bson

from mongottl.commands import COMMANDS
from mongottl.commands.request import fields_of
from mongottl.query.expr.base import EXPRESSIONS
from mongottl.query.match.registry import match_operators, root_operators
from mongottl.query.pipeline.accumulators import ACCUMULATORS
from mongottl.query.pipeline.stage import STAGES
from mongottl.query.pipeline.window.function import WINDOW_FUNCTIONS
from mongottl.query.update.registry import modifiers

Document = dict[str, Any]
Shape = Callable[[int], Any]
Case = Callable[[int], Document]


def names(n: int, prefix: str = "f") -> list[str]:
    """n names of equal length, unsorted."""
    return [f"{prefix}{i * 7919 % 99991:05d}" for i in range(n)]


def members(n: int, value: Any = 1) -> Document:
    return dict.fromkeys(names(n), value)


SHAPES: Final[dict[str, Shape]] = {
    "numbers": lambda n: [i * 7919 % 99991 for i in range(n)],
    "strings": names,
    "paths": lambda n: ["$" + name for name in names(n)],
    "documents": lambda n: [{"x": {"$gt": i * 7919 % 99991}} for i in range(n)],
    "fields": lambda n: [{name: 1} for name in names(n)],
    "constants": lambda n: [[{"k": name, "v": 1} for name in names(n)]],
    "members": members,
    "computed": lambda n: members(n, "$a"),
    "nested": lambda n: members(n, {"$sum": "$a"}),
}


def find(filter: Document, **options: Any) -> Document:
    return {"find": "c", "filter": filter, **options}


def aggregate(*stages: Document) -> Document:
    return {"aggregate": "c", "pipeline": list(stages), "cursor": {}}


def update(u: Any, **options: Any) -> Document:
    return {"update": "c", "updates": [{"q": {"_id": 0}, "u": u, **options}]}


def built(**options: Any) -> Document:
    return {"createIndexes": "c", "indexes": [{"key": {"z": 1}, "name": "z", **options}]}


def registered(kind: str) -> Iterator[tuple[str, Case]]:
    """Each registered name of a kind (see KINDS) with the shapes that get furthest with it."""
    operators, wrap, shapes = KINDS[kind]
    for name in operators():
        for shape in shapes:
            yield f"{name} of {shape}", _wrapped(wrap, name, SHAPES[shape])


def commands() -> Iterator[tuple[str, bool, Case]]:
    """Each field of each command; with whether the command writes."""
    for name, spec in COMMANDS.items():
        for field in fields_of(spec.request):
            for shape in ("documents", "members"):
                yield f"{name}.{field.name} of {shape}", spec.writes, _command(name, field.name, SHAPES[shape])


def _wrapped(wrap: Callable[[str, Any], Document], name: str, shape: Shape) -> Case:
    return lambda n: wrap(name, shape(n))


def _command(name: str, field: str, shape: Shape) -> Case:
    return lambda n: {name: "c", **MINIMUM.get(name, {}), field: shape(n)}


# What a command needs besides the field that is long.
MINIMUM: Final[dict[str, Document]] = {
    "aggregate": {"pipeline": [], "cursor": {}},
    "bulkWrite": {"ops": [{"insert": 0, "document": {}}], "nsInfo": [{"ns": "test.c"}]},
    "createIndexes": {"indexes": [{"key": {"z": 1}, "name": "z"}]},
    "delete": {"deletes": [{"q": {"a": 1}, "limit": 1}]},
    "distinct": {"key": "a"},
    "findAndModify": {"update": {"$set": {"z": 1}}},
    "insert": {"documents": [{}]},
    "update": {"updates": [{"q": {"a": 1}, "u": {"$set": {"z": 1}}}]},
}

VALUES: Final = ("numbers", "documents", "members")
COMPUTED: Final = ("paths", "computed")
# By kind: the names, the request that has one of them with a long argument, and the shapes of the argument.
KINDS: Final[dict[str, tuple[Callable[[], list[str]], Callable[[str, Any], Document], tuple[str, ...]]]] = {
    "match": (match_operators.names, lambda name, long: find({"a": {name: long}}), VALUES),
    "root": (root_operators.names, lambda name, long: find({name: long}), VALUES),
    "expression": (
        EXPRESSIONS.names,
        lambda name, long: aggregate({"$project": {"x": {name: long}}}),
        ("paths", "constants"),
    ),
    "stage": (STAGES.names, lambda name, long: aggregate({name: long}), tuple(SHAPES)),
    "accumulator": (
        ACCUMULATORS.names,
        lambda name, long: aggregate({"$group": {"_id": 1, "x": {name: long}}}),
        COMPUTED,
    ),
    "window function": (
        WINDOW_FUNCTIONS.names,
        lambda name, long: aggregate({"$setWindowFields": {"sortBy": {"a": 1}, "output": {"x": {name: long}}}}),
        COMPUTED,
    ),
    "modifier of one path": (modifiers.names, lambda name, long: update({name: {"z": long}}), VALUES),
    "modifier of many paths": (modifiers.names, lambda name, long: update({name: long}), ("members", "nested")),
}


def _switch(n: int) -> Document:
    branches = [{"case": {"$eq": ["$a", i]}, "then": 1} for i in range(n)]
    return aggregate({"$project": {"x": {"$switch": {"branches": branches, "default": 1}}}})


def _schema(schema: Document) -> Document:
    return find({"$jsonSchema": schema})


def _window(output: Document) -> Document:
    return aggregate({"$setWindowFields": {"sortBy": {"a": 1}, "output": output}})


# Arguments that the generic shapes do not reach.
TEMPLATES: Final[dict[str, Case]] = {
    "filter of many paths": lambda n: find(members(n)),
    "filter of descending equalities": lambda n: find({"$or": [{"a": n - i} for i in range(n)]}),
    "filter of descending ranges": lambda n: find({"$or": [{"a": {"$gt": n - i}} for i in range(n)]}),
    "filter of branches on two paths": lambda n: find({"$or": [{"a": n - i, "b": i} for i in range(n)]}),
    "filter of sorted branches": lambda n: find({"$or": [{"a": n - i, "b": i} for i in range(n)]}, sort={"b": 1}),
    "filter of many $or": lambda n: find({"$and": [{"$or": [{"a": i}, {"b": i}]} for i in range(n)]}),
    "filter of one $or and much beside": lambda n: find(
        {"$or": [{"a": i, "b": i} for i in range(n)], "$and": [{"a": {"$gt": -i}} for i in range(n)]}
    ),
    "filter of many ranges": lambda n: find({"$and": [{"a": {"$gt": i}} for i in range(n)]}),
    "filter of many $ne": lambda n: find({"$and": [{"a": {"$ne": i}} for i in range(n)]}),
    "$in of regular expressions": lambda n: find({"a": {"$in": [bson.Regex(f"^{name}") for name in names(n)]}}),
    "$nin of regular expressions": lambda n: find({"a": {"$nin": [bson.Regex(f"^{name}") for name in names(n)]}}),
    "$in with a partial index": lambda n: find({"p": {"$in": list(range(1, n))}}),
    "$all of $elemMatch": lambda n: find({"a": {"$all": [{"$elemMatch": {"x": i}} for i in range(n)]}}),
    "$expr of many": lambda n: find({"$expr": {"$and": [{"$eq": ["$a", i]} for i in range(n)]}}),
    "paths of a wildcard index": lambda n: {"find": "w", "filter": members(n, {"$gt": 0})},
    "$jsonSchema properties": lambda n: _schema({"properties": members(n, {"type": "string"})}),
    "$jsonSchema required": lambda n: _schema({"required": names(n)}),
    "$jsonSchema enum": lambda n: _schema({"properties": {"a": {"enum": names(n)}}}),
    "$jsonSchema anyOf": lambda n: _schema({"anyOf": [{"required": [name]} for name in names(n)]}),
    "$jsonSchema items": lambda n: _schema({"properties": {"a": {"items": [{"type": "string"}] * n}}}),
    "$jsonSchema dependencies": lambda n: _schema({"dependencies": members(n, ["a"])}),
    "$jsonSchema patternProperties": lambda n: _schema(
        {"patternProperties": members(n, {"type": "string"}), "additionalProperties": False}
    ),
    "projection": lambda n: find({}, projection=members(n)),
    "projection that excludes": lambda n: find({}, projection=members(n, 0)),
    "projection of nested fields": lambda n: find({}, projection={f"a.{name}": 1 for name in names(n)}),
    "projection of computed fields": lambda n: find({}, projection=members(n, {"$add": [1, "$a"]})),
    "projection by $slice": lambda n: find({}, projection=members(n, {"$slice": 2})),
    "projection by $slice of nested fields": lambda n: find(
        {}, projection={f"list.{name}": {"$slice": 2} for name in names(n)}
    ),
    "projection by $elemMatch": lambda n: find({}, projection=members(n, {"$elemMatch": {"x": 1}})),
    "$setWindowFields": lambda n: _window(members(n, {"$sum": 1})),
    "$setWindowFields of nested fields": lambda n: _window({f"x.{name}": {"$sum": 1} for name in names(n)}),
    "$fill": lambda n: aggregate({"$fill": {"sortBy": {"a": 1}, "output": members(n, {"value": 1})}}),
    "$fill by locf": lambda n: aggregate({"$fill": {"sortBy": {"a": 1}, "output": members(n, {"method": "locf"})}}),
    "$group": lambda n: aggregate({"$group": {"_id": members(n, "$a"), **members(n, {"$sum": 1})}}),
    "$bucket": lambda n: aggregate({"$bucket": {"groupBy": "$a", "boundaries": list(range(n)), "default": -1}}),
    "$bucketAuto": lambda n: aggregate(
        {"$bucketAuto": {"groupBy": "$a", "buckets": 2, "output": members(n, {"$sum": 1})}}
    ),
    "$lookup with let": lambda n: aggregate(
        {"$lookup": {"from": "w", "let": members(n, "$a"), "pipeline": [], "as": "x"}}
    ),
    "$lookup filtered behind": lambda n: aggregate(
        {"$lookup": {"from": "w", "localField": "a", "foreignField": "a", "as": "x"}},
        {"$unwind": "$x"},
        {"$match": {f"x.{name}": 1 for name in names(n)}},
    ),
    "$unionWith filtered behind": lambda n: aggregate({"$unionWith": "w"}, {"$match": members(n)}),
    "$merge with let": lambda n: aggregate(
        {"$merge": {"into": "o", "let": members(n, "$a"), "whenMatched": [{"$set": {"a": 1}}]}}
    ),
    "$let": lambda n: aggregate({"$project": {"x": {"$let": {"vars": members(n), "in": 1}}}}),
    "$switch": _switch,
    "many stages of one kind": lambda n: aggregate(*[{"$match": {"a": i}} for i in range(n)]),
    "filter behind a projection": lambda n: aggregate({"$project": members(n)}, {"$match": members(n, 2)}),
    "filter behind computed fields": lambda n: aggregate({"$addFields": members(n, "$a")}, {"$match": members(n, 2)}),
    "filter behind left out fields": lambda n: aggregate({"$unset": names(n)}, {"$match": members(n, 2)}),
    "update of many fields": lambda n: update({"$set": members(n)}),
    "update of array elements": lambda n: update(
        {"$set": {f"list.$[{name}].z": 1 for name in names(n)}},
        arrayFilters=[{f"{name}.x": {"$gte": i}} for i, name in enumerate(names(n))],
    ),
    "renames": lambda n: update({"$rename": dict(zip(names(n), names(n, "g"), strict=True))}),
    "upsert of many fields": lambda n: {
        "update": "c",
        "updates": [{"q": members(n, n), "u": {"$set": {"zz": 1}}, "upsert": True}],
    },
    "$push with $each": lambda n: update({"$push": {"list": {"$each": list(range(n)), "$sort": -1}}}),
    "$addToSet with $each": lambda n: update({"$addToSet": {"list": {"$each": list(range(n))}}}),
    "many updates": lambda n: {
        "update": "c",
        "updates": [{"q": {"_id": i}, "u": {"$set": {"z": 1}}} for i in range(n)],
    },
    "many deletes": lambda n: {"delete": "c", "deletes": [{"q": {"_id": -i}, "limit": 1} for i in range(n)]},
    "many inserts": lambda n: {"insert": "c", "documents": [{"a": i} for i in range(n)]},
    "insert of a wide document": lambda n: {"insert": "w", "documents": [members(n)]},
    "bulkWrite": lambda n: {
        "bulkWrite": 1,
        "ops": [{"insert": i, "document": {}} for i in range(n)],
        "nsInfo": [{"ns": f"test.{name}"} for name in names(min(n, 50))] + [{"ns": "test.c"}] * max(0, n - 50),
    },
    "many indexes": lambda n: {
        "createIndexes": "c",
        "indexes": [{"key": {name: 1}, "name": name} for name in names(n)],
    },
    "index on many fields": lambda n: built(key=members(n)),
    "wildcardProjection": lambda n: built(key={"$**": 1}, wildcardProjection=members(n)),
    "weights": lambda n: built(key={"z": "text"}, weights=members(n)),
    "partialFilterExpression": lambda n: built(partialFilterExpression=members(n)),
    "validator": lambda n: {"collMod": "c", "validator": members(n)},
    "$documents": lambda n: {"aggregate": 1, "pipeline": [{"$documents": [{"a": 1}] * n}], "cursor": {}},
    "$geoWithin": lambda n: find({"g": {"$geoWithin": {"$polygon": [[i, i * i % 97] for i in range(n)]}}}),
    "explain": lambda n: {"explain": find({"$or": [{"a": n - i, "b": i} for i in range(n)]})},
}
