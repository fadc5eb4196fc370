"""A slow, obvious model of pipelines over decoded documents: a function for each stage.

It follows MongoDB's documented rules. Where those leave an order open, it is the order of first sight: of groups, and
of documents that a sort finds equal.
"""

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

from bson import Int64

from tests.expression_model import compare, evaluate, field, truth
from tests.match_model import ABSENT, order, passes, reached

Document = dict[str, Any]
Documents = list[Document]
Collections = dict[str, Documents]


class Unmodelled(Exception):
    """The rules refuse this, or leave the result open."""


# --- changing documents ---


def put(value: Any, parts: list[str], new: Any) -> Any:
    """A value with another at a path: in every element of arrays, and with documents instead of what is none."""
    if not parts:
        return new
    if isinstance(value, list):
        return [put(item, parts, new) for item in value]
    changed = dict(value) if isinstance(value, dict) else {}
    member = put(changed.get(parts[0], ABSENT), parts[1:], new)
    if member is ABSENT:
        changed.pop(parts[0], None)
    else:
        changed[parts[0]] = member
    return changed


def without(value: Any, parts: list[str]) -> Any:
    if isinstance(value, list):
        return [without(item, parts) for item in value]
    if not isinstance(value, dict) or parts[0] not in value:
        return value
    kept = dict(value)
    if len(parts) > 1:
        kept[parts[0]] = without(kept[parts[0]], parts[1:])
    else:
        del kept[parts[0]]
    return kept


def only(value: Any, paths: list[list[str]]) -> Any:
    """What an inclusion keeps of a document."""
    if isinstance(value, list):
        return [only(item, paths) for item in value if isinstance(item, (dict, list))]
    kept: Document = {}
    for name, member in value.items():
        rests = [path[1:] for path in paths if path[0] == name]
        if [] in rests:
            kept[name] = member
        elif rests and isinstance(member, (dict, list)):
            kept[name] = only(member, rests)
    return kept


def flattened(fields: Document) -> Document:
    """Fields by path: `{a: {b: …}}` says the same as `{"a.b": …}`."""
    found: Document = {}
    for path, value in fields.items():
        if isinstance(value, dict) and not next(iter(value), "$").startswith("$"):
            found.update({f"{path}.{rest}": inner for rest, inner in flattened(value).items()})
        else:
            found[path] = value
    return found


def add_fields(documents: Documents, fields: Document) -> Documents:
    changed = []
    for document in documents:
        new = document
        for path, expression in flattened(fields).items():
            new = put(new, path.split("."), evaluate(expression, document))
        changed.append(new)
    return changed


def project(documents: Documents, fields: Document) -> Documents:
    """Exclusions, or inclusions and computed fields."""
    flags = {path: value for path, value in fields.items() if isinstance(value, int)}
    if len(flags) == len(fields) and not any(flags.values()):
        return unset(documents, list(flags))
    computed = {path: value for path, value in flattened(fields).items() if path not in flags}
    return [projected(document, flags, computed) for document in documents]


def projected(document: Document, flags: dict[str, int], computed: Document) -> Document:
    """Kept fields in the document's order, then computed ones in the order of the projection; so it is in what a nested
    computed field changes, and which keeps its place.
    """
    kept = [path.split(".") for path, flag in {"_id": 1, **flags}.items() if flag]
    base = document
    created: list[tuple[list[str], Any]] = []
    for path, expression in computed.items():
        parts = path.split(".")
        value = evaluate(expression, document)
        if len(parts) > 1 and parts[0] in document:
            base = put(without(base, parts), parts, value)
            kept.append(parts)
        else:
            created.append((parts, value))
    new: Document = only(base, kept)
    for parts, value in created:
        new = put(new, parts, value)
    return new


def unset(documents: Documents, paths: str | list[str]) -> Documents:
    for path in [paths] if isinstance(paths, str) else paths:
        documents = [without(document, path.split(".")) for document in documents]
    return documents


def replace_root(documents: Documents, expression: Any) -> Documents:
    found = [evaluate(expression, document) for document in documents]
    if not all(isinstance(document, dict) for document in found):
        raise Unmodelled
    return found


