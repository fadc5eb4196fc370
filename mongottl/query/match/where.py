"""`$where`: tests whole documents with JavaScript."""

from typing import TYPE_CHECKING

from mypy_extensions import i64

from mongottl.document.types import JavaScript, Value
from mongottl.document.walk import read_embedded
from mongottl.query.context import ParseContext
from mongottl.query.match.registry import bad_value, root_operator
from mongottl.query.match.tree import MatchExpression, WholeDocumentExpression

if TYPE_CHECKING:
    from mongottl.javascript.scripts import Scripts


class WhereExpression(WholeDocumentExpression):
    """`{$where: code}`: matches if the function, expression or function body is true; the document is `this` and
    `obj`."""

    def __init__(self, code: str, scripts: "Scripts") -> None:
        self.code = code
        self._scripts: Scripts = scripts

    def matches_at(self, buf: bytes, start: i64) -> bool:
        return bool(self._scripts.matches(self.code, buf if start == 0 else read_embedded(buf, start)))

    def describe(self) -> Value:
        return {"$where": JavaScript(self.code)}


@root_operator("$where")
def parse_where(operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{$where: string or code}`. BadValue for another type, for code with a scope, and in filters other than those of
    commands, such as `$match`.
    """
    if not ctx.takes_near:
        raise bad_value("$where is not allowed in this context")
    if isinstance(operand, JavaScript):
        if operand.scope is not None:
            raise bad_value("$where does not take code with a scope")
        return WhereExpression(operand.code, ctx.open_scripts("$where"))
    if not isinstance(operand, str):
        raise bad_value("$where got bad type")
    return WhereExpression(operand, ctx.open_scripts("$where"))
