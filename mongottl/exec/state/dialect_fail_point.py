"""A fail point of a dialect, as `failpoints` keeps it: what another kind of server does at random, a test provokes."""

from abc import ABC, abstractmethod

from mypy_extensions import mypyc_attr

from mongottl.errors import CommandError
from mongottl.exec.state.fail_mode import Mode


@mypyc_attr(allow_interpreted_subclasses=True)
class DialectFailPoint(ABC):
    """An active fail point. item: the statement of a batch that fails, from 0 on."""

    def __init__(self, name: str, mode: Mode) -> None:
        self.name = name
        self.mode = mode
        self.item = 0

    @abstractmethod
    def acts_on(
        self, names: tuple[str, ...], on_documents: bool, namespace: str, app_name: str, statements: int
    ) -> bool:
        """Whether a command is to fail now, which counts as one of its times.

        names: of the command, with its aliases. on_documents: whether it reads or writes documents. statements: of a
        batch, 1 for other commands.
        """
        raise NotImplementedError

    @abstractmethod
    def error(self, operation: str, usual_form: str) -> CommandError:
        """The error of the command, or of its statement `item`. operation: "Insert", "Update", "Delete" or "Query".
        usual_form: of the error's text, unless the fail point has one."""
        raise NotImplementedError
