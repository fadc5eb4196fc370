"""`$documents`: documents given in the pipeline itself."""

from typing import Final

from mongottl.document.build import encode
from mongottl.document.types import Value
from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.expr import EvaluationContext, Expression, parse_expression
from mongottl.query.expr.parser import type_of
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.source import DocumentSource, ListSource
from mongottl.query.pipeline.stage import StageSpec, StageTraits, stage


class DocumentsSpec(StageSpec):
    def __init__(self, expression: Expression) -> None:
        self.name = "$documents"
        self.first_only = True
        self.expression: Final = expression

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        return ListSource(_documents(self.expression.evaluate(EvaluationContext())))

    def describe(self) -> Value:
        return encode({"$documents": self.expression.describe()})


def _documents(value: Value) -> list[bytes]:
    if not isinstance(value, list):
        raise CommandError(5858203, f"error during evaluation of $documents: expected an array, got {type_of(value)}")
    documents: list[bytes] = []
    for item in value:
        if not isinstance(item, bytes):
            raise CommandError(40228, f"$documents needs an array of objects, and an element is {type_of(item)}")
        documents.append(item)
    return documents


@stage("$documents", StageTraits(in_facet=False, collectionless=True, actions=()), since=(5, 1))
def parse_documents(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{$documents: <expression>}`: an array of documents, without a collection."""
    return [DocumentsSpec(parse_expression(argument, ctx))]
