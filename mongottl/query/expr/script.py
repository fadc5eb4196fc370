"""`$function`: a function in JavaScript.

Source: MongoDB's manual, "$function (aggregation)".
"""

from typing import TYPE_CHECKING, Final

from mongottl.document.build import encode
from mongottl.document.types import JavaScript, Value
from mongottl.document.walk import fields_by_name
from mongottl.errors import CommandError
from mongottl.query.expr.base import Constant, EvaluationContext, Expression, Scope, expression_parser
from mongottl.query.expr.parser import parse_operand, type_of

if TYPE_CHECKING:
    from mongottl.javascript.scripts import Scripts

_FIELDS: Final = ("body", "args", "lang")


class ScriptFunctionExpression(Expression):
    """`{$function: {body, args, lang: "js"}}`."""

    def __init__(self, body: str, arguments: Expression, scripts: "Scripts") -> None:
        self.body: Final = body
        self.arguments: Final = arguments
        self._scripts: Scripts = scripts

    def evaluate(self, ev: EvaluationContext) -> Value:
        """The function's value. 31266 if `args` is no array, and errors as of `Scripts.call`."""
        arguments = self.arguments.evaluate(ev)
        if not isinstance(arguments, list):
            raise CommandError(31266, f"The args of $function must be an array, but found {type_of(arguments)}")
        value: Value = self._scripts.call(self.body, arguments)
        return value

    def operands(self) -> list[Expression]:
        return [self.arguments]

    def foldable(self) -> bool:
        return False

    def describe(self) -> Value:
        return encode(
            {"$function": encode({"body": self.body, "args": self.arguments.describe(), "lang": "js"})},
        )


@expression_parser("$function", since=(4, 4))
def parse_function(name: str, argument: Value, scope: Scope) -> Expression:
    """`{body: <string or code>, args: [<expression>, …], lang: "js"}`.

    31260 for another type, 31261, 31263 and 31418 without one of the fields, 31432 for a body that is no constant,
    31262 for one of another type, 31419 for another language.
    """
    if not isinstance(argument, bytes):
        raise CommandError(31260, f"$function requires an object as an argument, found: {type_of(argument)}")
    given = fields_by_name(argument)
    for field in given:
        if field not in _FIELDS:
            raise CommandError(31264, f"$function found an unknown argument: {field}")
    if "body" not in given:
        raise CommandError(31261, "The body of $function must be specified.")
    if "args" not in given:
        raise CommandError(31263, "The args of $function must be specified.")
    if "lang" not in given:
        raise CommandError(31418, "The lang of $function must be specified.")
    body = parse_operand(given["body"], scope)
    if not isinstance(body, Constant):
        raise CommandError(31432, "The body of $function must be a constant expression")
    code = function_text(body.value)
    if code is None:
        raise CommandError(31262, f"The body of $function must be a string or code, found: {type_of(body.value)}")
    if given["lang"] != "js":
        raise CommandError(31419, "Currently the only supported language specifier is 'js'.")
    arguments = parse_operand(given["args"], scope)
    return ScriptFunctionExpression(code, arguments, scope.ctx.open_scripts(name))


def function_text(value: Value) -> str | None:
    """The text of a function that is given as a string or as code without scope; None for another value."""
    if isinstance(value, JavaScript):
        return value.code if value.scope is None else None
    return value if isinstance(value, str) else None
