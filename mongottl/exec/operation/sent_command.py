"""A command as its client has sent it, for what looks at it after its request was parsed: the log, the profiler,
`$currentOp`, and commands with fields that no request declares.

    dispatch   ── once the request is parsed ──► op.command
    getMore    ── without a comment of its own ──► op.command = op.command.with_comment(…)
"""

from typing import Final

from mypy_extensions import mypyc_attr

from mongottl.document.types import Value

NO_FIELDS: Final[dict[str, Value]] = {}
NO_SEQUENCES: Final[list[tuple[str, list[bytes]]]] = []


@mypyc_attr(acyclic=True, free_list_len=1)
class SentCommand:
    """The command of one operation; it is never changed. NO_COMMAND is that of what the server does itself."""

    def __init__(
        self,
        spec: object = None,
        body: bytes = b"",
        sequences: list[tuple[str, list[bytes]]] = NO_SEQUENCES,
        comment: Value = None,
        extra_fields: dict[str, Value] = NO_FIELDS,
        raw_data: bool = False,
        has_write_concern: bool = False,
    ) -> None:
        # Of the command (`commands.registry`); None if no client has sent it.
        self.spec: Final = spec
        # Its document and its document sequences, by their identifiers.
        self.body: Final = body
        self.sequences: Final = sequences
        # Its `comment`, None without one.
        self.comment: Final = comment
        # Fields with names that are not declared, of commands that accept any (getParameter, setParameter).
        self.extra_fields: Final = extra_fields
        # Whether it applies to the buckets of a time series collection (`rawData`).
        self.raw_data: Final = raw_data
        # Whether it has a field `writeConcern`.
        self.has_write_concern: Final = has_write_concern

    def with_comment(self, comment: Value) -> "SentCommand":
        """The command with another comment: that of its cursor."""
        return SentCommand(
            self.spec, self.body, self.sequences, comment, self.extra_fields, self.raw_data, self.has_write_concern
        )


NO_COMMAND: Final = SentCommand()
