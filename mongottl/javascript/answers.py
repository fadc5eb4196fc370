"""Answers a request in a script process: converts BSON to JSON, calls a function of JavaScript, and converts back."""

from collections.abc import Callable

from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.javascript.messages import decode, encode_parts
from mongottl.javascript.values import from_json, parse_reply, to_json


def answer(invoke: Callable[[str], object], request: bytes) -> list[bytes]:
    """What `invoke` of environment.js returns for a request, in parts of one message: a list of

        the lines that scripts have printed, and the value; or
        the lines, the message of an error, its stack, "" for none, and its `code`, 0 for none.

    request: a list, the name of the request and its arguments. ValueError if a script has tampered with what makes the
    replies, or if there is no memory for them.
    """
    text = invoke(to_json(decode(request, 0, _ignore)))
    if not isinstance(text, str):
        raise ValueError("out of memory")
    reply = parse_reply(text)
    printed = reply.get("printed")
    lines: list[Value] = [_clean(line) for line in printed] if isinstance(printed, list) else []
    if "error" in reply:
        code = reply.get("code")
        number = int(code) if isinstance(code, float) else 0
        return _encoded([lines, _clean(reply["error"]), _clean(reply.get("stack") or ""), number])
    try:
        return _encoded([lines, from_json(reply.get("value"))])
    except CommandError as error:
        return _encoded([lines, error.message, "", error.code])
    except Exception as error:  # a script has made something that is no BSON, or no reply
        message = f"JavaScript execution failed: the result cannot be converted to BSON: {_clean(error)}"
        return _encoded([lines, message, "", int(ErrorCode.JSInterpreterFailure)])


def _encoded(reply: list[Value]) -> list[bytes]:
    return list(encode_parts(reply))


def _clean(text: object) -> str:
    """Text for a message; of JavaScript's text, what UTF-8 cannot express becomes a question mark."""
    return str(text).encode("utf-8", "replace").decode("utf-8")


def _ignore(size: int) -> None:
    pass
