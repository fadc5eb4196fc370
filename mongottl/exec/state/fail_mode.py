"""When fail points act: the `mode` of `configureFailPoint`."""

from mongottl.document.numbers import whole
from mongottl.document.types import Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode


class Mode:
    """times: how many more times a fail point acts, None for always. skip: how many times it is first skipped."""

    def __init__(self, times: int | None, skip: int) -> None:
        self.times = times
        self.skip = skip

    def acts(self) -> bool:
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None:
            if self.times <= 0:
                return False
            self.times -= 1
        return True


def parse_mode(mode: Value) -> Mode | None:
    """The `mode` of a fail point; None for "off". BadValue (2), TypeMismatch (14)."""
    if isinstance(mode, str):
        if mode == "off":
            return None
        if mode == "alwaysOn":
            return Mode(None, 0)
        raise CommandError(ErrorCode.BadValue, f"unknown mode: {mode}")
    if not isinstance(mode, bytes):
        raise CommandError(ErrorCode.TypeMismatch, "'mode' must be a string or an object")
    times: int | None = None
    skip = 0
    for option, value in fields(mode):
        number = whole(value)
        if option not in ("times", "skip"):
            raise CommandError(ErrorCode.BadValue, f"'mode' option '{option}' is not supported")
        if number is None or number < 0:
            raise CommandError(ErrorCode.BadValue, f"'mode' option '{option}' must be a whole number of at least 0")
        if option == "times":
            times = number
        else:
            skip = number
    return Mode(times, skip)
