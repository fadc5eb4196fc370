"""`$where`: tests whole documents with JavaScript."""

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from mongottl.document.types import JavaScript, Value
from mongottl.document.walk import read_embedded
from mongottl.query.context import ParseContext
from mongottl.query.match.registry import bad_value, root_operator
from mongottl.query.match.tree import MatchExpression, WholeDocumentExpression
from mongottl.versions import OLDEST

if TYPE_CHECKING:
    from mongottl.javascript.scripts import Scripts


# Documents, and about how many bytes of them, that one request tests ahead.
_AHEAD: Final = 64
_AHEAD_BYTES: Final = 256 * 1024


class WhereExpression(WholeDocumentExpression):
    """`{$where: code}`: matches if the function, expression or function body is true; the document is `this` and
    `obj`."""

    def __init__(self, code: str, scripts: "Scripts") -> None:
        self.code = code
        self._scripts: Scripts = scripts
        # What `test_ahead` has found for these documents, by their identity.
        self._ahead: list[bytes] = []
        self._found: dict[int, bool] = {}

    def test_ahead(self, documents: list[bytes]) -> None:
        """Tests documents that `matches` will be asked about next, many in one request.

        None from the first one on for which the script fails. Each must then be asked about once.
        """
        self._ahead = documents
        self._found = {}
        position = 0
        while position < len(documents):
            end = position
            room = _AHEAD_BYTES
            while end < len(documents) and end - position < _AHEAD and room > 0:
                room -= len(documents[end])
                end += 1
            part = documents[position:end]
            found: list[bool] = self._scripts.matches_some(self.code, part)
            for i in range(len(found)):
                self._found[id(part[i])] = found[i]
            if not found:
                return
            position += len(found)

    def matches_at(self, buf: bytes, start: i64) -> bool:
        if start == 0:
            found = self._found.pop(id(buf), None)
            if found is not None:
                if not self._found:
                    self._ahead = []
                return found
        return bool(self._scripts.matches(self.code, buf if start == 0 else read_embedded(buf, start)))

    def runs_scripts(self) -> bool:
        return True

    def asks_processes(self) -> bool:
        return True

    def describe(self) -> Value:
        return {"$where": JavaScript(self.code)}


@root_operator("$where", reasons=None, since=OLDEST)
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
