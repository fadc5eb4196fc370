"""The interface of a dialect: what the server asks where kinds of servers differ, with MongoDB's answers.

A dialect is a subclass of `Dialect` that gives other answers to some of the questions:

    facts      attributes; a dialect sets them in its `__init__`, after that of this class has set MongoDB's
    limits     `limits`, `naming`: sizes, times and names. The server keeps a copy (`ServiceContext.apply_dialect`), so
               that nothing is asked for each document.
    checks     `check_…`: return, or raise the error of what is refused
    errors     the CommandError of something that fails in any dialect, and the advice that goes with it
    forms      what replies look like

The module of a dialect is loaded by its name (`registry`). How commands are carried out is asked elsewhere, since it
takes what is above this layer: `commands.dialect_hooks`.
"""

from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.index import IndexDescriptor
from mongottl.catalog.namespace import MONGODB_NAMING, Naming
from mongottl.config import LATEST_VERSION, ServerConfig
from mongottl.document.freeing import LONG_BYTES
from mongottl.document.interrupt import begin_evaluation, end_evaluation
from mongottl.document.render import render_document
from mongottl.document.types import MAX_DOCUMENT_BYTES, Value
from mongottl.document.validate import MAX_DEPTH
from mongottl.errors import CommandError, DuplicateKeyError, ErrorCode, WriteError, code_name, is_interruption
from mongottl.versions import CREATE_AGAIN, SYNTAX, Features, Version, features_of, unknown_command
from mongottl.wire.messages import MAX_MESSAGE_SIZE

if TYPE_CHECKING:  # what a server does not import before the first query
    from mongottl.query.match import MatchExpression
    from mongottl.query.pipeline.stage import StageSpec
    from mongottl.query.sort import SortPattern

_MAX_WRITE_BATCH_SIZE: Final = 100_000
# A mongos took `create` of what exists before a mongod did (SERVER-60064).
_MONGOS_CREATES_AGAIN: Final[Version] = (4, 0)


class Limits:
    """Bounds on documents, messages and time; 0 for none.

    max_document_bytes: of a stored document, unless `Dialect.max_document_bytes` has another for its collection.
    max_depth: levels of documents and arrays in a stored document, itself included. max_id_bytes: of an `_id` that is a
    string. max_shard_key_bytes: of a value of the shard key. max_write_batch_size: writes of one command.
    max_message_bytes: of a message. max_operation_s: how long an operation may take. max_transaction_ms: the same of a
    transaction, besides its lifetime.
    """

    def __init__(self) -> None:
        self.max_document_bytes: int = MAX_DOCUMENT_BYTES
        self.max_depth: int = MAX_DEPTH
        self.max_id_bytes: int = 0
        self.max_shard_key_bytes: int = 0
        self.max_write_batch_size: int = _MAX_WRITE_BATCH_SIZE
        self.max_message_bytes: int = MAX_MESSAGE_SIZE
        self.max_operation_s: float = 0.0
        self.max_transaction_ms: int = 0


