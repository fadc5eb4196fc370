"""What the wrapped stores ask of the wrapped engine at each call."""

from collections.abc import Callable
from types import TracebackType

from mongottl.storage.errors import EngineUnavailable
from mongottl.storage.interface import WriteUnitOfWork


class ContractCalls:
    """Whether calls are allowed at present. unit: the open unit of work of the engine within. check_logged: asserts
    after the commit that the record is there which the open unit has added last to a log; None if it has added none."""

    def __init__(self) -> None:
        self.unit: WriteUnitOfWork | None = None
        self.closed = False
        self.check_logged: Callable[[], None] | None = None

    def require_open(self, method: str) -> None:
        assert not self.closed, f"{method} after close"

    def batch_bytes(self, max_bytes: int) -> int:
        """The `max_bytes` that the engine within is given, for a test that wants batches shorter than asked for."""
        return max_bytes

    def require_unit(self, method: str) -> None:
        assert not self.closed, f"{method} after close"
        assert self.unit is not None, f"{method} outside a unit of work"


class Allowed:
    """A block from which only EngineUnavailable, and errors of the class `error`, may be raised."""

    def __init__(self, method: str, error: type[Exception] | None = None) -> None:
        self._method = method
        self._error = error

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or not issubclass(kind, Exception) or issubclass(kind, EngineUnavailable):
            return
        allowed = self._error
        assert allowed is not None and issubclass(kind, allowed), f"{self._method} raised {kind.__name__}: {error}"
