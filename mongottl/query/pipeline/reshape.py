"""`$addFields $set $replaceRoot $replaceWith`: documents with computed fields, or replaced by computed documents."""

from typing import Final

from mypy_extensions import i64

from mongottl.document.annotated import copy_metadata
from mongottl.document.bson_field import missing_field, unknown_field
from mongottl.document.build import EMPTY_DOCUMENT, DocumentBuilder, check_built, encode, encode_fields
from mongottl.document.freeing import LONG, LongDict, LongList, list_for
from mongottl.document.interrupt import give_way
from mongottl.document.path import check_field_path
from mongottl.document.render import render_result, render_value
from mongottl.document.types import ARRAY, DOCUMENT, Value
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import ElementCursor, fields
from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.expr import EvaluationContext, Expression, parse_expression
from mongottl.query.expr.parser import type_of
from mongottl.query.expr.path import FieldExpression
from mongottl.query.pipeline.effect import Effect
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.source import DocumentSource, MappedSource
from mongottl.query.pipeline.stage import StageSpec, StageTraits, stage
from mongottl.versions import OLDEST


class FieldTree:
    """Computed fields of one level of a document: each is an expression or a tree for the level below.

    `{"a.b": x, c: y}` is {a: {b: x}, c: y}. A tree is applied to each element of an array, and replaces a value that is
    not a document by a new one.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.name_bytes: list[bytes] = []
        self.expressions: list[Expression | None] = []
        self.trees: list[FieldTree | None] = []
        self._index: dict[bytes, int] = {}

    def position(self, name: str) -> int:
        """The index of a name, -1 if it is new."""
        return self._index.get(encode_text(name), -1)

    def add(self, name: str, expression: Expression | None, tree: "FieldTree | None") -> None:
        encoded = encode_text(name)
        self._index[encoded] = len(self.names)
        self.names.append(name)
        self.name_bytes.append(encoded)
        self.expressions.append(expression)
        self.trees.append(tree)
        if len(self.names) == LONG:
            self._index = LongDict(self._index)
            self.names = LongList(self.names)
            self.name_bytes = LongList(self.name_bytes)
            self.expressions = LongList(self.expressions)
            self.trees = LongList(self.trees)

    def apply(self, buf: bytes, start: i64, ev: EvaluationContext) -> bytes:
        """The document at `start` with the computed fields: existing ones keep their position, new ones are
        appended."""
        builder = DocumentBuilder()
        index = self._index
        seen = [False] * len(self.names)
        cursor = ElementCursor(buf, start)
        while cursor.next():
            i = index.get(cursor.name_bytes(), -1)
            if i < 0:
                builder.append_raw_element(cursor.raw_element())
            elif not seen[i]:
                seen[i] = True
                builder.append_named(self.name_bytes[i], self._computed(i, buf, cursor.type_code, cursor.value, ev))
        for i in range(len(seen)):
            if not seen[i]:
                builder.append_named(self.name_bytes[i], self._computed(i, buf, 0, 0, ev))
        return builder.finish()

    def _computed(self, i: int, buf: bytes, type_code: i64, pos: i64, ev: EvaluationContext) -> Value:
        give_way()
        expression = self.expressions[i]
        if expression is not None:
            return expression.evaluate(ev)
        tree = self.trees[i]
        if tree is None:
            raise AssertionError("a field has neither an expression nor fields of its own")
        return tree._applied(buf, type_code, pos, ev)

    def _applied(self, buf: bytes, type_code: i64, pos: i64, ev: EvaluationContext) -> Value:
        if type_code == DOCUMENT:
            return self.apply(buf, pos, ev)
        if type_code == ARRAY:
            values: list[Value] = []
            size: i64 = 0
            cursor = ElementCursor(buf, pos)
            while cursor.next():
                value = self._applied(buf, cursor.type_code, cursor.value, ev)
                values.append(value)
                if isinstance(value, bytes):
                    size += len(value)
                    check_built(size)
            return values
        return self.apply(EMPTY_DOCUMENT, 0, ev)

    def describe(self) -> Value:
        described: list[tuple[str, Value]] = list_for(len(self.names))
        for i in range(len(self.names)):
            give_way()
            expression = self.expressions[i]
            tree = self.trees[i]
            if expression is not None:
                described.append((self.names[i], expression.describe()))
            elif tree is not None:
                described.append((self.names[i], tree.describe()))
        return encode_fields(described)

    def collect_fields(self, needed: set[str]) -> bool:
        """Adds the root fields that the expressions read; False if they need the whole document."""
        for expression in self.expressions:
            give_way()
            if expression is not None and not expression.collect_fields(needed):
                return False
        for tree in self.trees:
            give_way()
            if tree is not None and not tree.collect_fields(needed):
                return False
        return True


def parse_field_tree(specification: bytes, ctx: ParseContext) -> FieldTree:
    """The computed fields of `$addFields`. 40176 for two conflicting paths, and the errors of paths and expressions."""
    tree = FieldTree()
    _add_fields(tree, specification, "", ctx)
    return tree


def _add_fields(tree: FieldTree, specification: bytes, prefix: str, ctx: ParseContext) -> None:
    for name, value in fields(specification):
        if prefix and "." in name:
            raise CommandError(
                40183, f"FieldPath field names may not contain '.' in a sub-object, found '{name}' at '{prefix}'"
            )
        path = name if not prefix else f"{prefix}.{name}"
        check_field_path(name)
        _add_field(tree, name.split("."), value, path, ctx)


def _add_field(tree: FieldTree, parts: list[str], value: Value, path: str, ctx: ParseContext) -> None:
    for part in parts[:-1]:
        tree = _subtree(tree, part, path)
    last = parts[-1]
    if isinstance(value, bytes) and len(value) > 5:
        members = fields(value)
        if not members[0][0].startswith("$"):
            _add_fields(_subtree(tree, last, path), value, path, ctx)
            return
        if len(members) > 1:
            raise CommandError(
                40181,
                "an expression specification must contain exactly one field, the name of the expression. Found"
                f" {len(members)} fields in {render_value(value)}, while parsing object '{path}'",
            )
    if tree.position(last) >= 0:
        raise _conflict(path)
    tree.add(last, parse_expression(value, ctx), None)


def _subtree(tree: FieldTree, name: str, path: str) -> FieldTree:
    position = tree.position(name)
    if position < 0:
        inner = FieldTree()
        tree.add(name, None, inner)
        return inner
    existing = tree.trees[position]
    if existing is None:
        raise _conflict(path)
    return existing


def _conflict(path: str) -> CommandError:
    return CommandError(
        40176, f"Invalid $addFields :: caused by :: specification contains two conflicting paths: '{path}'"
    )


class AddFieldsSpec(StageSpec):
    def __init__(self, name: str, tree: FieldTree) -> None:
        self.name = name
        self.tree: Final = tree
        self.one_to_one = True

    def effect(self) -> Effect | None:
        renames: dict[str, str] = {} if len(self.tree.names) < LONG else LongDict({})
        for i in range(len(self.tree.names)):
            give_way()
            expression = self.tree.expressions[i]
            if isinstance(expression, FieldExpression):
                renames[self.tree.names[i]] = expression.name
        return Effect(self.tree.names, renames)

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return AddFieldsSource(source, self.tree, run)

    def describe(self) -> Value:
        return encode({self.name: self.tree.describe()})


class AddFieldsSource(MappedSource):
    def __init__(self, source: DocumentSource, tree: FieldTree, run: RunContext) -> None:
        super().__init__(source)
        self._tree: Final = tree
        self._keeps_metadata: Final = bool(run.metadata)
        self._ev: Final = run.evaluation()

    def mapped(self, document: bytes) -> bytes | None:
        self._ev.root = document
        changed = self._tree.apply(document, 0, self._ev)
        return copy_metadata(document, changed) if self._keeps_metadata else changed


def _parse_add_fields(name: str, argument: Value, ctx: ParseContext) -> list[StageSpec]:
    if not isinstance(argument, bytes):
        raise CommandError(40272, f"{name} specification stage must be an object, got {type_of(argument)}")
    return [AddFieldsSpec(name, parse_field_tree(argument, ctx))]


@stage("$addFields", StageTraits(streaming=True, in_update=True, in_change_stream=True), since=OLDEST)
def parse_add_fields(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{$addFields: {<path>: <expression>, …}}`. 40272 if it is not a document."""
    return _parse_add_fields("$addFields", argument, ctx)


