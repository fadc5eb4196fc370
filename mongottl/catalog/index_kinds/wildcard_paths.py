"""The paths that a wildcard index includes: those below its own path, restricted by its `wildcardProjection`.

{"$**": 1}                                all but _id
{"a.b.$**": 1}                            a.b and what is below it
{"$**": 1}, {a: 1, "b.c": 1}              a and b.c, and what is below them
{"$**": 1}, {a: 0, _id: 1}                all but a; _id as well
"""

from typing import Final

from mongottl.document.build import encode_fields
from mongottl.document.freeing import list_for
from mongottl.document.interrupt import give_way
from mongottl.document.sorting import sort_in_parts
from mongottl.document.types import Value, is_number
from mongottl.document.utf8 import decode_text, encode_text
from mongottl.document.walk import fields, first_field_name, is_empty
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.projection.nodes import EXCLUDE, INCLUDE, NODE, ProjectionNode
from mongottl.query.projection.parser import ProjectionParser

COMPUTED_IN_WILDCARD_PROJECTION: Final = 51271

# Whether an index includes all paths of a field, none, or those that its `PathNode` names.
ALL: Final = 0
NOTHING: Final = 1
SOME: Final = 2


class PathNode:
    """Which fields of a document, and which paths below them, are included.

    rest: ALL or NOTHING, for the fields that are not named.
    """

    def __init__(self, rest: int) -> None:
        self.rest = rest
        self.named: dict[bytes, int] = {}
        self.nodes: dict[bytes, PathNode] = {}

    def inclusion(self, name: bytes) -> int:
        """ALL, NOTHING or SOME; for SOME `nodes` has the field's node."""
        return self.named.get(name, self.rest)

    def put(self, name: bytes, inclusion: int) -> None:
        self.named[name] = inclusion

    def put_node(self, name: bytes, node: "PathNode") -> None:
        self.named[name] = SOME
        self.nodes[name] = node

    def holds(self, path: str) -> bool:
        """Whether a path and all paths below it are included."""
        return self._reached(path)[0] == ALL

    def holds_values(self, path: str) -> bool:
        """Whether the values at a path are included, even if some paths below it are not."""
        inclusion, node = self._reached(path)
        return inclusion == ALL or (inclusion == SOME and node.rest == ALL)

    def holds_any(self, path: str) -> bool:
        """Whether a path, or any path below it, is included."""
        return self._reached(path)[0] != NOTHING

    def _reached(self, path: str) -> "tuple[int, PathNode]":
        """ALL, NOTHING or SOME for a path; for SOME also the node of its fields."""
        node = self
        for part in path.split("."):
            name = encode_text(part)
            inclusion = node.inclusion(name)
            if inclusion != SOME:
                return inclusion, node
            node = node.nodes[name]
        return SOME, node


def below(path: str) -> PathNode:
    """The paths that an index on `path` + ".$**" includes."""
    root = PathNode(NOTHING)
    node = root
    parts = path.split(".")
    for part in parts[:-1]:
        child = PathNode(NOTHING)
        node.put_node(encode_text(part), child)
        node = child
    node.put(encode_text(parts[-1]), ALL)
    return root


def everything() -> PathNode:
    """The paths that an index on "$**" without a projection includes."""
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
        give_way()
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
        give_way()
        name = encode_text(entry.name)
        if entry.kind == NODE and entry.node is not None:
            node.put_node(name, _path_node(entry.node, inclusive))
        elif entry.kind == INCLUDE:
            node.put(name, ALL)
        elif entry.kind == EXCLUDE:
            node.put(name, NOTHING)
    return node


def signature(spec: bytes) -> bytes:
    """A value that is equal for two wildcard projections that include the same paths."""
    return _described(parse_wildcard_projection(spec))


def _described(node: PathNode) -> bytes:
    pairs: list[tuple[str, Value]] = list_for(len(node.named))
    pairs.append(("", node.rest))
    for name in sort_in_parts([*node.named]):
        give_way()
        below = node.nodes.get(name)
        inclusion: Value = node.named[name] if below is None else _described(below)
        pairs.append((decode_text(name), inclusion))
    return encode_fields(pairs)
