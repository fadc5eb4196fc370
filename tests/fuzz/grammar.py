"""Commands drawn at random from what the registries and the request classes declare.

Every command, stage, expression, accumulator, window function, query operator and update modifier is taken from its
registry; the fields of commands and their kinds from the request classes. What a field holds follows from its name
where that says it (`filter`, `pipeline`, `collation`); else from its kind; and now and then from neither.
"""

from collections.abc import Callable
from typing import Any, Final

from bson import Int64

import mongottl.query.expr
import mongottl.query.match
import mongottl.query.pipeline
import mongottl.query.update  # noqa: F401  these four fill the registries
from mongottl.commands import COMMANDS
from mongottl.commands import request as kinds
from mongottl.commands.request import Field, fields_of
from mongottl.query.expr.base import EXPRESSIONS
from mongottl.query.match.registry import match_operators, root_operators
from mongottl.query.pipeline.accumulators import ACCUMULATORS
from mongottl.query.pipeline.stage import STAGES
from mongottl.query.pipeline.window.function import WINDOW_FUNCTIONS
from mongottl.query.update.registry import modifiers
from tests.fuzz.values import (
    Node,
    Random,
    any_value,
    document,
    field_name,
    geometry,
    node,
    number,
    scalar,
)
from tests.fuzz.vocabulary import words_of

COLLECTIONS: Final = ["c", "c", "c", "geo", "words", "v", "ts", "capped", "clustered", "nobody"]
# Not sent: with these a run would depend on more than its seed.
_LEFT_OUT: Final = frozenset({"freezeClock", "configureFailPoint", "fsync", "shutdown"})
# Seldom sent, since they remove what the other commands use.
_DESTRUCTIVE: Final = ("drop", "dropDatabase", "renameCollection", "emptycapped", "convertToCapped", "dropIndexes")
# Optional by its declaration, but little happens without it.
_MEANT_TO_BE_GIVEN: Final = ("cursor", "pipeline", "update", "filter", "query")
_COMMANDS: Final = sorted({spec.name for spec in COMMANDS.values()} - _LEFT_OUT)
# Half of all commands are of these: they contain most of the query language.
_FREQUENT: Final = ["find", "aggregate", "aggregate", "update", "findAndModify", "insert", "createIndexes", "explain"]
_GENERIC: Final = [
    "maxTimeMS",
    "comment",
    "readConcern",
    "writeConcern",
    "collation",
    "let",
    "hint",
    "apiVersion",
    "lsid",
]


def _some(rng: Random, low: int = 0, high: int = 3) -> range:
    return range(rng.randint(low, high))


def collection_name(rng: Random) -> Any:
    return rng.choice(COLLECTIONS)


# Expressions


def path_text(rng: Random) -> str:
    return "$" + rng.choice(["a", "b", "c", "n", "m.x", "a.b", "tags", "t", "when", "loc", "_id", field_name(rng)])


def expression(rng: Random, depth: int = 3) -> Any:
    """An expression: an operator with arguments, a path, a constant."""
    dice = rng.random()
    if depth > 0 and dice < 0.55:
        name = rng.choice(EXPRESSIONS.names())
        return Node([[name, _expression_argument(rng, name, depth - 1)]])
    if dice < 0.85:
        return path_text(rng)
    if dice < 0.9:
        return rng.choice(["$$ROOT", "$$NOW", "$$CLUSTER_TIME", "$$REMOVE", "$$this", "$$value", "$$x", "$$CURRENT.a"])
    return any_value(rng, 2)


def _expression_argument(rng: Random, name: str, depth: int) -> Any:
    operator = EXPRESSIONS.get(name)
    assert operator is not None
    if rng.odd():
        return any_value(rng)
    words = words_of(name)
    if operator.parser is not None and words and rng.random() < 0.75:
        return named(rng, words, depth)
    if operator.unary is not None or operator.maximum == 1:
        return expression(rng, depth)
    least = operator.minimum if operator.parser is None else 1
    most = operator.maximum if operator.maximum >= 0 else least + 2
    return [expression(rng, depth) for _ in range(rng.randint(least, max(least, most)))]


