"""From `path: value` entries of modifiers to the tree: which paths may be updated, and which conflict."""

from mypy_extensions import i64

from mongottl.document.types import STRING
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.update.fields import RenameSource, RenameTarget
from mongottl.query.update.nodes import ArrayFilter, ArrayNode, ModifierNode, ObjectNode, UpdateNode
from mongottl.query.update.registry import ModifierParser, Operand


def is_filter_part(part: str) -> bool:
    """Whether a component is `$[]` or `$[identifier]`."""
    return len(part) >= 3 and part.startswith("$[") and part.endswith("]")


def split_update_path(path: str) -> list[str]:
    """The components of a path that an update may name.

    EmptyFieldName (56) for empty components; BadValue (2) for a second `$`, or a positional part in first place.
    """
    if path == "":
        raise CommandError(ErrorCode.EmptyFieldName, "An empty update path is not valid.")
    parts = path.split(".")
    if "" in parts:
        raise CommandError(
            ErrorCode.EmptyFieldName,
            f"The update path '{path}' contains an empty field name, which is not allowed.",
        )
    positional = 0
    for part in parts:
        if part == "$":
            positional += 1
    if positional > 1:
        raise CommandError(ErrorCode.BadValue, f"Too many positional (i.e. '$') elements found in path '{path}'")
    if parts[0] == "$":
        raise CommandError(
            ErrorCode.BadValue,
            f"Cannot have positional (i.e. '$') element in the first position in path '{path}'",
        )
    if is_filter_part(parts[0]):
        raise CommandError(
            ErrorCode.BadValue,
            f"Cannot have array filter identifier (i.e. '$[<id>]') element in the first position in path '{path}'",
        )
    return parts


class TreeBuilder:
    """Collects modifiers into a tree.

    filters: the command's array filters by identifier; used: the identifiers that paths have named.
    paths: every path added, in order.
    """

    def __init__(self, filters: dict[str, ArrayFilter]) -> None:
        self.root = ObjectNode()
        self.filters = filters
        self.used: set[str] = set()
        self.paths: list[str] = []
        self.positional: bool = False

    def add(self, operand: Operand, parser: ModifierParser, ctx: ParseContext) -> None:
        """Puts a modifier's leaf at its path. ConflictingUpdateOperators (40) where another changes the same place."""
        parts = split_update_path(operand.path)
        self._add_leaf(operand.path, parts, parser(operand, ctx))

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
        """A component as the nodes name it: identifiers without `$[` and `]`."""
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

    def add_rename(self, operand: Operand) -> None:
        """`{$rename: {source: target}}`: two leaves. BadValue (2) for paths that cannot be renamed."""
        source = operand.path
        source_parts = split_update_path(source)
        self._add_leaf(source, source_parts, RenameSource(creates=False))
        if operand.type_code != STRING:
            raise CommandError(ErrorCode.BadValue, f"The 'to' field for $rename must be a string: {operand.show()}")
        target = str(operand.value())
        if "\0" in target:
            raise CommandError(ErrorCode.BadValue, "The 'to' field for $rename cannot contain an embedded null byte")
        target_parts = split_update_path(target)
        if source == target:
            raise CommandError(
                ErrorCode.BadValue, f"The source and target field for $rename must differ: {operand.show()}"
            )
        shorter = min(len(source_parts), len(target_parts))
        if source_parts[:shorter] == target_parts[:shorter]:
            raise CommandError(
                ErrorCode.BadValue,
                f"The source and target field for $rename must not be on the same path: {operand.show()}",
            )
        _check_static("source", source, source_parts)
        _check_static("destination", target, target_parts)
        self._add_leaf(target, target_parts, RenameTarget(source, target))


def _check_static(role: str, path: str, parts: list[str]) -> None:
    for part in parts:
        if part == "$" or is_filter_part(part):
            raise CommandError(ErrorCode.BadValue, f"The {role} field for $rename may not be dynamic: {path}")


def _conflict(path: str, place: str) -> CommandError:
    return CommandError(
        ErrorCode.ConflictingUpdateOperators, f"Updating the path '{path}' would create a conflict at '{place}'"
    )


def _get(node: UpdateNode, name: str) -> UpdateNode | None:
    if isinstance(node, ObjectNode):
        return node.get(name)
    assert isinstance(node, ArrayNode)  # leaves are never descended into: _add_leaf reports a conflict before
    return node.get(name)


def _put(node: UpdateNode, name: str, child: UpdateNode) -> None:
    if isinstance(node, ObjectNode):
        node.put(name, child)
        return
    assert isinstance(node, ArrayNode)
    node.put(name, child)