def unwind(documents: Documents, argument: str | Document) -> Documents:
    options = {"path": argument} if isinstance(argument, str) else argument
    parts = options["path"][1:].split(".")
    index_path = options.get("includeArrayIndex")

    def indexed(document: Document, index: Any) -> Document:
        return document if index_path is None else put(document, [index_path], index)

    found: Documents = []
    for document in documents:
        value: Any = document
        for part in parts:
            value = value.get(part, ABSENT) if isinstance(value, dict) else ABSENT
        if isinstance(value, list) and value:
            for i, item in enumerate(value):
                found.append(indexed(put(document, parts, item), Int64(i)))
        elif value is ABSENT or value is None or value == []:
            if options.get("preserveNullAndEmptyArrays"):
                found.append(indexed(without(document, parts) if value == [] else document, None))
        else:
            found.append(indexed(document, None))
    return found


# --- order ---

LEAST: Any = object()  # the sort key of an empty array, which is less than null


def sort_values(value: Any, parts: list[str]) -> list[Any]:
    """What a path gives a sort to choose from."""
    if not parts:
        if isinstance(value, list):
            return value or [LEAST]
        return [None if value is ABSENT else value]
    if isinstance(value, list):
        found = [sort_values(item, parts) if isinstance(item, dict) else [None] for item in value]
        return [one for values in found for one in values] or [None]
    return sort_values(value.get(parts[0], ABSENT), parts[1:]) if isinstance(value, dict) else [None]


def sort_order(a: Any, b: Any) -> int:
    if a is LEAST or b is LEAST:
        return int(b is LEAST) - int(a is LEAST) if a is not b else 0
    return order(a, b)


def sort(documents: Documents, pattern: dict[str, int]) -> Documents:
    """Of an array, the least element counts in an ascending sort, the greatest in a descending one."""

    def key(document: Document, path: str, direction: int) -> Any:
        values = sorted(sort_values(document, path.split(".")), key=functools.cmp_to_key(sort_order))
        return values[0 if direction == 1 else -1]

    def by(a: Document, b: Document) -> int:
        for path, direction in pattern.items():
            sign = sort_order(key(a, path, direction), key(b, path, direction))
            if sign:
                return sign * direction
        return 0

    if len(pattern) > 1 and any(branches(document, pattern) > 1 for document in documents):
        raise Unmodelled  # parallel arrays, or arrays whose elements are compared as tuples
    return sorted(documents, key=functools.cmp_to_key(by))


def branches(document: Document, pattern: Iterable[str]) -> int:
    """How many of the paths go through or into an array."""
    return sum(
        any(isinstance(field(document, parts[:n]), list) for n in range(1, len(parts) + 1))
        for parts in (path.split(".") for path in pattern)
    )


# --- groups ---


def total(values: list[Any]) -> Any:
    """$sum: numbers only; int32 and int64 grow, one double makes a double."""
    numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    if any(isinstance(value, float) for value in numbers):
        return added([float(value) for value in numbers])
    whole = sum(numbers)
    if not -(2**63) <= whole < 2**63:
        return float(whole)
    return Int64(whole) if any(isinstance(value, Int64) for value in numbers) else whole


def added(numbers: list[float]) -> float:
    try:
        return math.fsum(numbers) + 0.0
    except ValueError:  # both infinities
        return math.nan


def average(values: list[Any]) -> float | None:
    numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    return added([float(value) for value in numbers]) / len(numbers) if numbers else None


def extreme(values: list[Any], sign: int) -> Any:
    best: Any = None
    for value in values:
        if value is not ABSENT and value is not None and (best is None or order(value, best) * sign > 0):
            best = value
    return best