def named(rng: Random, words: list[str], depth: int = 2) -> Node:
    """A document with some of these words as names, in a random order; words are values as well."""
    names = rng.sample(words, min(len(words), rng.choice([1, 2, 2, 3, 3, 4, 5, 6, 8, 12])))
    return Node([[name, by_name(rng, name, words, depth)] for name in names])


def by_name(rng: Random, name: str, words: list[str], depth: int = 2) -> Any:
    """What may stand under a name: what it usually means, an expression, a word, any value."""
    dice = rng.random()
    meaning = MEANINGS.get(name)
    if meaning is not None and dice < 0.8:
        return meaning(rng)
    if dice < 0.5 or name in ("input", "in", "cond", "if", "then", "else"):
        return expression(rng, depth - 1)
    if dice < 0.7 and words:
        return rng.choice(words)
    return any_value(rng, 2)


# Filters


def filter_document(rng: Random, depth: int = 2) -> Any:
    if rng.odd():
        return any_value(rng)
    pairs: list[list[Any]] = []
    for _ in _some(rng, 0, 2):
        if depth > 0 and rng.random() < 0.25:
            name = rng.choice(root_operators.names())
            pairs.append([name, _root_argument(rng, name, depth - 1)])
        else:
            pairs.append([field_name(rng), condition(rng, depth - 1)])
    return Node(pairs)


def _root_argument(rng: Random, name: str, depth: int) -> Any:
    if name in ("$and", "$or", "$nor"):
        return [filter_document(rng, depth) for _ in _some(rng)]
    if name == "$expr":
        return expression(rng)
    if name == "$jsonSchema":
        return json_schema(rng)
    words = words_of(name)
    return named(rng, words) if words and rng.random() < 0.8 else any_value(rng)


def condition(rng: Random, depth: int = 2) -> Any:
    """What stands behind a path in a filter."""
    if rng.random() < 0.25:
        return any_value(rng, 1)
    return Node([_operator(rng, rng.choice(match_operators.names()), depth) for _ in _some(rng, 1, 2)])


def _operator(rng: Random, name: str, depth: int) -> list[Any]:
    dice = rng.random()
    if name == "$not":
        return [name, condition(rng, depth - 1) if depth > 0 else scalar(rng)]
    if name == "$elemMatch" and dice < 0.9:
        return [name, filter_document(rng, depth - 1) if rng.random() < 0.5 else condition(rng, depth - 1)]
    if name in ("$in", "$nin", "$all") and dice < 0.9:
        return [name, [scalar(rng) if rng.random() < 0.8 else condition(rng, 0) for _ in _some(rng)]]
    words = words_of(name)
    if name.startswith(("$geo", "$near", "$within")) and dice < 0.85:
        shape: Any = node(**{"$geometry": geometry(rng), "$maxDistance": number(rng)})
        if rng.random() < 0.4:
            kind = rng.choice(["$box", "$polygon", "$center", "$centerSphere"])
            shape = Node([[kind, [[number(rng), 2], rng.choice([[3, 4], number(rng)])]]])
        return [name, shape if rng.random() < 0.7 else geometry(rng)]
    if words and dice < 0.3:
        return [name, named(rng, words)]
    if dice < 0.5:
        return [name, number(rng)]
    if dice < 0.7:
        return [name, [number(rng) for _ in _some(rng, 0, 3)]]
    return [name, any_value(rng)]


def json_schema(rng: Random, depth: int = 2) -> Node:
    words = [word for word in words_of("$jsonSchema") if not word.startswith("_")]
    schema = Node()
    for name in rng.sample(words, min(len(words), 4)):
        inner: Any = any_value(rng, 1)
        if depth > 0 and rng.random() < 0.7:
            inner = rng.choice(
                [
                    json_schema(rng, depth - 1),
                    [json_schema(rng, depth - 1)],
                    Node([[field_name(rng), json_schema(rng, depth - 1)]]),
                    [field_name(rng)],
                    number(rng),
                    rng.choice(words),
                ]
            )
        schema.pairs.append([name, inner])
    return schema


