"""`$redact`: keeps, removes or descends into each level of a document."""

from typing import Final

from mongottl.document.annotated import copy_metadata
from mongottl.document.build import DocumentBuilder, encode
from mongottl.document.render import render_result
from mongottl.document.types import ARRAY, DOCUMENT, MISSING, Value
from mongottl.document.walk import ElementCursor, decode_array
from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.expr import EvaluationContext, Expression, Scope, parse_expression
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.source import DocumentSource, MappedSource
from mongottl.query.pipeline.stage import StageSpec, StageTraits, stage
from mongottl.versions import OLDEST

_DESCEND: Final = "descend"
_PRUNE: Final = "prune"
_KEEP: Final = "keep"


class RedactSpec(StageSpec):
    """`$redact`.

    slot: of the current level, `$$CURRENT`.
    """

    def __init__(self, expression: Expression, slot: int) -> None:
        self.name = "$redact"
        self.shrinks = True
        self.expression: Final = expression
        self.slot: Final = slot

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return RedactSource(source, self.expression, self.slot, run)

    def describe(self) -> Value:
        return encode({"$redact": self.expression.describe()})


class RedactSource(MappedSource):
    def __init__(self, source: DocumentSource, expression: Expression, slot: int, run: RunContext) -> None:
        super().__init__(source)
        self._expression: Final = expression
        self._slot: Final = slot
        self._ev: Final = run.evaluation()

    def mapped(self, document: bytes) -> bytes | None:
        self._ev.root = document
        redacted = redact(document, self._expression, self._slot, self._ev)
        return copy_metadata(document, redacted) if isinstance(redacted, bytes) else None


def redact(doc: bytes, expression: Expression, slot: int, ev: EvaluationContext) -> Value:
    """The redacted level; MISSING if it is removed. 17053 for a result other than the three system variables."""
    ev.bind(slot, doc)
    verdict = expression.evaluate(ev)
    if verdict == _KEEP:
        return doc
    if verdict == _PRUNE:
        return MISSING
    if verdict != _DESCEND:
        raise CommandError(
            17053,
            "$redact's expression should not return anything aside from the variables $$KEEP, $$DESCEND, and $$PRUNE, "
            f"but returned {render_result(verdict)}",
        )
    builder = DocumentBuilder()
    cursor = ElementCursor(doc, 0)
    while cursor.next():
        if cursor.type_code == DOCUMENT:
            inner = doc[cursor.value : cursor.end]
            builder.append_named(cursor.name_bytes(), redact(inner, expression, slot, ev))
        elif cursor.type_code == ARRAY:
            builder.append_named(
                cursor.name_bytes(), _redact_array(decode_array(doc, cursor.value), expression, slot, ev)
            )
        else:
            builder.append_raw_element(cursor.raw_element())
    return builder.finish()


def _redact_array(array: list[Value], expression: Expression, slot: int, ev: EvaluationContext) -> Value:
    kept: list[Value] = []
    for item in array:
        if isinstance(item, bytes):
            inner = redact(item, expression, slot, ev)
            if isinstance(inner, bytes):
                kept.append(inner)
        elif isinstance(item, list):
            kept.append(_redact_array(item, expression, slot, ev))
        else:
            kept.append(item)
    return kept


@stage("$redact", StageTraits(streaming=True, in_change_stream=True), since=OLDEST)
def parse_redact(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`<expression>` with `$$DESCEND`, `$$PRUNE` and `$$KEEP`."""
    scope = Scope(ctx).define({"DESCEND": _DESCEND, "PRUNE": _PRUNE, "KEEP": _KEEP}).bind(["CURRENT"])
    return [RedactSpec(parse_expression(argument, ctx, scope), scope.slots["CURRENT"])]