def distinct(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if not any(compare(value, other) == 0 for other in found):
            found.append(value)
    return found


def merged(values: list[Any]) -> Document:
    found: Document = {}
    for value in values:
        if value is not ABSENT and value is not None:
            if not isinstance(value, dict):
                raise Unmodelled
            found.update(value)
    return found


def or_null(value: Any) -> Any:
    return None if value is ABSENT else value


ACCUMULATORS: dict[str, Callable[[list[Any]], Any]] = {
    "$sum": total,
    "$avg": average,
    "$min": lambda values: extreme(values, -1),
    "$max": lambda values: extreme(values, 1),
    "$first": lambda values: or_null(values[0]) if values else None,
    "$last": lambda values: or_null(values[-1]) if values else None,
    "$push": lambda values: [value for value in values if value is not ABSENT],
    "$addToSet": lambda values: distinct([value for value in values if value is not ABSENT]),
    "$mergeObjects": merged,
    "$count": len,
}


def accumulated(documents: Documents, output: Document) -> Document:
    found: Document = {}
    for name, accumulator in output.items():
        operator, expression = next((key, value) for key, value in accumulator.items() if key != "window")
        argument = None if operator == "$count" else expression
        found[name] = ACCUMULATORS[operator]([evaluate(argument, document) for document in documents])
    return found


def grouped(documents: Documents, expression: Any) -> list[tuple[Any, Documents]]:
    """Documents by the value of an expression, missing being null; each group under the first of its equal keys."""
    groups: list[tuple[Any, Documents]] = []
    for document in documents:
        key = or_null(evaluate(expression, document))
        for other, members in groups:
            if order(key, other) == 0:
                members.append(document)
                break
        else:
            groups.append((key, [document]))
    return groups


def group(documents: Documents, argument: Document) -> Documents:
    output = {name: value for name, value in argument.items() if name != "_id"}
    return [{"_id": key, **accumulated(members, output)} for key, members in grouped(documents, argument["_id"])]


def sort_by_count(documents: Documents, expression: Any) -> Documents:
    counts = [{"_id": key, "count": len(members)} for key, members in grouped(documents, expression)]
    return sort(counts, {"count": -1})


def bucket(documents: Documents, argument: Document) -> Documents:
    """Each bucket holds its lower bound and not its upper one; what is in none goes to the default."""
    boundaries = argument["boundaries"]
    output = argument.get("output", {"count": {"$sum": 1}})
    buckets: list[tuple[Any, Documents]] = [(low, []) for low in boundaries[:-1]]
    rest: Documents = []
    for document in documents:
        value = evaluate(argument["groupBy"], document)
        for i, (low, members) in enumerate(buckets):
            if compare(value, low) >= 0 and compare(value, boundaries[i + 1]) < 0:
                members.append(document)
                break
        else:
            rest.append(document)
    buckets.append((argument["default"], rest))
    return sort([{"_id": key, **accumulated(members, output)} for key, members in buckets if members], {"_id": 1})


def bucket_auto(documents: Documents, argument: Document) -> Documents:
    """Buckets of about as many documents each; equal values are never parted, and the last takes what is left."""
    keyed = [{"key": or_null(evaluate(argument["groupBy"], document)), "of": document} for document in documents]
    keyed.sort(key=functools.cmp_to_key(lambda a, b: order(a["key"], b["key"])))
    wanted = argument["buckets"]
    size = max(1, math.floor(len(keyed) / wanted + 0.5))
    buckets: list[list[Document]] = []
    while keyed:
        end = len(keyed) if len(buckets) == wanted - 1 else min(size, len(keyed))
        while end < len(keyed) and order(keyed[end]["key"], keyed[end - 1]["key"]) == 0:
            end += 1
        buckets.append(keyed[:end])
        keyed = keyed[end:]
    found: Documents = []
    for i, members in enumerate(buckets):
        upper = buckets[i + 1][0]["key"] if i + 1 < len(buckets) else members[-1]["key"]
        output = argument.get("output", {"count": {"$sum": 1}})
        bounds = {"min": members[0]["key"], "max": upper}
        found.append({"_id": bounds, **accumulated([member["of"] for member in members], output)})
    return found


# --- windows ---


def set_window_fields(documents: Documents, argument: Document) -> Documents:
    """Partitions in the order of their keys, and in each the documents in that of sortBy."""
    pattern = argument["sortBy"]
    partitions = grouped(documents, argument.get("partitionBy"))
    found: Documents = []
    by_value = functools.cmp_to_key(order)
    partitions.sort(key=lambda partition: by_value(partition[0]))
    for _, members in partitions:
        ordered = sort(members, pattern)
        for i, document in enumerate(ordered):
            new = document
            for name, function in argument["output"].items():
                new = put(new, [name], windowed(ordered, i, function, next(iter(pattern.items()))))
            found.append(new)
    return found


def windowed(ordered: Documents, place: int, function: Document, by: tuple[str, int]) -> Any:
    operator = next(iter(function))
    if operator == "$documentNumber":
        return place + 1
    if operator in ("$rank", "$denseRank"):
        before = [d for d in ordered[:place] if sort([ordered[place], d], {by[0]: by[1]})[0] is not ordered[place]]
        if operator == "$rank":
            return len(before) + 1
        return len(distinct([d.get(by[0]) for d in before])) + 1
    low, high = function["window"]["documents"]
    first = 0 if low == "unbounded" else max(0, place + (0 if low == "current" else low))
    end = len(ordered) if high == "unbounded" else place + (0 if high == "current" else high) + 1
    return accumulated(ordered[first : max(end, first)], {"r": function})["r"]


# --- joins and branches ---


def local_values(document: Document, path: str) -> list[Any]:
    """What a local field joins by: the elements of an array, not the array; nothing is null."""
    values = list(reached(document, path.split(".")))
    whole = field(document, path.split("."))
    found = [value for value in values if value is not ABSENT and not isinstance(value, list)]
    if isinstance(whole, list) and any(isinstance(value, list) for value in whole):
        raise Unmodelled  # arrays in arrays are joined as they are
    if whole == []:
        raise Unmodelled
    return found or [None]


def lookup(documents: Documents, argument: Document, collections: Collections) -> Documents:
    found: Documents = []
    for document in documents:
        joined = collections[argument["from"]]
        if "localField" in argument:
            wanted = local_values(document, argument["localField"])
            joined = [other for other in joined if passes(other, {argument["foreignField"]: {"$in": wanted}})]
        variables = {name: evaluate(value, document) for name, value in argument.get("let", {}).items()}
        joined = run(argument.get("pipeline", []), joined, collections, variables)
        found.append(put(document, argument["as"].split("."), joined))
    return found


def graph_lookup(documents: Documents, argument: Document, collections: Collections) -> Documents:
    """Breadth first; the documents found by their `_id`, since their order is open."""
    found: Documents = []
    for document in documents:
        start = evaluate(argument["startWith"], document)
        if start is ABSENT:
            raise Unmodelled  # the reference does not say whether it starts from null or from nothing
        wanted = start if isinstance(start, list) else [start]
        reached_at: dict[Any, Document] = {}
        for depth in range(argument.get("maxDepth", 99) + 1):
            fresh = [
                other
                for other in collections[argument["from"]]
                if other["_id"] not in reached_at and passes(other, {argument["connectToField"]: {"$in": wanted}})
            ]
            for other in fresh:
                reached_at[other["_id"]] = {**other, argument["depthField"]: Int64(depth)}
            wanted = []
            for other in fresh:
                value = field(other, argument["connectFromField"].split("."))
                wanted += value if isinstance(value, list) else [] if value is ABSENT else [value]
            if not wanted:
                break
        found.append(put(document, [argument["as"]], [reached_at[key] for key in sorted(reached_at)]))
    return found


def match(documents: Documents, filter: Document, variables: Document) -> Documents:
    condition = filter.get("$expr", True)
    rest = {name: value for name, value in filter.items() if name != "$expr"}
    return [d for d in documents if truth(evaluate(condition, d, variables)) and passes(d, rest)]


def run(
    pipeline: list[Document], documents: Documents, collections: Collections, variables: Document | None = None
) -> Documents:
    """What a pipeline gives for documents. variables: the `let` of a $lookup around it."""
    for stage in pipeline:
        name, argument = next(iter(stage.items()))
        if name == "$match":
            documents = match(documents, argument, variables or {})
        elif name == "$facet":
            documents = [{key: run(branch, documents, collections) for key, branch in argument.items()}]
        elif name == "$lookup":
            documents = lookup(documents, argument, collections)
        elif name == "$graphLookup":
            documents = graph_lookup(documents, argument, collections)
        elif name == "$unionWith":
            union: Document = {"coll": argument} if isinstance(argument, str) else argument
            documents = documents + run(union.get("pipeline", []), collections[union["coll"]], collections)
        else:
            documents = STAGES[name](documents, argument)
    return documents


STAGES: dict[str, Callable[[Documents, Any], Documents]] = {
    "$addFields": add_fields,
    "$set": add_fields,
    "$project": project,
    "$unset": unset,
    "$replaceRoot": lambda documents, argument: replace_root(documents, argument["newRoot"]),
    "$replaceWith": replace_root,
    "$unwind": unwind,
    "$sort": sort,
    "$skip": lambda documents, count: documents[count:],
    "$limit": lambda documents, count: documents[:count],
    "$count": lambda documents, name: [{name: len(documents)}] if documents else [],
    "$group": group,
    "$sortByCount": sort_by_count,
    "$bucket": bucket,
    "$bucketAuto": bucket_auto,
    "$setWindowFields": set_window_fields,
}