# Pipelines


def pipeline(rng: Random, depth: int = 2) -> Any:
    if rng.odd():
        return any_value(rng)
    return [stage(rng, depth) for _ in _some(rng, 0, 3)]


def stage(rng: Random, depth: int = 2) -> Any:
    name = rng.choice(STAGES.names())
    return Node([[name, _stage_argument(rng, name, depth)]])


def _stage_argument(rng: Random, name: str, depth: int) -> Any:
    if rng.odd():
        return any_value(rng)
    special = STAGE_ARGUMENTS.get(name)
    if special is not None and rng.random() < 0.9:
        return special(rng)
    words = words_of(name)
    if words and rng.random() < 0.85:
        return named(rng, words)
    return expression(rng) if rng.random() < 0.5 else number(rng)


def projection(rng: Random) -> Any:
    pairs: list[list[Any]] = []
    for _ in _some(rng, 0, 3):
        dice = rng.random()
        if dice < 0.35:
            pairs.append([field_name(rng), rng.choice([0, 1, True, False, number(rng)])])
        elif dice < 0.5:
            pairs.append([field_name(rng), Node([["$slice", rng.choice([number(rng), [number(rng), number(rng)]])]])])
        elif dice < 0.6:
            pairs.append([field_name(rng), Node([["$elemMatch", filter_document(rng, 1)]])])
        elif dice < 0.7:
            pairs.append([field_name(rng), meta(rng)])
        else:
            pairs.append([field_name(rng), expression(rng)])
    return Node(pairs)


def meta(rng: Random) -> Node:
    return Node([["$meta", rng.choice([*words_of("$meta"), scalar(rng)])]])


def sort(rng: Random) -> Any:
    if rng.odd():
        return any_value(rng)
    return Node([[field_name(rng), _direction(rng)] for _ in _some(rng, 0, 2)])


def _direction(rng: Random) -> Any:
    if rng.random() < 0.08 + rng.oddness:
        return rng.choice([number(rng), meta(rng), scalar(rng)])
    return rng.choice([1, -1])


def accumulation(rng: Random) -> Node:
    name = rng.choice(ACCUMULATORS.names())
    words = words_of(name)
    dice = rng.random()
    if words and dice < 0.4:
        return Node([[name, named(rng, words)]])
    return Node([[name, expression(rng) if dice < 0.9 else any_value(rng)]])


def _group(rng: Random) -> Node:
    pairs: list[list[Any]] = [["_id", expression(rng)]]
    return Node(pairs + [[field_name(rng), accumulation(rng)] for _ in _some(rng)])


def _computed(rng: Random) -> Node:
    return Node([[field_name(rng), expression(rng)] for _ in _some(rng, 1, 3)])


def window_output(rng: Random) -> Node:
    outputs = Node()
    for _ in _some(rng, 0, 2):
        name = rng.choice(WINDOW_FUNCTIONS.names())
        words = words_of(name)
        argument = named(rng, words) if words and rng.random() < 0.6 else expression(rng)
        output = Node([[name, argument]])
        if rng.random() < 0.5:
            bound = [rng.choice(["unbounded", "current", number(rng)]) for _ in range(2)]
            output.pairs.append(["window", Node([[rng.choice(["documents", "range", "unit"]), bound]])])
        outputs.pairs.append([field_name(rng), output])
    return outputs


def _fill_output(rng: Random) -> Node:
    return Node([["a", rng.choice([node(method="locf"), node(method="linear"), node(value=expression(rng))])]])


def _set_window_fields(rng: Random) -> Node:
    found = node(output=window_output(rng))
    if rng.random() < 0.8:
        found.pairs.insert(0, ["sortBy", sort(rng)])
    if rng.random() < 0.6:
        found.pairs.insert(0, ["partitionBy", expression(rng)])
    return found


def _fill(rng: Random) -> Node:
    found = node(output=_fill_output(rng))
    if rng.random() < 0.8:
        found.pairs.append(["sortBy", sort(rng)])
    if rng.random() < 0.6:
        found.pairs.append(["partitionBy", expression(rng)])
    return found


