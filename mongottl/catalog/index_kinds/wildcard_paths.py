"""Which paths a wildcard index holds: those below its own path, as its `wildcardProjection` narrows them.

{"$**": 1}                                all but _id
{"a.b.$**": 1}                            a.b and what is below it
{"$**": 1}, {a: 1, "b.c": 1}              a and b.c, and what is below them
{"$**": 1}, {a: 0, _id: 1}                all but a; _id as well
"""

from typing import Final

from mongottl.document.build import encode_fields
from mongottl.document.types import Value, is_number
from mongottl.document.walk import fields, first_field_name, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.projection.nodes import EXCLUDE, INCLUDE, NODE, ProjectionNode
from mongottl.query.projection.parser import ProjectionParser

COMPUTED_IN_WILDCARD_PROJECTION: Final = 51271

# What becomes of a field: all of it is held, nothing, or what its `PathNode` says.
ALL: Final = 0
NOTHING: Final = 1
SOME: Final = 2


class PathNode:
    """What is held of the fields of one document. rest: ALL or NOTHING, of those that are not named."""

    def __init__(self, rest: int) -> None:
        self.rest = rest
        self.named: dict[bytes, int] = {}
        self.nodes: dict[bytes, PathNode] = {}

    def fate(self, name: bytes) -> int:
        """ALL, NOTHING or SOME; for SOME `nodes` has the field's node."""
        return self.named.get(name, self.rest)

    def put(self, name: bytes, fate: int) -> None:
        self.named[name] = fate

    def put_node(self, name: bytes, node: "PathNode") -> None:
        self.named[name] = SOME
        self.nodes[name] = node

    def holds(self, path: str) -> bool:
        """Whether all of what is at a path, and below it, is held."""
        return self._reached(path)[0] == ALL

    def holds_values(self, path: str) -> bool:
        """Whether the values at a path are held, be it without what is in documents there."""
        fate, node = self._reached(path)
        return fate == ALL or (fate == SOME and node.rest == ALL)

    def touches(self, path: str) -> bool:
        """Whether anything at a path, or below it, is held."""
        return self._reached(path)[0] != NOTHING

    def _reached(self, path: str) -> "tuple[int, PathNode]":
        """The fate of what is at a path; where that is SOME, the node that says of what."""
        node = self
        for part in path.split("."):
            name = part.encode()
            fate = node.fate(name)
            if fate != SOME:
                return fate, node
            node = node.nodes[name]
        return SOME, node


def below(path: str) -> PathNode:
    """What the index on `path` + ".$**" holds."""
    root = PathNode(NOTHING)
    node = root
    parts = path.split(".")
    for part in parts[:-1]:
        child = PathNode(NOTHING)
        node.put_node(part.encode(), child)
        node = child
    node.put(parts[-1].encode(), ALL)
    return root


def everything() -> PathNode:
    """What the index on "$**" holds without a projection."""
    root = PathNode(ALL)
    root.put(b"_id", NOTHING)
    return root


def parse_wildcard_projection(spec: bytes) -> PathNode:
    """`wildcardProjection` of "$**".

    FailedToParse (9) if it is empty, 51271 for computed fields, else the errors of `query.projection`.
    """
    if is_empty(spec):
        raise CommandError(ErrorCode.FailedToParse, "The 'wildcardProjection' field cannot be an empty object")
    parser = ProjectionParser(ParseContext(), for_find=False)
    _check_nothing_computed(spec)
    for name, value in fields(spec):
        parser.add(name, value)
    inclusive = parser.id_included if parser.inclusive is None else parser.inclusive
    root = _path_node(parser.root, inclusive)
    if b"_id" not in root.named:
        root.put(b"_id", NOTHING)
    return root


def _check_nothing_computed(spec: bytes) -> None:
    for name, value in fields(spec):
        if isinstance(value, bytes) and not first_field_name(value).startswith("$"):
            _check_nothing_computed(value)
        elif not isinstance(value, bool) and not is_number(value):
            raise CommandError(
                COMPUTED_IN_WILDCARD_PROJECTION,
                f"Bad projection specification, a wildcardProjection cannot have computed fields: {name}",
            )


def _path_node(projected: ProjectionNode, inclusive: bool) -> PathNode:
    node = PathNode(NOTHING if inclusive else ALL)
    for entry in projected.entries:
        name = entry.name.encode()
        if entry.kind == NODE and entry.node is not None:
            node.put_node(name, _path_node(entry.node, inclusive))
        elif entry.kind == INCLUDE:
            node.put(name, ALL)
        elif entry.kind == EXCLUDE:
            node.put(name, NOTHING)
    return node


def signature(spec: bytes) -> bytes:
    """What tells two wildcard projections apart: not how they are written."""
    return _described(parse_wildcard_projection(spec))


def _described(node: PathNode) -> bytes:
    pairs: list[tuple[str, Value]] = [("", node.rest)]
    for name in sorted(node.named):
        below = node.nodes.get(name)
        fate: Value = node.named[name] if below is None else _described(below)
        pairs.append((name.decode(), fate))
    return encode_fields(pairs)
