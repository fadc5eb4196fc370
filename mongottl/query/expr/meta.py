"""`$meta`: the metadata of a document."""

from typing import Final

from mongottl.document.annotated import metadata_of
from mongottl.document.build import encode
from mongottl.document.types import MISSING, Value
from mongottl.errors import CommandError
from mongottl.query.expr.base import EvaluationContext, Expression, Scope, expression_parser
from mongottl.query.metadata import KEYWORDS
from mongottl.versions import OLDEST


class MetaExpression(Expression):
    """A piece of metadata of the current document; MISSING if the document does not have it."""

    def __init__(self, keyword: str) -> None:
        self.keyword: Final = keyword

    def evaluate(self, ev: EvaluationContext) -> Value:
        return metadata_of(ev.root).get(self.keyword, MISSING)

    def describe(self) -> Value:
        return encode({"$meta": self.keyword})

    def collect_paths(self, paths: set[str]) -> bool:
        # Needs the whole document: a document of selected fields has no metadata.
        return False

    def foldable(self) -> bool:
        return False


@expression_parser("$meta", since=OLDEST)
def parse_meta(name: str, argument: Value, scope: Scope) -> Expression:
    """`<keyword>`. 17307 if it is not a string, 17308 for an unknown one."""
    if not isinstance(argument, str):
        raise CommandError(17307, "$meta only supports string arguments")
    if argument not in KEYWORDS:
        raise CommandError(17308, f"Unsupported argument to $meta: {argument}")
    scope.ctx.metadata.requested.add(argument)
    return MetaExpression(argument)