@stage("$set", StageTraits(streaming=True, in_update=True, in_change_stream=True), since=(4, 2))
def parse_set(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{$set: {<path>: <expression>, …}}`, an alias of `$addFields`."""
    return _parse_add_fields("$set", argument, ctx)


class ReplaceRootSpec(StageSpec):
    def __init__(self, expression: Expression) -> None:
        self.name = "$replaceRoot"
        self.expression: Final = expression
        self.one_to_one = True

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return ReplaceRootSource(source, self.expression, run)

    def describe(self) -> Value:
        return encode({"$replaceRoot": {"newRoot": self.expression.describe()}})


class ReplaceRootSource(MappedSource):
    def __init__(self, source: DocumentSource, expression: Expression, run: RunContext) -> None:
        super().__init__(source)
        self._expression: Final = expression
        self._keeps_metadata: Final = bool(run.metadata)
        self._ev: Final = run.evaluation()

    def mapped(self, document: bytes) -> bytes | None:
        self._ev.root = document
        value = self._expression.evaluate(self._ev)
        if not isinstance(value, bytes):
            raise CommandError(
                40228,
                "'newRoot' expression must evaluate to an object, but resulting value was: "
                f"{render_result(value)}. Type of resulting value: '{type_of(value)}'.",
            )
        return copy_metadata(document, value) if self._keeps_metadata else value


@stage("$replaceRoot", StageTraits(streaming=True, in_update=True, planned=True, in_change_stream=True), since=OLDEST)
def parse_replace_root(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{$replaceRoot: {newRoot: <expression>}}`. 40229 if it is not a document; 40415, 40414 for its fields."""
    if not isinstance(argument, bytes):
        raise CommandError(
            40229, f"expected an object as specification for $replaceRoot stage, got {type_of(argument)}"
        )
    root: Expression | None = None
    for name, value in fields(argument):
        if name != "newRoot":
            raise unknown_field(f"$replaceRoot.{name}")
        root = parse_expression(value, ctx)
    if root is None:
        raise missing_field("$replaceRoot.newRoot")
    return [ReplaceRootSpec(root)]


@stage("$replaceWith", StageTraits(streaming=True, in_update=True, planned=True, in_change_stream=True), since=(4, 2))
def parse_replace_with(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{$replaceWith: <expression>}`."""
    return [ReplaceRootSpec(parse_expression(argument, ctx))]
