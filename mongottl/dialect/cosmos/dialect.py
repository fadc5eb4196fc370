"""The dialect `cosmos`: what an account of Azure Cosmos DB for MongoDB answers otherwise than MongoDB."""

from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.index import IndexDescriptor
from mongottl.catalog.namespace import Naming
from mongottl.commands.dialect_hooks import CommandHooks, FirstUsers, Gateway, PlannedFind, wrong_dialect
from mongottl.commands.registry import Reply
from mongottl.config import ServerConfig
from mongottl.dialect.cosmos import defects, indexes, limits, provisioning, replies, transactions, wording
from mongottl.dialect.cosmos.account import Account, AccountSettings
from mongottl.dialect.cosmos.advice import advice, allow, capability
from mongottl.dialect.cosmos.budgets import Budgets
from mongottl.dialect.cosmos.features import MISSING_FEATURES, CosmosFeatures
from mongottl.dialect.interface import Dialect, Limits
from mongottl.dialect.registry import dialect
from mongottl.document.types import Value
from mongottl.document.validate import check_depth
from mongottl.errors import CommandError, DuplicateKeyError, ErrorCode, WriteError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.service.service import ServiceContext

if TYPE_CHECKING:
    from mongottl.exec.results.cursors import ClientCursor
    from mongottl.query.match import MatchExpression
    from mongottl.query.pipeline.stage import StageSpec
    from mongottl.query.sort import SortPattern

_RETRYABLE_WRITES: Final = "EnableMongoRetryableWrites"
_SHARD_KEY_CHANGE: Final = "shard-key-change"
# Of an entry of listCollections, those without `collection-info`.
_BRIEF_FIELDS: Final = 3


class _Saved(NamedTuple):
    settings: AccountSettings
    spent: dict[str, tuple[int, int]]


