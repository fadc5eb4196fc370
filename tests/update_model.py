"""A slow, obvious model of update modifiers over decoded documents.

A path with positional parts is first written out as the paths of single values; each modifier is then a plain change of
one value.
"""

import copy
from typing import Any

from bson import Int64

from tests.match_model import order, passes
from tests.pipeline_model import distinct, sort


class ModelError(Exception):
    """The model refuses the update."""


def step(container: Any, part: str) -> Any:
    """The key of a part in a document or array, or None if the container can have no such part."""
    if isinstance(container, dict):
        return part
    if isinstance(container, list) and part.isdigit():
        return int(part)
    return None


def has(container: Any, key: Any) -> bool:
    return key in container if isinstance(container, dict) else key < len(container)


def put(container: Any, key: Any, value: Any) -> None:
    if isinstance(container, list):
        while len(container) <= key:
            container.append(None)
    container[key] = value


REMOVING = ("$unset", "$pop", "$pull", "$pullAll")


def change(document: Any, path: str, name: str, operand: Any) -> None:
    """One modifier at one path."""
    at = document
    parts = path.split(".")
    for i, part in enumerate(parts):
        key = step(at, part)
        if key is None:
            if name == "$unset":
                return
            raise ModelError(28)
        last = i == len(parts) - 1
        if not has(at, key):
            if name not in REMOVING:
                put(at, key, make(parts[i + 1 :], name, operand))
            return
        if last:
            change_value(at, key, name, operand)
            return
        at = at[key]


def make(parts: list[str], name: str, operand: Any) -> Any:
    """What a modifier makes where there is nothing."""
    if parts:
        return {parts[0]: make(parts[1:], name, operand)}
    if name == "$push":
        return pushed([], operand)
    if name == "$addToSet":
        return distinct(each(operand))
    if name == "$mul":
        return typed(operand * 0, operand, operand)
    if name == "$bit":
        return bits(type(operand["or"])(0), operand)
    return copy.deepcopy(operand)


def number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ModelError(14)
    return value


def typed(result: Any, one: Any, other: Any) -> Any:
    """A whole number is an int64 if one of those that it was made of is."""
    return Int64(result) if isinstance(result, int) and Int64 in (type(one), type(other)) else result


def bits(value: Any, operand: dict[str, Any]) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ModelError(2)
    return typed(int(value) | operand["or"], value, operand["or"])


def array(value: Any, code: int) -> list[Any]:
    if not isinstance(value, list):
        raise ModelError(code)
    return value


def each(operand: Any) -> list[Any]:
    return list(operand["$each"]) if isinstance(operand, dict) and "$each" in operand else [operand]


def pushed(value: list[Any], operand: Any) -> list[Any]:
    """$push: put in at $position, then sorted, then cut to the $slice first or last."""
    clauses = operand if isinstance(operand, dict) and "$each" in operand else {}
    place = clauses.get("$position", len(value))
    place = max(0, len(value) + place) if place < 0 else min(place, len(value))
    found = [*value[:place], *each(operand), *value[place:]]
    if isinstance(clauses.get("$sort"), dict):
        holders = [{"v": item if isinstance(item, dict) else {}, "item": item} for item in found]
        pattern = {f"v.{path}": direction for path, direction in clauses["$sort"].items()}
        found = [holder["item"] for holder in sort(holders, pattern)]
    elif "$sort" in clauses:
        # By the values as they are: as the only elements of arrays, so that arrays count as a whole.
        holders = [{"v": [item]} for item in found]
        found = [holder["v"][0] for holder in sort(holders, {"v": clauses["$sort"]})]
    limit = clauses.get("$slice")
    return found if limit is None else found[:limit] if limit >= 0 else found[limit:]


def is_pulled(item: Any, condition: Any) -> bool:
    if isinstance(condition, dict) and not next(iter(condition), "").startswith("$"):
        return isinstance(item, dict) and passes(item, condition)
    if isinstance(condition, dict):
        return passes({"v": item}, {"v": condition})
    return order(item, condition) == 0


def change_value(container: Any, key: Any, name: str, operand: Any) -> None:
    value = container[key]
    if name == "$set":
        container[key] = copy.deepcopy(operand)
    elif name == "$unset":
        if isinstance(container, list):
            container[key] = None
        else:
            del container[key]
    elif name in ("$inc", "$mul"):
        result = number(value) + operand if name == "$inc" else number(value) * operand
        result = typed(result, value, operand)
        if type(result) is not type(value) or result != value:
            container[key] = result
    elif name in ("$min", "$max"):
        if order(operand, value) * (1 if name == "$max" else -1) > 0:
            container[key] = operand
    elif name == "$bit":
        container[key] = bits(value, operand)
    elif name == "$push":
        container[key] = pushed(array(value, 2), copy.deepcopy(operand))
    elif name == "$addToSet":
        old = array(value, 2)
        new = [item for item in distinct(each(operand)) if not any(order(item, there) == 0 for there in old)]
        container[key] = old + new
    elif name == "$pop":
        old = array(value, 14)
        container[key] = old[:-1] if operand == 1 else old[1:]
    elif name == "$pull":
        container[key] = [item for item in array(value, 2) if not is_pulled(item, operand)]
    elif name == "$pullAll":
        unwanted = operand
        container[key] = [item for item in array(value, 2) if not any(order(item, other) == 0 for other in unwanted)]


def written_out(document: Any, path: str, matched: int | None, filters: dict[str, Any]) -> list[str]:
    """The paths that a path with positional parts stands for.

    matched: the element that the query found, for `$`. filters: array filters by their identifiers.
    """
    found: list[tuple[list[str], Any]] = [([], document)]
    for part in path.split("."):
        below: list[tuple[list[str], Any]] = []
        for prefix, value in found:
            if part == "$":
                if matched is None:
                    raise ModelError(2)
                keys = [str(matched)]
            elif part.startswith("$["):
                if not isinstance(value, list):
                    raise ModelError(2)
                name = part[2:-1]
                keys = [str(i) for i, item in enumerate(value) if not name or passes({name: item}, filters[name])]
            else:
                keys = [part]
            below += [([*prefix, key], member(value, key)) for key in keys]
        found = below
    return [".".join(parts) for parts, _ in found]


def member(value: Any, part: str) -> Any:
    key = step(value, part)
    return value[key] if key is not None and has(value, key) else None