def _lookup(rng: Random) -> Node:
    found = Node([["from", collection_name(rng)], ["as", field_name(rng)]])
    if rng.random() < 0.7:
        found.pairs += [["localField", field_name(rng)], ["foreignField", field_name(rng)]]
    if rng.random() < 0.4:
        found.pairs += [["let", _computed(rng)], ["pipeline", pipeline(rng, 1)]]
    return found


STAGE_ARGUMENTS: Final[dict[str, Callable[[Random], Any]]] = {
    "$addFields": _computed,
    "$set": _computed,
    "$project": projection,
    "$match": filter_document,
    "$sort": sort,
    "$group": _group,
    "$lookup": _lookup,
    "$fill": _fill,
    "$setWindowFields": _set_window_fields,
    "$limit": number,
    "$skip": number,
    "$facet": lambda rng: Node([[field_name(rng), pipeline(rng, 1)] for _ in _some(rng, 1, 2)]),
    "$documents": lambda rng: [document(rng) for _ in _some(rng)],
    "$redact": lambda rng: rng.choice(["$$PRUNE", "$$KEEP", "$$DESCEND", expression(rng)]),
    "$sortByCount": expression,
    "$unset": lambda rng: rng.choice([field_name(rng), [field_name(rng) for _ in _some(rng)]]),
    "$count": field_name,
    "$unionWith": lambda rng: rng.choice(
        [collection_name(rng), node(coll=collection_name(rng), pipeline=pipeline(rng, 1))]
    ),
    "$out": lambda rng: rng.choice(["out", "c", node(db="test", coll="out")]),
}


# Updates


def update(rng: Random) -> Any:
    dice = rng.random()
    if dice < 0.1:
        return document(rng)
    if dice < 0.25:
        return pipeline(rng)
    if dice < 0.28:
        return any_value(rng)
    found = Node()
    for _ in _some(rng, 1, 2):
        name = rng.choice(modifiers.names())
        changes: Any = Node([[field_name(rng), _changed(rng, name)] for _ in _some(rng, 1, 2)])
        found.pairs.append([name, any_value(rng) if rng.odd() else changes])
    return found


def _changed(rng: Random, name: str) -> Any:
    words = words_of(name)
    dice = rng.random()
    if words and dice < 0.6:
        return Node(
            [[word, update_argument(rng, word)] for word in rng.sample(words, min(len(words), rng.randint(1, 5)))]
        )
    if dice < 0.3:
        return number(rng)
    if name == "$rename":
        return field_name(rng)
    if name == "$pull" and dice < 0.8:
        return condition(rng)
    return any_value(rng)


def update_argument(rng: Random, word: str) -> Any:
    if word == "$each":
        return [any_value(rng, 1) for _ in _some(rng)]
    if word == "$sort":
        return rng.choice([1, -1, sort(rng), number(rng)])
    return number(rng) if rng.random() < 0.6 else any_value(rng, 1)


# Indexes, collections


def key_pattern(rng: Random) -> Any:
    kinds_of_index = [1, 1, 1, -1, -1, "2d", "2dsphere", "text", "hashed", number(rng)]
    return Node([[field_name(rng), scalar(rng) if rng.odd() else rng.choice(kinds_of_index)] for _ in _some(rng, 1, 2)])


def index_spec(rng: Random) -> Any:
    found = node(key=key_pattern(rng), name=f"i{rng.randrange(40)}")
    words = [*words_of("createIndexes"), *_INDEX_OPTIONS]
    for name in rng.sample(words, rng.choice([0, 0, 0, 1, 1, 2])):
        found.pairs.append([name, by_name(rng, name, words)])
    return found


_INDEX_OPTIONS: Final = [
    *("unique", "sparse", "background", "hidden", "expireAfterSeconds", "partialFilterExpression", "collation", "v"),
    *(
        "wildcardProjection",
        "weights",
        "default_language",
        "language_override",
        "textIndexVersion",
        "bits",
        "min",
        "max",
    ),
    *("2dsphereIndexVersion", "storageEngine", "prepareUnique", "clustered", "dropDups", "finestIndexedLevel", "ns"),
]


