"""Builds the tree from the `path: value` fields of modifiers, and detects conflicts."""

from mypy_extensions import i64

from mongottl.document.interrupt import give_way
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.update.nodes import ArrayFilter, ArrayNode, ModifierNode, ObjectNode, UpdateNode
from mongottl.query.update.paths import is_filter_part, split_update_path
from mongottl.query.update.registry import ModifierParser, Operand
from mongottl.query.update.rename import RenameSource, RenameTarget


class TreeBuilder:
    """Collects modifiers into a tree.

    filters: the command's array filters by identifier; used: the identifiers that occur in paths.
    paths: every path added, in order.
    """

    def __init__(self, filters: dict[str, ArrayFilter]) -> None:
        self.root = ObjectNode()
        self.filters = filters
        self.used: set[str] = set()
        self.paths: list[str] = []
        self.positional: bool = False

    def add(self, operand: Operand, parser: ModifierParser, ctx: ParseContext) -> None:
        """Adds a modifier's leaf at its path. ConflictingUpdateOperators (40) if another one changes an overlapping
        path."""
        give_way()
        parts = split_update_path(operand.path)
        leaf = parser(operand, ctx)
        if isinstance(leaf, RenameTarget):
            self._add_leaf(operand.path, parts, RenameSource(creates=False))
            self._add_leaf(leaf.target_path, leaf.target, leaf)
        else:
            self._add_leaf(operand.path, parts, leaf)

    def _add_leaf(self, path: str, parts: list[str], leaf: ModifierNode) -> None:
        node: UpdateNode = self.root
        last: i64 = i64(len(parts)) - 1
        depth: i64 = 0
        while depth < last:
            name = self._child_name(path, parts[depth])
            below_array = is_filter_part(parts[depth + 1])
            child = _get(node, name)
            if child is None:
                child = ArrayNode(self.filters) if below_array else ObjectNode()
                _put(node, name, child)
            elif (below_array and not isinstance(child, ArrayNode)) or (
                not below_array and not isinstance(child, ObjectNode)
            ):
                raise _conflict(path, ".".join(parts[: depth + 1]))
            node = child
            depth += 1
        name = self._child_name(path, parts[last])
        if _get(node, name) is not None:
            raise _conflict(path, path)
        _put(node, name, leaf)
        self.paths.append(path)

    def _child_name(self, path: str, part: str) -> str:
        """The name of a component in the tree: identifiers without `$[` and `]`."""
        if part == "$":
            self.positional = True
            return part
        if not is_filter_part(part):
            return part
        identifier = part[2:-1]
        if identifier != "":
            if identifier not in self.filters:
                raise CommandError(
                    ErrorCode.BadValue, f"No array filter found for identifier '{identifier}' in path '{path}'"
                )
            self.used.add(identifier)
        return identifier


def _conflict(path: str, conflicting_path: str) -> CommandError:
    return CommandError(
        ErrorCode.ConflictingUpdateOperators,
        f"Updating the path '{path}' would create a conflict at '{conflicting_path}'",
    )


def _get(node: UpdateNode, name: str) -> UpdateNode | None:
    if isinstance(node, ObjectNode):
        return node.get(name)
    assert isinstance(node, ArrayNode)  # never a leaf: _add_leaf reports the conflict before
    return node.get(name)


def _put(node: UpdateNode, name: str, child: UpdateNode) -> None:
    if isinstance(node, ObjectNode):
        node.put(name, child)
        return
    assert isinstance(node, ArrayNode)
    node.put(name, child)