class InactiveTransaction(CommandError):
    """The error of a statement of a transaction that has ended, in a dialect in which it is a write error of insert,
    update and delete."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Dialect:
    """How one kind of server answers. Each fact and each answer here is MongoDB's."""

    def __init__(self, config: ServerConfig) -> None:
        self.name: str = config.dialect
        # The announced version of MongoDB, `major.minor`, and what it has; None if it has everything.
        self.version: str = config.announced_version()
        self.features: Features | None = features_of(self.version, LATEST_VERSION)
        self._is_mongos: bool = config.is_sharded
        # Command to the `_t` that its replies begin with.
        self.reply_types: dict[str, str] = {}
        # Names of error codes that differ from MongoDB's.
        self.code_names: dict[int, str] = {}
        # Whether replies have `$clusterTime` and `operationTime`.
        self.cluster_times: bool = True
        # What serverStatus calls the process, unless it answers as a mongos.
        self.process_name: str = "mongod"
        # Whether buildInfo has five fields only.
        self.brief_build_info: bool = False
        # Message of CursorNotFound, with `{id}`.
        self.unknown_cursor: str = "cursor id {id} not found"
        # Message of IndexOptionsConflict, with `{name}` of the existing index; "" for MongoDB's, which has both.
        self.index_conflict: str = ""
        # Message that refuses `expireAfterSeconds` on a field other than `_ts`; None where it works.
        self.date_ttl_refusal: str | None = None
        # Whether a date-field TTL index takes numbers as milliseconds since 1970.
        self.numbers_are_dates: bool = False
        # Whether listDatabases has `admin`, `config` and `local` in any case.
        self.lists_system_databases: bool = True
        # Whether there is a `local.oplog.rs`.
        self.shows_oplog: bool = True
        # Whether `$currentOp` shows index builds and nothing else.
        self.shows_only_index_builds: bool = False
        # Whether there is getLastError.
        self.has_last_errors: bool = self.features is not None and self.features.tells_last_errors
        # Whether listings of indexes name their namespaces.
        self.names_indexes: bool = self.features is not None and self.features.names_indexes
        # Whether a collection has at most 64 indexes.
        self.limits_indexes: bool = True
        # Whether reIndex rebuilds indexes; MongoDB has it on standalone servers only.
        self.rebuilds_indexes: bool = False
        # Whether a sort is refused that no index serves (`check_sort`).
        self.sorts_need_index: bool = False
        # Whether transactions are asked for each collection that they use, also for one that does not exist
        # (`check_in_transaction`).
        self.limits_transactions: bool = False
        # Whether a statement that takes too long ends its batch, or is one of its write errors.
        self.timeouts_end_batches: bool = True
        # Whether all names that a collection cannot have are refused by InvalidNamespace (73), those of `$out`, too.
        self.invalid_names_have_one_code: bool = False
        # Whether requests cost something that is counted (`exec.state.request_units`).
        self.charges_requests: bool = False
        # The options that a connection string needs for this kind of server.
        self.uri_options: str = ""
        # Whether clients have to log in, also without --auth.
        self.demands_login: bool = False
        # What the log calls a password, and says about a user that does not exist.
        self.secret_name: str = "password"
        self.unknown_user: str = "there is no such user"

    # Configuration.

    def limits(self) -> Limits:
        """The limits as they are now."""
        return Limits()

    def naming(self) -> Naming:
        """The rules for names of databases and collections, as they are now."""
        return MONGODB_NAMING

    def has_large_documents(self) -> bool:
        """Whether collections that are created now get the option `large_documents`."""
        return False

    def saved(self) -> object:
        """What commands have changed in the dialect, for `restore`: it is part of a saved state."""
        return None

    def restore(self, saved: object) -> None:
        """Makes that what it was. saved: of `saved`."""

    def wake_waiting(self) -> None:
        """Called after the clock was moved or the configuration has changed: what waits looks again."""

    def why_no_scripts(self) -> str:
        """Why the server runs no JavaScript; "" if the dialect does not forbid it."""
        return ""

    def throughput_mode(self) -> str | None:
        """What the server's page shows of throughput; None without."""
        return None

    # Connections, login and access.

    def has_hello(self) -> bool:
        """Whether there is the command `hello`."""
        return True

    def hello_refused(self, is_logged_in: bool) -> CommandError:
        """The error of `hello` where there is none."""
        return unknown_command("hello")

    def not_authenticated(self, command: str) -> CommandError:
        """Unauthorized (13) for a command of a client that has not logged in."""
        return CommandError(ErrorCode.Unauthorized, f"Command {command} requires authentication")

    def not_authorized(self, command: str, error: CommandError) -> CommandError:
        """The error of a command that the client's user may not run. error: MongoDB's."""
        return error

    # Documents and their sizes.

    def max_document_bytes(self, has_large_documents: bool) -> int:
        """The largest document of a collection. has_large_documents: its option `large_documents`."""
        return MAX_DOCUMENT_BYTES

    def document_too_large(self, length: int, error: WriteError) -> WriteError:
        """The error of a document beyond `max_document_bytes`. error: MongoDB's, BSONObjectTooLarge (10334)."""
        return error

    def document_too_deep(self, document: bytes, error: CommandError) -> CommandError:
        """The error of a document beyond the limit on levels. error: MongoDB's, Overflow (15)."""
        return error

    def id_too_long(self, length: int) -> WriteError:
        """The error of an `_id` beyond `Limits.max_id_bytes`, where there is such a limit. length: in bytes."""
        return WriteError(ErrorCode.BadValue, f"the _id of {length} bytes is too long")

    def large_batch_advice(self, size: int) -> str:
        """The advice for a batch of more writes than the limit."""
        return ""

    def large_reply_advice(self) -> str:
        """The advice for a reply that is too long, though MongoDB would send it."""
        return ""

    # Errors.

    def code_name(self, code: int) -> str:
        """The name of an error code."""
        return self.code_names.get(code) or code_name(code)

    def time_is_up(self, is_own_limit: bool) -> CommandError:
        """MaxTimeMSExpired (50). is_own_limit: whether it is the limit of `maxTimeMS`, not that of the server."""
        return CommandError(ErrorCode.MaxTimeMSExpired, "operation exceeded time limit")

    def duplicate_key(self, collection: Collection, index: CollectionIndex, key_value: bytes) -> DuplicateKeyError:
        """DuplicateKey (11000) of a write. key_value: the key as a document, `{path: value, …}`."""
        details: dict[str, object] = {"keyPattern": index.descriptor.key, "keyValue": key_value}
        where = f"{collection.namespace} index: {index.name}"
        collation = index.descriptor.collation
        if collation is not None:
            details["collation"] = collation.spec
            where += f" collation: {render_document(collation.spec)}"
        message = f"E11000 duplicate key error collection: {where} dup key: "
        if len(key_value) < LONG_BYTES:
            return DuplicateKeyError(ErrorCode.DuplicateKey, message + render_document(key_value), details, key_value)
        return DuplicateKeyError(
            ErrorCode.DuplicateKey, message, details, key_value, lambda: _rendered_long_key(key_value)
        )

    def duplicate_output_key(self, error: DuplicateKeyError, target: str) -> DuplicateKeyError:
        """DuplicateKey (11000) of `$out`. error: as the temporary collection gives it. target: namespace of the stage's
        collection."""
        return error

    def upsert_conflict(self, error: DuplicateKeyError) -> CommandError:
        """The error of an upsert of findAndModify whose `_id` exists already."""
        return error

    # Retryable writes and transactions.

    def check_retryable_write(self) -> None:
        """An error where writes cannot be retried."""

    def check_in_transaction(self, namespace: str, is_sharded: bool, used: Iterable[str]) -> None:
        """An error for a collection that a transaction cannot use. used: the namespaces that it has named before."""

    def transaction_ended(self, reason: str, is_out_of_time: bool) -> CommandError:
        """The error of a statement of a transaction that has ended; of the type InactiveTransaction where it is to be a
        write error. reason: why, in MongoDB's words. is_out_of_time: whether the transaction has taken too long."""
        return CommandError(ErrorCode.NoSuchTransaction, reason)

    # Queries.

    def check_missing_collection(self) -> None:
        """An error for a find in a collection that does not exist, which is empty in MongoDB."""

    def check_sort(self, collection: Collection | None, sort: "SortPattern", match: "MatchExpression") -> None:
        """An error for a sort that may not be served. collection: None if there is none. match: the filter of the
        documents that are sorted. Asked if `sorts_need_index`."""

    def check_pipeline_sorts(self, collection: Collection | None, stages: "list[StageSpec]") -> None:
        """The same for the `$sort` stages of a pipeline. Asked if `sorts_need_index`."""

    def check_pipeline(self, pipeline: list[Value]) -> None:
        """An error for an aggregation that cannot be served. pipeline: as it was sent."""

    def describes_as_mongodb(self) -> bool:
        """Whether serverStatus has fields, and explain of a find describes MongoDB's plans."""
        return True

    # Collections and indexes.

    def refuses_existing(self, kind: str) -> bool:
        """Whether `create` fails although what exists has the same options. kind: CREATE_AGAIN or
        CREATE_TIME_SERIES_AGAIN of `versions`."""
        if self.features is None:
            return False
        if self._is_mongos and kind == CREATE_AGAIN:
            return self.features.version < _MONGOS_CREATES_AGAIN
        return self.features.lacks(SYNTAX, kind)

    def existing_advice(self, kind: str) -> str:
        """The advice for what `refuses_existing`."""
        return "" if self.features is None else self.features.advice(SYNTAX, kind)

    def filters_listings(self) -> bool:
        """Whether listCollections finds something by a filter."""
        return True

    def collection_fields(self, fields: tuple[str, ...]) -> tuple[str, ...]:
        """The fields of a collection in listCollections. fields: MongoDB's."""
        return fields

    def accepted_index(self, spec: bytes) -> bytes:
        """An index specification without the options that are ignored; an error for what is refused unparsed."""
        return spec

    def ignored_sparse(self, specs: list[bytes]) -> list[str]:
        """The names of the indexes whose `sparse` is ignored, for the log."""
        return []

    def requested_indexes(self, wanted: list[IndexDescriptor]) -> list[IndexDescriptor]:
        """Those of the parsed indexes of a request that are made; an error for one that is refused by itself."""
        return wanted

    def check_new_indexes(
        self,
        collection: Collection | None,
        new: list[IndexDescriptor],
        with_collection: bool,
        dropped: Container[str],
        has_documents: Callable[[], bool],
    ) -> None:
        """An error for indexes that cannot be added to a collection.

        collection: None if it does not exist yet. with_collection: whether the same command has created it. dropped:
        names of indexes that are dropped before. has_documents: whether unexpired documents are in the collection.
        """

    def check_dropped_indexes(self, dropped: list[IndexDescriptor]) -> None:
        """An error for indexes that cannot be dropped."""

    def listed_index(self, collection: Collection, descriptor: IndexDescriptor) -> bytes | None:
        """An index as listIndexes shows it; None for MongoDB's form, which depends on the command's options."""
        return None

    # Collections with a shard key, which other dialects than the one that made them may open.

    def missing_shard_key(self, path: str) -> CommandError | None:
        """ShardKeyNotFound (61) for a document without a value of the shard key; None if it may be stored."""
        return WriteError(ErrorCode.ShardKeyNotFound, f"document does not contain shard key at '{path}'")

    def changed_shard_key(self, path: str) -> CommandError | None:
        """ImmutableField (66) for an update that changes the value of the shard key; None if it may be stored."""
        return WriteError(
            ErrorCode.ImmutableField,
            f"Performing an update on the path '{path}' would modify the immutable field '{path}'",
        )

    def shard_key_too_long(self) -> WriteError:
        """The error of a value beyond `Limits.max_shard_key_bytes`, where there is such a limit."""
        return WriteError(ErrorCode.BadValue, "the value of the shard key is too long")

    def check_write_target(self, path: list[str], match: "MatchExpression", many: bool) -> None:
        """An error for a write whose filter does not name one value of the shard key.

        path: of the shard key. many: whether it writes all documents that match.
        """

    # Replies.

    def with_reply_type(self, command: str, reply: dict[str, Value]) -> dict[str, Value]:
        """The reply with the `_t` that this kind of server puts before it, if any."""
        reply_type = self.reply_types.get(command)
        if reply_type is None:
            return reply
        return {"_t": reply_type, **reply}


def _rendered_long_key(key_value: bytes) -> str:
    """The key of a DuplicateKeyError as text; "" if the operation ends meanwhile, as it does where it next asks."""
    begun = begin_evaluation()
    try:
        return render_document(key_value)
    except CommandError as error:
        if is_interruption(error):
            return ""
        raise
    finally:
        if begun:
            end_evaluation()