def collation(rng: Random) -> Any:
    found = node(
        locale=rng.choice(
            ["en", "de", "simple", "en_US_POSIX", "sv", "zh", "tr", "de@collation=phonebook", scalar(rng)]
        )
    )
    for name, values in (
        ("strength", [1, 2, 3, 4, 5, 0, 6]),
        ("caseLevel", [True, False]),
        ("caseFirst", ["upper", "lower", "off", ""]),
        ("numericOrdering", [True, False]),
        ("alternate", ["shifted", "non-ignorable", "x"]),
        ("maxVariable", ["punct", "space", "x"]),
        ("normalization", [True, False]),
        ("backwards", [True, False]),
        ("version", ["57.1"]),
    ):
        if rng.random() < 0.3:
            found.pairs.append([name, rng.choice(values) if rng.random() < 0.85 else scalar(rng)])
    return found


def hint(rng: Random) -> Any:
    return rng.choice([key_pattern(rng), "_id_", "a_1", node(**{"$natural": number(rng)}), node(a=1)])


def _let(rng: Random) -> Node:
    return Node([[rng.choice(["x", "y", "this", "a.b", "$x", "X", ""]), expression(rng)] for _ in _some(rng, 0, 2)])


def _update_statement(rng: Random) -> Node:
    found = node(q=filter_document(rng), u=update(rng))
    return _with_options(rng, found, ["multi", "upsert", "collation", "arrayFilters", "hint", "sort", "c"])


def _delete_statement(rng: Random) -> Node:
    return _with_options(
        rng, node(q=filter_document(rng), limit=rng.choice([0, 1, number(rng)])), ["collation", "hint"]
    )


def _bulk_operation(rng: Random) -> Node:
    kind = rng.choice(["insert", "update", "delete"])
    place = rng.choice([0, 0, 1, number(rng)])
    if kind == "insert":
        return Node([[kind, place], ["document", document(rng)]])
    found = Node([[kind, place], ["filter", filter_document(rng)]])
    if kind == "update":
        found.pairs.append(["updateMods", update(rng)])
    return _with_options(rng, found, ["multi", "upsert", "collation", "arrayFilters", "hint", "sort", "constants"])


def _with_options(rng: Random, found: Node, names: list[str]) -> Node:
    for name in names:
        if rng.random() < 0.2:
            found.pairs.append([name, by_name(rng, name, [])])
    return found


def _explained(rng: Random) -> Node:
    while True:
        found = command(rng)
        if found.pairs[0][0] in ("find", "aggregate", "count", "distinct", "findAndModify", "update", "delete"):
            return found


def _boolean(rng: Random) -> Any:
    return rng.random() < 0.5


def _list_of(draw: Callable[[Random], Any]) -> Callable[[Random], Any]:
    return lambda rng: [draw(rng) for _ in _some(rng, 0 if rng.odd() else 1, 3)]


