"""Updates and projections against a slow, obvious model over decoded documents."""

import copy
from typing import Any

import bson
from bson import Int64
from hypothesis import given
from hypothesis import strategies as st

from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.projection import parse_projection
from mongottl.query.update import parse_update
from tests.update_model import ModelError, change

NAMES = ["a", "b", "c", "0", "1"]
names = st.sampled_from(NAMES)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.sampled_from(["x", "", 1.5, -0.0, Int64(3), Int64(2**40)])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=6
)
documents = st.dictionaries(names, values, max_size=5).map(lambda fields: {"_id": 1, **fields})
paths = st.lists(names, min_size=1, max_size=3).map(".".join)


operations = st.one_of(
    st.tuples(st.just("$set"), values),
    st.tuples(st.just("$unset"), st.just("")),
    st.tuples(st.just("$inc"), st.integers(-5, 5)),
    st.tuples(st.just("$push"), values),
    st.tuples(st.just("$pop"), st.sampled_from([1, -1])),
    st.tuples(st.just("$pull"), st.integers(2, 9)),
)


def order(path: str) -> list[tuple[int, int, str]]:
    return [(0, len(part), part) if part.isdigit() else (1, 0, part) for part in path.split(".")]


def conflicting(one: str, other: str) -> bool:
    return one == other or one.startswith(other + ".") or other.startswith(one + ".")


@given(documents, st.dictionaries(paths, operations, min_size=1, max_size=4))
def test_modifiers_equal_the_model(document: Any, changes: dict[str, tuple[str, Any]]) -> None:
    chosen: dict[str, tuple[str, Any]] = {}
    for path, operation in changes.items():
        if not any(conflicting(path, other) for other in chosen):
            chosen[path] = operation
    update: dict[str, dict[str, Any]] = {}
    for path, (name, operand) in chosen.items():
        update.setdefault(name, {})[path] = operand
    expected = copy.deepcopy(document)
    refused = False
    for path in sorted(chosen, key=order):
        try:
            change(expected, path, *chosen[path])
        except ModelError:
            refused = True
    raw = bson.encode(document)
    driver = parse_update(bson.encode(update), ParseContext())
    try:
        outcome = driver.apply(raw, None, False)
    except CommandError as error:
        assert refused, error
        return
    assert not refused
    assert outcome.document == bson.encode(expected)
    assert outcome.modified or outcome.document is raw


@given(documents, paths, st.lists(st.tuples(names, st.integers(0, 255)), max_size=6))
def test_updates_keep_unnamed_fields_byte_for_byte(document: Any, path: str, noise: list[tuple[str, int]]) -> None:
    """Duplicate fields of other names around the changed one stay where and what they are."""
    before = b"".join(b"\x08%s!\x00%c" % (name.encode(), value & 1) for name, value in noise)
    body = bson.encode(document)[4:-1]
    raw = (len(before) * 2 + len(body) + 5).to_bytes(4, "little") + before + body + before + b"\x00"
    try:
        outcome = parse_update(bson.encode({"$set": {path: "new"}}), ParseContext()).apply(raw, None, False)
    except CommandError:
        return
    plain = bson.encode(document)
    alone = parse_update(bson.encode({"$set": {path: "new"}}), ParseContext()).apply(plain, None, False).document
    created = path.split(".")[0] not in document
    inner = alone[4:-1]
    tail = inner[len(body) :] if created else b""
    assert outcome.document[4:-1] == before + (body if created else inner) + before + tail


def included(value: Any, tree: Any) -> Any:
    if isinstance(value, dict):
        kept: dict[str, Any] = {}
        for name, member in value.items():
            if tree.get(name) is True:
                kept[name] = member
            elif name in tree and isinstance(member, (dict, list)):
                kept[name] = included(member, tree[name])
        return kept
    return [included(item, tree) for item in value if isinstance(item, (dict, list))]


def excluded(value: Any, tree: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: member if name not in tree else excluded(member, tree[name])
            for name, member in value.items()
            if tree.get(name) is not True
        }
    return [excluded(item, tree) for item in value] if isinstance(value, list) else value


@given(documents, st.lists(paths, min_size=1, max_size=4), st.booleans(), st.booleans())
def test_projections_equal_the_model(document: Any, wanted: list[str], inclusive: bool, with_id: bool) -> None:
    chosen: list[str] = []
    for path in wanted:
        if not any(conflicting(path, other) for other in chosen):
            chosen.append(path)
    tree: dict[str, Any] = {}
    for path in chosen:
        at = tree
        parts = path.split(".")
        for part in parts[:-1]:
            at = at.setdefault(part, {})
        at[parts[-1]] = True
    if inclusive == with_id:
        tree["_id"] = True
    spec: dict[str, Any] = dict.fromkeys(chosen, inclusive)
    spec["_id"] = with_id
    projection = parse_projection(bson.encode(spec), ParseContext(), True)
    assert projection.is_simple
    expected = included(document, tree) if inclusive else excluded(document, tree)
    assert projection.apply(bson.encode(document)) == bson.encode(expected)
