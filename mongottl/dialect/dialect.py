"""What a dialect consists of, and the two dialects."""

from typing import Final

from mongottl.account import Account
from mongottl.config import LATEST_VERSION
from mongottl.dialect.cosmos import replies
from mongottl.dialect.cosmos.advice import advice, capability
from mongottl.dialect.cosmos.features import MISSING_FEATURES, CosmosFeatures
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode, code_name
from mongottl.versions import Features, features_of

_RETRYABLE_WRITES: Final = "EnableMongoRetryableWrites"


class Dialect:
    """What one kind of server refuses, and how its replies differ.

    features: what the announced version has; None if it has everything.
    reply_types: command to the `_t` that its replies begin with.
    date_ttl_refusal: the text that refuses `expireAfterSeconds` on a field other than `_ts`, or None where it works.
    retryable_writes_refusal: the text that refuses writes with a `txnNumber`, or None where they work.
    cluster_times: whether replies have `$clusterTime` and `operationTime`.
    shows_oplog: whether there is a `local.oplog.rs`.
    index_conflict: the text for an index whose options differ from those of an existing one with the same name or key;
        `{name}` in it stands for the name of that one. Empty for MongoDB's text.
    uri_options: the options that a connection string needs for this kind of server.
    account: the Cosmos DB account that the server stands for, or None for MongoDB.
    code_names: names of error codes that differ from MongoDB's.
    brief_build_info: whether buildInfo has five fields only.
    unknown_cursor: the text for a cursor that there is not; `{id}` in it stands for its id.
    """

    def __init__(
        self,
        name: str,
        features: Features | None,
        reply_types: dict[str, str] | None = None,
        date_ttl_refusal: str | None = None,
        retryable_writes_refusal: str | None = None,
        uri_options: str = "",
        index_conflict: str = "",
        cluster_times: bool = True,
        shows_oplog: bool = True,
        account: Account | None = None,
        code_names: dict[int, str] | None = None,
        brief_build_info: bool = False,
        unknown_cursor: str = "cursor id {id} not found",
    ) -> None:
        self.name = name
        self.features = features
        self.reply_types: dict[str, str] = {} if reply_types is None else reply_types
        self.date_ttl_refusal = date_ttl_refusal
        self.retryable_writes_refusal = retryable_writes_refusal
        self.uri_options = uri_options
        self.index_conflict = index_conflict
        self.cluster_times = cluster_times
        self.shows_oplog = shows_oplog
        self.account = account
        self.code_names: dict[int, str] = {} if code_names is None else code_names
        self.brief_build_info = brief_build_info
        self.unknown_cursor = unknown_cursor

    def check_retryable_write(self) -> None:
        """BadValue (2) where writes cannot be retried."""
        if self.retryable_writes_refusal is not None and not self.account_retries_writes():
            ways = ["connect with retryWrites=false"]
            if self.account is not None:
                ways.append(capability(self.account, _RETRYABLE_WRITES, "4.0"))
            raise CommandError(
                ErrorCode.BadValue,
                self.retryable_writes_refusal,
                advice=advice("The account has no retryable writes", *ways),
            )

    def account_retries_writes(self) -> bool:
        """Whether it is a Cosmos DB account with retryable writes, which came with its version 4.0."""
        if self.account is None or self.features is None:
            return False
        return self.account.can(_RETRYABLE_WRITES) and self.features.version >= (4, 0)

    def describes_as_mongodb(self) -> bool:
        """Whether serverStatus has fields, and explain of a find tells of MongoDB's plans: neither is so in Cosmos
        DB."""
        return self.account is None or not self.account.refuses(MISSING_FEATURES)

    def code_name(self, code: int) -> str:
        """The name of an error code."""
        return self.code_names.get(code) or code_name(code)

    def with_reply_type(self, command: str, reply: dict[str, Value]) -> dict[str, Value]:
        """The reply with the `_t` that this kind of server puts before it, if any."""
        reply_type = self.reply_types.get(command)
        if reply_type is None:
            return reply
        return {"_t": reply_type, **reply}


def dialect_named(name: str, version: str) -> Dialect:
    """The dialect of a `--dialect` value, in a server that announces this version."""
    if name == "cosmos":
        account = Account(version)
        brief = version in replies.BRIEF_VERSIONS
        return Dialect(
            "cosmos",
            CosmosFeatures(version, account),
            replies.reply_types(version),
            replies.DATE_TTL_REFUSAL,
            replies.RETRYABLE_WRITES_REFUSAL,
            replies.URI_OPTIONS,
            replies.INDEX_CONFLICT,
            cluster_times=False,
            shows_oplog=False,
            account=account,
            code_names=replies.CODE_NAMES,
            brief_build_info=brief,
            unknown_cursor=replies.UNKNOWN_CURSOR,
        )
    return Dialect("mongodb", features_of(version, LATEST_VERSION))