# What a field of this name holds, in whatever command, stage or operator.
MEANINGS: Final[dict[str, Callable[[Random], Any]]] = {
    "filter": filter_document,
    "query": filter_document,
    "q": filter_document,
    "restrictSearchWithMatch": filter_document,
    "partialFilterExpression": filter_document,
    "validator": lambda rng: rng.choice([filter_document(rng), Node([["$jsonSchema", json_schema(rng)]])]),
    "whenMatched": lambda rng: rng.choice(["replace", "merge", "fail", "keepExisting", pipeline(rng, 0)]),
    "pipeline": pipeline,
    "update": update,
    "u": update,
    "updateMods": update,
    "sort": sort,
    "sortBy": sort,
    "projection": projection,
    "fields": projection,
    "wildcardProjection": projection,
    "collation": collation,
    "hint": hint,
    "index": hint,
    "let": _let,
    "c": _let,
    "constants": _let,
    "vars": _let,
    "key": key_pattern,
    "keyPattern": key_pattern,
    "min": lambda rng: rng.choice([document(rng), number(rng)]),
    "max": lambda rng: rng.choice([document(rng), number(rng)]),
    "indexes": _list_of(index_spec),
    "documents": _list_of(document),
    "document": document,
    "updates": _list_of(_update_statement),
    "deletes": _list_of(_delete_statement),
    "ops": _list_of(_bulk_operation),
    "nsInfo": lambda rng: [node(ns="test.c"), node(ns="test.geo")],
    "arrayFilters": lambda rng: [Node([[rng.choice(["x", "x.b", "y"]), condition(rng)]]) for _ in _some(rng, 0, 2)],
    "output": lambda rng: rng.choice([window_output(rng), Node([["x", accumulation(rng)]]), _fill_output(rng)]),
    "near": geometry,
    "loc": geometry,
    "from": collection_name,
    "into": lambda rng: rng.choice(["out", collection_name(rng)]),
    "coll": collection_name,
    "collection": collection_name,
    "to": lambda rng: rng.choice(["test.out", "test.c", scalar(rng), number(rng)]),
    "ns": lambda rng: f"test.{collection_name(rng)}",
    "localField": field_name,
    "foreignField": field_name,
    "as": field_name,
    "path": lambda rng: rng.choice([path_text(rng), field_name(rng)]),
    "cursor": lambda rng: node(batchSize=number(rng)) if rng.random() < 0.5 else Node(),
    "explain": lambda rng: _explained(rng),
    "verbosity": lambda rng: rng.choice(["queryPlanner", "executionStats", "allPlansExecution"]),
    "commitQuorum": lambda rng: rng.choice([1, "majority", "votingMembers", number(rng)]),
    "readConcern": lambda rng: node(level=rng.choice(["local", "majority", "available", "snapshot", scalar(rng)])),
    "writeConcern": lambda rng: Node(
        [
            [name, rng.choice([number(rng), scalar(rng), "majority", True])]
            for name in rng.sample(["w", "j", "wtimeout"], 2)
        ]
    ),
    "maxTimeMS": lambda rng: rng.choice([0, 1000, 60000, number(rng)]),
    "timeseries": lambda rng: named(rng, [*words_of("create"), "timeField", "metaField", "granularity"]),
    "date": lambda rng: rng.choice(["$t", "$when", expression(rng)]),
    "startDate": lambda rng: rng.choice(["$t", expression(rng)]),
    "endDate": lambda rng: rng.choice(["$when", expression(rng)]),
    "unit": lambda rng: rng.choice(
        ["year", "quarter", "week", "month", "day", "hour", "minute", "second", "millisecond", "x"]
    ),
    "timezone": lambda rng: rng.choice(["UTC", "Europe/Berlin", "+05:30", "$tz", scalar(rng)]),
    "multi": _boolean,
    "upsert": _boolean,
    "new": _boolean,
    "ordered": _boolean,
    "lsid": lambda rng: node(id=scalar(rng)),
    "apiVersion": lambda rng: rng.choice(["1", "2"]),
    "validate": collection_name,
    "geometry": geometry,
}

# Kinds after which the name still says more.
_SAY_LITTLE: Final = (
    kinds.DOCUMENT_FIELD,
    kinds.GIVEN_DOCUMENT,
    kinds.DOCUMENTS,
    kinds.ARRAY_FIELD,
    kinds.RAW_ARRAY,
    kinds.TEXT,
)