@dialect("cosmos")
class CosmosDialect(Dialect, CommandHooks):
    """An account of Cosmos DB. account: as it is configured now. budgets: what is left of its throughput."""

    def __init__(self, config: ServerConfig) -> None:
        super().__init__(config)
        version = self.version
        self.account: Final = Account(version)
        self.account.configure(
            AccountSettings(
                frozenset(config.cosmos_capability),
                config.cosmos_backup,
                frozenset(config.cosmos_allow),
                config.cosmos_throughput,
                frozenset(config.cosmos_refuse),
                config.cosmos_batch_text,
            )
        )
        self.budgets: Final = Budgets()
        self.features = CosmosFeatures(version, self.account)
        self.reply_types = replies.reply_types(version)
        self.code_names = replies.CODE_NAMES
        self.cluster_times = False
        self.process_name = "mongottl"
        self.brief_build_info = version in replies.BRIEF_VERSIONS
        self.unknown_cursor = replies.UNKNOWN_CURSOR
        self.index_conflict = replies.INDEX_CONFLICT
        self.date_ttl_refusal = replies.DATE_TTL_REFUSAL
        # Source: Microsoft's "Expire data with Azure Cosmos DB for MongoDB", TTL on custom paths.
        self.numbers_are_dates = True
        self.lists_system_databases = False
        self.shows_oplog = False
        self.shows_only_index_builds = True
        self.has_last_errors = True
        self.names_indexes = False
        self.limits_indexes = False
        self.rebuilds_indexes = True
        self.sorts_need_index = True
        self.limits_transactions = True
        # A write error is recorded (github.com/cjoakim/azure-cosmos-db).
        self.timeouts_end_batches = False
        self.invalid_names_have_one_code = True
        self.charges_requests = True
        self.uri_options = replies.URI_OPTIONS
        name = config.cosmos_account
        if name is not None:
            self.demands_login = True
            self.secret_name = "account's key"
            self.unknown_user = f"there is no such user: the account is {name}"

    # Configuration.

    def limits(self) -> Limits:
        return limits.limits_of(self.account)

    def naming(self) -> Naming:
        return limits.CosmosNaming(self.account)

    def has_large_documents(self) -> bool:
        return limits.has_large_documents(self.account)

    def saved(self) -> object:
        return _Saved(self.account.settings, self.budgets.spent())

    def restore(self, saved: object) -> None:
        assert isinstance(saved, _Saved)
        self.account.configure(saved.settings)
        self.budgets.restore_spent(saved.spent)

    def wake_waiting(self) -> None:
        self.budgets.wake_waiting()

    def why_no_scripts(self) -> str:
        return "Cosmos DB runs no JavaScript" if self.account.refuses(MISSING_FEATURES) else ""

    def throughput_mode(self) -> str | None:
        return self.account.throughput

    # Connections, login and access.

    def has_hello(self) -> bool:
        return not self.account.refuses("hello")

    def hello_refused(self, is_logged_in: bool) -> CommandError:
        return wording.hello_refused(self.account, is_logged_in)

    def not_authenticated(self, command: str) -> CommandError:
        return CommandError(ErrorCode.Unauthorized, wording.not_authenticated())

    def not_authorized(self, command: str, error: CommandError) -> CommandError:
        return CommandError(
            ErrorCode.Unauthorized,
            wording.unauthorized(command),
            advice=advice("The client has logged in with the read-only key", "use the account's other key"),
        )

    # Documents and their sizes.

    def max_document_bytes(self, has_large_documents: bool) -> int:
        return limits.max_document_bytes(self.account, has_large_documents)

    def document_too_large(self, length: int, error: WriteError) -> WriteError:
        return limits.too_large(self.account, length)

    def document_too_deep(self, document: bytes, error: CommandError) -> CommandError:
        check_depth(document)
        return limits.too_deep()

    def id_too_long(self, length: int) -> WriteError:
        return limits.id_too_long(length)

    def large_batch_advice(self, size: int) -> str:
        return limits.large_batch_advice(self.account, size)

    def large_reply_advice(self) -> str:
        return limits.large_reply_advice(self.account)

    # Errors.

    def time_is_up(self, is_own_limit: bool) -> CommandError:
        return limits.time_is_up(is_own_limit)

    def duplicate_key(self, collection: Collection, index: CollectionIndex, key_value: bytes) -> DuplicateKeyError:
        text = wording.duplicate_key(collection.namespace)
        return DuplicateKeyError(ErrorCode.DuplicateKey, text, key_value=key_value)

    def duplicate_output_key(self, error: DuplicateKeyError, target: str) -> DuplicateKeyError:
        return DuplicateKeyError(error.code, wording.duplicate_key(target))

    def upsert_conflict(self, error: DuplicateKeyError) -> CommandError:
        return defects.upsert_error(self.account, error)

    # Retryable writes and transactions.

    def check_retryable_write(self) -> None:
        """BadValue (2) in an account without retryable writes."""
        if not self.retries_writes():
            raise CommandError(
                ErrorCode.BadValue,
                replies.RETRYABLE_WRITES_REFUSAL,
                advice=advice(
                    "The account has no retryable writes",
                    "connect with retryWrites=false",
                    capability(self.account, _RETRYABLE_WRITES, "4.0"),
                ),
            )

    def retries_writes(self) -> bool:
        """Whether the account has retryable writes, which came with version 4.0."""
        assert self.features is not None
        return self.account.can(_RETRYABLE_WRITES) and self.features.version >= (4, 0)

    def check_in_transaction(self, namespace: str, is_sharded: bool, used: Iterable[str]) -> None:
        transactions.check_collection(self.account, namespace, is_sharded, used)

    def transaction_ended(self, reason: str, is_out_of_time: bool) -> CommandError:
        return transactions.not_active(is_out_of_time and self.limits().max_transaction_ms > 0)

    # Queries.

    def check_missing_collection(self) -> None:
        defects.check_find_of_missing(self.account)

    def check_sort(self, collection: Collection | None, sort: "SortPattern", match: "MatchExpression") -> None:
        from mongottl.dialect.cosmos import served_sorts

        served_sorts.check_sort_is_served(self.account, collection, sort, match)

    def check_pipeline_sorts(self, collection: Collection | None, stages: "list[StageSpec]") -> None:
        from mongottl.dialect.cosmos import served_sorts

        served_sorts.check_pipeline_sorts(self.account, collection, stages)

    def check_pipeline(self, pipeline: list[Value]) -> None:
        defects.check_null_projection(self.account, pipeline)

    def describes_as_mongodb(self) -> bool:
        return not self.account.refuses(MISSING_FEATURES)

    # Collections and indexes.

    def refuses_existing(self, kind: str) -> bool:
        return self.account.refuses(provisioning.CREATE_EXISTING)

    def existing_advice(self, kind: str) -> str:
        return provisioning.CREATE_EXISTING_ADVICE

    def filters_listings(self) -> bool:
        return not self.account.refuses("collection-filter")

    def collection_fields(self, fields: tuple[str, ...]) -> tuple[str, ...]:
        return fields[:_BRIEF_FIELDS] if self.account.refuses("collection-info") else fields

    def accepted_index(self, spec: bytes) -> bytes:
        return indexes.accepted_spec(self.account, spec)

    def ignored_sparse(self, specs: list[bytes]) -> list[str]:
        return indexes.ignored_sparse(self.account, specs)

    def requested_indexes(self, wanted: list[IndexDescriptor]) -> list[IndexDescriptor]:
        return indexes.check_requested(self.account, wanted)

    def check_new_indexes(
        self,
        collection: Collection | None,
        new: list[IndexDescriptor],
        with_collection: bool,
        dropped: Container[str],
        has_documents: Callable[[], bool],
    ) -> None:
        indexes.check_new_indexes(self.account, collection, new, with_collection, dropped, has_documents)

    def check_dropped_indexes(self, dropped: list[IndexDescriptor]) -> None:
        indexes.check_dropped_indexes(self.account, dropped)

    def listed_index(self, collection: Collection, descriptor: IndexDescriptor) -> bytes | None:
        return indexes.listed_index(collection, descriptor)

    # Collections with a shard key.

    def missing_shard_key(self, path: str) -> CommandError | None:
        return defects.missing_shard_key(self.account, path)

    def changed_shard_key(self, path: str) -> CommandError | None:
        error = super().changed_shard_key(path)
        if error is None or not self.account.refuses(_SHARD_KEY_CHANGE):
            return None
        error.advice = advice(
            f"The update changes the value of the shard key at {path}",
            "delete the document and insert it anew",
            allow(_SHARD_KEY_CHANGE),
        )
        return error

    def shard_key_too_long(self) -> WriteError:
        return limits.shard_key_too_long()

    def check_write_target(self, path: list[str], match: "MatchExpression", many: bool) -> None:
        """A write of all documents that match is refused only in an account with retryable writes."""
        if not many or self.retries_writes():
            from mongottl.dialect.cosmos import targeting

            targeting.check_targets_shard_key(self.account, path, match)

    # How commands are carried out.

    def gateway(self, service: ServiceContext) -> Gateway | None:
        from mongottl.dialect.cosmos.gateway import CosmosGateway

        return CosmosGateway(service, self.account, self.budgets)

    def units_per_s(self, service: ServiceContext, holder: str) -> int:
        from mongottl.dialect.cosmos.throughput import throughput_of

        database, _, collection = holder.partition(".")
        budget = throughput_of(service, database, collection)
        return budget.throughput.units_per_s if budget.holder == holder else 0

    def first_users(self, service: ServiceContext) -> FirstUsers | None:
        from mongottl.dialect.cosmos.account_user import make_account_users

        return make_account_users(service)

    def stream_pipeline(
        self, op: OperationContext, named: Value, name: str, collection: Collection | None, pipeline: list[Value]
    ) -> list[Value]:
        from mongottl.dialect.cosmos import feed_stream

        if not feed_stream.is_of_feed(self.account, named):
            return pipeline
        return feed_stream.feed_pipeline(op, self.account, name, collection, pipeline)

    def open_stream(
        self,
        op: OperationContext,
        named: Value,
        name: str,
        collection: Collection | None,
        stages: "list[StageSpec]",
    ) -> "ClientCursor":
        from mongottl.dialect.cosmos import feed_stream

        if collection is None or not feed_stream.is_of_feed(self.account, named):
            return super().open_stream(op, named, name, collection, stages)
        return feed_stream.open_change_feed(op, collection, stages)

    def explain_find(
        self, op: OperationContext, name: str, filter: bytes, command: bytes, plan: Callable[[], PlannedFind]
    ) -> Reply | None:
        if self.describes_as_mongodb():
            return None
        from mongottl.dialect.cosmos import explain_find

        return explain_find.explain_find(op, name, filter, command, plan)


def cosmos_of(service: ServiceContext) -> CosmosDialect:
    """The dialect of a server that stands for an account. CommandNotSupported (115) in another dialect."""
    dialect = service.dialect
    if not isinstance(dialect, CosmosDialect):
        raise wrong_dialect("cosmos")
    return dialect


def configure_account(service: ServiceContext, settings: AccountSettings) -> None:
    """Changes the account of a running server, as `Account.configure`. ValueError."""
    cosmos_of(service).account.configure(settings)
    service.apply_dialect()
