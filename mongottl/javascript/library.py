"""Checks whether the package for server-side JavaScript, quickjs-ng, is installed."""

import os
from importlib.util import find_spec

from mongottl.errors import CommandError, ErrorCode
from mongottl.extras import to_install


def missing_reason() -> str:
    """Why JavaScript cannot be run here, or "" if it can."""
    if os.name != "posix":
        return "JavaScript is not supported on this operating system"
    if find_spec("quickjs") is None:
        return f"JavaScript needs the Python package 'quickjs-ng': {to_install('javascript')}"
    return ""


def refusal(name: str, reason: str) -> CommandError:
    """CommandNotSupported (115); for `$where` BadValue (2), as mongod without an engine.

    name: of the operator or command. reason: why it cannot be run.
    """
    code = ErrorCode.BadValue if name == "$where" else ErrorCode.CommandNotSupported
    return CommandError(code, f"{name} is not supported: {reason}")