_BY_KIND: Final[dict[int, Callable[[Random], Any]]] = {
    kinds.COLLECTION: collection_name,
    kinds.TEXT: lambda rng: scalar(rng) if rng.odd() else rng.choice(["test.c", "test.geo", "c", "a", "queryPlanner"]),
    kinds.DOCUMENT_FIELD: document,
    kinds.GIVEN_DOCUMENT: document,
    kinds.BOOL_FIELD: lambda rng: number(rng) if rng.odd() else rng.random() < 0.5,
    kinds.STRICT_BOOL: _boolean,
    kinds.GIVEN_BOOL: _boolean,
    kinds.WHOLE: number,
    kinds.INTEGER: number,
    kinds.NUMBER: number,
    kinds.COUNT_LIMIT: number,
    kinds.ARRAY_FIELD: lambda rng: [any_value(rng, 1) for _ in _some(rng)],
    kinds.RAW_ARRAY: lambda rng: [any_value(rng, 1) for _ in _some(rng)],
    kinds.NAMES: lambda rng: [any_value(rng, 1) for _ in _some(rng)],
    kinds.DOCUMENTS: lambda rng: [document(rng) for _ in _some(rng)],
    kinds.HINT: hint,
    kinds.PIPELINE: pipeline,
    kinds.PIPELINE_OR_DOCUMENT: update,
}


def command(rng: Random) -> Node:
    """A command, without its `$db`."""
    rng.oddness = rng.choice([0.0, 0.0, 0.01, 0.03, 0.1, 0.3])
    name = rng.choice(_FREQUENT) if rng.random() < 0.65 else rng.choice(_COMMANDS)
    if name in _DESTRUCTIVE and rng.random() < 0.8:
        name = "aggregate"
    spec = COMMANDS[name]
    declared = fields_of(spec.request)
    required = len(declared) - len(spec.request._field_defaults)
    body = Node()
    optional = rng.choice([0.1, 0.2, 0.4])
    for place, field in enumerate(declared):
        if place == 0:
            body.pairs.append([name, _first_value(rng, name, field)])
        elif place < required or rng.random() < _share(field, optional):
            body.pairs.append([field.name, _field_value(rng, name, field)])
    if name == "getMore":
        body.pairs[0][1] = Int64(rng.choice([1, 2, 3, 2**40]))
    if rng.random() < 0.15:
        extra = rng.choice(_GENERIC)
        body.pairs.append([extra, by_name(rng, extra, [])])
    if rng.odd():
        body.pairs.append([rng.choice(words_of(name) or ["x"]), any_value(rng)])
    return body


def focused_command(rng: Random) -> Node:
    """A valid command except for the argument of one operator, stage or option, so that it is not refused before."""
    rng.oddness = rng.choice([0.0, 0.02, 0.1, 0.3])
    name = rng.choice(["c", "c", "c", "geo", "words", "ts", "v"])
    draw = rng.choice(_FOCUSES)
    return draw(rng, name)


def _one_expression(rng: Random, name: str) -> Node:
    operator = rng.choice(EXPRESSIONS.names())
    computed = Node([[operator, _expression_argument(rng, operator, 2)]])
    place = rng.choice(["$project", "$project", "$match", "$group"])
    stage_argument = node(x=computed)
    if place == "$match":
        stage_argument = Node([["$expr", computed]])
    elif place == "$group":
        stage_argument = Node([["_id", computed]])
    return _pipeline_over(name, [Node([[place, stage_argument]])])


def _pipeline_over(name: Any, stages: list[Any]) -> Node:
    return node(aggregate=name, pipeline=stages, cursor=Node())


def _one_stage(rng: Random, name: str) -> Node:
    stages = [stage(rng)]
    first = stages[0].pairs[0][0]
    if first in ("$documents", "$currentOp", "$listLocalSessions", "$queryStats"):
        return _pipeline_over(1, stages)
    if rng.random() < 0.3:
        stages.append(stage(rng))
    return _pipeline_over(name, stages)


def _one_accumulator(rng: Random, name: str) -> Node:
    grouped = Node([["_id", rng.choice([None, "$a", "$n"])], ["x", accumulation(rng)]])
    return _pipeline_over(name, [Node([["$sort", sort(rng)]]), Node([["$group", grouped]])])


def _one_window(rng: Random, name: str) -> Node:
    return _pipeline_over(name, [Node([[rng.choice(["$setWindowFields"] * 3 + ["$fill"]), _windows(rng)]])])


def _windows(rng: Random) -> Node:
    found = node(output=window_output(rng))
    found.pairs.insert(0, ["sortBy", Node([[rng.choice(["n", "t", "when", "a"]), rng.choice([1, -1])]])])
    return found


