"""`$accumulator`: an accumulator in JavaScript.

Source: MongoDB's manual, "$accumulator (aggregation)".
"""

from typing import TYPE_CHECKING, Final

from mongottl.document.build import encode, value_size
from mongottl.document.types import JavaScript, Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.expr import Constant, Expression, parse_expression
from mongottl.query.expr.accumulators import AccumulatorState
from mongottl.query.expr.parser import type_of
from mongottl.query.expr.script import function_text
from mongottl.query.pipeline.accumulators import AccumulatorSpec, accumulator, of_key

if TYPE_CHECKING:
    from mongottl.javascript.scripts import Scripts

# Lists of arguments, and about how many bytes of them, that wait for their call, so that many go into one request.
_MAX_WAITING: Final = 128
_MAX_WAITING_BYTES: Final = 1 << 20


class Functions:
    """The functions of an `$accumulator`; finalize is empty if there is none."""

    def __init__(self, accumulate: str, finalize: str, scripts: "Scripts") -> None:
        self.accumulate: Final = accumulate
        self.finalize: Final = finalize
        self.scripts: Scripts = scripts


class ScriptState(AccumulatorState):
    """The state of a group: a value that only the functions understand."""

    def __init__(self, functions: Functions, state: Value) -> None:
        self._functions: Final = functions
        self._state = state
        self._waiting: list[list[Value]] = []
        self._waiting_bytes = 0
        self._size = 0

    def add(self, value: Value) -> None:
        if not isinstance(value, list):
            raise CommandError(4544712, f"The accumulateArgs of $accumulator must be an array, found {type_of(value)}")
        self._waiting.append(value)
        self._waiting_bytes += value_size(value)
        if len(self._waiting) >= _MAX_WAITING or self._waiting_bytes >= _MAX_WAITING_BYTES:
            self._accumulate()

    def result(self) -> Value:
        self._accumulate()
        functions = self._functions
        if not functions.finalize:
            return self._state
        value: Value = functions.scripts.call(functions.finalize, [self._state])
        return value

    def _accumulate(self) -> None:
        waiting = self._waiting
        if waiting:
            self._waiting = []
            self._waiting_bytes = 0
            functions = self._functions
            self._state = functions.scripts.accumulate(functions.accumulate, self._state, waiting)
            self._size = value_size(self._state)

    def size(self) -> int:
        return 64 + self._size + self._waiting_bytes

    def grows(self) -> bool:
        return True


class ScriptAccumulator(AccumulatorSpec):
    """`{$accumulator: {init, initArgs, accumulate, accumulateArgs, merge, finalize, lang: "js"}}`.

    There is one state per group, so `merge` is never called.
    """

    def __init__(
        self,
        field: str,
        name: str,
        argument: Expression,
        init: str,
        init_arguments: Expression,
        functions: Functions,
        specification: bytes,
    ) -> None:
        super().__init__(field, name, argument)
        self._init: Final = init
        self._init_arguments: Final = init_arguments
        self._functions: Final = functions
        self._specification: Final = specification

    def start(self, key: Value) -> AccumulatorState:
        arguments = of_key(self._init_arguments, key)
        if not isinstance(arguments, list):
            raise CommandError(4544711, f"The initArgs of $accumulator must be an array, found {type_of(arguments)}")
        return ScriptState(self._functions, self._functions.scripts.call(self._init, arguments))

    def describe(self) -> Value:
        return encode({self.name: self._specification})


@accumulator("$accumulator", since=(4, 4))
def parse_script_accumulator(field: str, name: str, argument: Value, ctx: ParseContext) -> AccumulatorSpec:
    """The functions are strings or code. 4544703 for an argument that is no object, 4544706 for an unknown field,
    4544707 to 4544710 without a required one, 4544702 for a function of another type, 4544704 and 4544705 for another
    language.
    """
    if not isinstance(argument, bytes):
        raise CommandError(4544703, f"$accumulator expects an object as an argument; found {type_of(argument)}")
    functions = {"init": "", "accumulate": "", "merge": "", "finalize": ""}
    lists: dict[str, Expression] = {"initArgs": Constant([]), "accumulateArgs": Constant([])}
    given: set[str] = set()
    for key, value in fields(argument):
        given.add(key)
        if key in functions:
            functions[key] = _function(key, value, ctx)
        elif key in lists:
            lists[key] = parse_expression(value, ctx)
        elif key == "lang":
            if not isinstance(value, str):
                raise CommandError(4544704, f"The lang of $accumulator must be a string; found {type_of(value)}")
            if value != "js":
                raise CommandError(4544705, "$accumulator only supports lang: 'js'")
        else:
            raise CommandError(4544706, f"$accumulator got an unexpected field: {key}")
    for code, key in ((4544707, "init"), (4544708, "accumulate"), (4544709, "merge"), (4544710, "lang")):
        if key not in given:
            raise CommandError(code, f"$accumulator is missing the required argument '{key}'")
    scripts = ctx.open_scripts(name)
    return ScriptAccumulator(
        field,
        name,
        lists["accumulateArgs"],
        functions["init"],
        lists["initArgs"],
        Functions(functions["accumulate"], functions["finalize"], scripts),
        argument,
    )


def _function(key: str, value: Value, ctx: ParseContext) -> str:
    if isinstance(value, JavaScript):
        constant: Value = value
    else:
        node = parse_expression(value, ctx)
        constant = node.value if isinstance(node, Constant) else None
    code = function_text(constant)
    if code is None:
        raise CommandError(4544702, f"$accumulator '{key}' must be a constant string or code")
    return code
