"""What a dialect consists of, and the two dialects."""

from mongottl.account import Account
from mongottl.dialect.cosmos import replies
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode


class Dialect:
    """What one kind of server refuses, and how its replies differ.

    refused_commands: commands that exist but are refused with CommandNotSupported (115).
    reply_types: command to the `_t` that its replies begin with.
    date_ttl_refusal: the text that refuses `expireAfterSeconds` on a field other than `_ts`, or None where it works.
    retryable_writes_refusal: the text that refuses writes with a `txnNumber`, or None where they work.
    runs_scripts: whether there is JavaScript on the server.
    cluster_times: whether replies have `$clusterTime` and `operationTime`.
    shows_oplog: whether there is a `local.oplog.rs`.
    index_conflict: the text for an index whose options differ from those of an existing one with the same name or key;
        `{name}` in it stands for the name of that one. Empty for MongoDB's text.
    uri_options: the options that a connection string needs for this kind of server.
    account: the Cosmos DB account that the server stands for, or None for MongoDB.
    """

    def __init__(
        self,
        name: str,
        refused_commands: frozenset[str] = frozenset(),
        reply_types: dict[str, str] | None = None,
        date_ttl_refusal: str | None = None,
        max_message_size_bytes: int = 48_000_000,
        max_write_batch_size: int = 100_000,
        retryable_writes_refusal: str | None = None,
        uri_options: str = "",
        index_conflict: str = "",
        cluster_times: bool = True,
        runs_scripts: bool = True,
        shows_oplog: bool = True,
        account: Account | None = None,
    ) -> None:
        self.name = name
        self.refused_commands = refused_commands
        self.reply_types: dict[str, str] = {} if reply_types is None else reply_types
        self.date_ttl_refusal = date_ttl_refusal
        self.max_message_size_bytes = max_message_size_bytes
        self.max_write_batch_size = max_write_batch_size
        self.retryable_writes_refusal = retryable_writes_refusal
        self.uri_options = uri_options
        self.index_conflict = index_conflict
        self.cluster_times = cluster_times
        self.runs_scripts = runs_scripts
        self.shows_oplog = shows_oplog
        self.account = account

    def check_command(self, name: str) -> None:
        """CommandNotSupported (115) for a command that this kind of server does not have."""
        if name in self.refused_commands:
            raise CommandError(ErrorCode.CommandNotSupported, f"Command {name} not supported")

    def check_retryable_write(self) -> None:
        """BadValue (2) where writes cannot be retried."""
        account = self.account
        if account is not None and account.can("EnableMongoRetryableWrites"):
            return
        if self.retryable_writes_refusal is not None:
            raise CommandError(ErrorCode.BadValue, self.retryable_writes_refusal)

    def with_reply_type(self, command: str, reply: dict[str, Value]) -> dict[str, Value]:
        """The reply with the `_t` that this kind of server puts before it, if any."""
        reply_type = self.reply_types.get(command)
        if reply_type is None:
            return reply
        return {"_t": reply_type, **reply}


def dialect_named(name: str) -> Dialect:
    """The dialect of a `--dialect` value."""
    if name == "cosmos":
        return Dialect(
            "cosmos",
            replies.REFUSED_COMMANDS,
            replies.REPLY_TYPES,
            replies.DATE_TTL_REFUSAL,
            replies.MAX_MESSAGE_SIZE_BYTES,
            replies.MAX_WRITE_BATCH_SIZE,
            replies.RETRYABLE_WRITES_REFUSAL,
            replies.URI_OPTIONS,
            replies.INDEX_CONFLICT,
            cluster_times=False,
            runs_scripts=False,
            shows_oplog=False,
            account=Account(),
        )
    return Dialect("mongodb")