def _one_condition(rng: Random, name: str) -> Node:
    operator = rng.choice(match_operators.names())
    found = node(find=name, filter=Node([[field_name(rng), Node([_operator(rng, operator, 2)])]]))
    return _with_options(rng, found, ["sort", "collation", "hint"])


def _one_root_operator(rng: Random, name: str) -> Node:
    operator = rng.choice(root_operators.names())
    return node(find=name, filter=Node([[operator, _root_argument(rng, operator, 2)]]))


def _one_modifier(rng: Random, name: str) -> Node:
    operator = rng.choice(modifiers.names())
    statement = node(q=Node(), u=Node([[operator, Node([[field_name(rng), _changed(rng, operator)]])]]), multi=True)
    return node(update=name, updates=[_with_options(rng, statement, ["arrayFilters", "upsert"])])


def _one_projection(rng: Random, name: str) -> Node:
    return _with_options(rng, node(find=name, projection=projection(rng)), ["filter", "sort"])


def _one_sort(rng: Random, name: str) -> Node:
    return _with_options(rng, node(find=name, sort=sort(rng)), ["filter", "projection", "min", "max", "hint"])


def _one_index(rng: Random, name: str) -> Node:
    return node(createIndexes=rng.choice(["c", "geo", "words", "ts", "new"]), indexes=[index_spec(rng)])


def _one_collation(rng: Random, name: str) -> Node:
    return node(find=name, filter=Node([[field_name(rng), condition(rng)]]), collation=collation(rng), sort=node(a=1))


def _one_option(rng: Random, name: str) -> Node:
    """A command with its required fields and one of the others."""
    command_name = rng.choice(_COMMANDS)
    spec = COMMANDS[command_name]
    declared = fields_of(spec.request)
    required = max(1, len(declared) - len(spec.request._field_defaults))
    body = Node([[command_name, _first_value(rng, command_name, declared[0])]])
    for field in declared[1:required]:
        body.pairs.append([field.name, _field_value(rng, command_name, field)])
    if len(declared) > required:
        field = rng.choice(declared[required:])
        body.pairs.append(
            [field.name, any_value(rng, 1) if rng.random() < 0.5 else _field_value(rng, command_name, field)]
        )
    if command_name == "aggregate":
        body.pairs.append(["cursor", Node()])
    return body


_FOCUSES: Final[list[Callable[[Random, str], Node]]] = [
    *([_one_expression] * 6 + [_one_stage] * 4 + [_one_window] * 2 + [_one_condition] * 3 + [_one_modifier] * 3),
    *([_one_accumulator] * 2 + [_one_projection, _one_sort, _one_index, _one_collation, _one_root_operator]),
    *([_one_option] * 3),
]


def _share(field: Field, usual: float) -> float:
    """How often a field that may be left out is given."""
    if field.kind in (kinds.UNSUPPORTED, kinds.IGNORED):
        return 0.01
    if field.name in _MEANT_TO_BE_GIVEN:
        return 0.8
    return usual if field.name in MEANINGS or field.kind != kinds.ANY else usual / 4


def _first_value(rng: Random, name: str, field: Field) -> Any:
    """The value under the command's own name."""
    if rng.odd():
        return any_value(rng)
    if name in MEANINGS and field.kind == kinds.DOCUMENT_FIELD:
        return MEANINGS[name](rng)
    if name == "aggregate":
        return rng.choice([collection_name(rng), collection_name(rng), collection_name(rng), 1])
    return f"test.{collection_name(rng)}" if name in ("dataSize", "renameCollection") else collection_name(rng)


def _field_value(rng: Random, command_name: str, field: Field) -> Any:
    if rng.odd():
        return any_value(rng)
    draw = _BY_KIND.get(field.kind)
    meaning = MEANINGS.get(field.name)
    if meaning is not None and (draw is None or field.kind in _SAY_LITTLE):
        return meaning(rng)
    if draw is not None:
        return draw(rng)
    words = words_of(command_name)
    if words and rng.random() < 0.5:
        return named(rng, words)
    return any_value(rng)
