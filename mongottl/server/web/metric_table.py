"""The metrics of `/metrics`, in one table: name, type, unit, labels and meaning.

Where a metric means the same as one that Percona's mongodb_exporter makes of `serverStatus`, `dbStats` or
`collStats`, it has that name and those labels, so that dashboards and alerts for MongoDB work. That exporter gives
counters no suffix and no type of their own; in Prometheus's format they are of type `untyped`. All others begin with
`mongottl_`, end with their unit, and counters with `_total`.

Source: the names and labels of mongodb_exporter 0.40 and later.
"""

from typing import Final, NamedTuple

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"
# A counter, under a name that the formats do not allow for one.
UNTYPED: Final = "untyped"
# Units that are measured, not counted: where a metric's name does not end with them, its help text has them.
MEASURES: Final = frozenset({"seconds", "microseconds", "bytes", "megabytes"})


class Metric(NamedTuple):
    """One row of the table. unit: "seconds", "microseconds", "bytes", "megabytes", "documents", … or "" for none.

    A counter's name is without `_total`, which the formats add.
    """

    name: str
    kind: str
    unit: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def help(self) -> str:
        """The meaning, with the unit unless the name ends with it."""
        named = self.unit not in MEASURES or self.name.endswith(self.unit)
        return self.meaning if named else f"{self.meaning} In {self.unit}."


_PLACE: Final = ("database", "collection")

METRICS: Final[tuple[Metric, ...]] = (
    # As mongodb_exporter names them.
    Metric("mongodb_up", GAUGE, "", (), "Whether the server answers; always 1."),
    Metric("mongodb_ss_uptime", UNTYPED, "seconds", (), "Time since the server started."),
    Metric(
        "mongodb_ss_opcounters",
        UNTYPED,
        "operations",
        ("legacy_op_type",),
        "Operations since the start, by kind; of write commands, each statement or document.",
    ),
    Metric(
        "mongodb_ss_opLatencies_latency",
        UNTYPED,
        "microseconds",
        ("op_type",),
        "Total time of operations on collections.",
    ),
    Metric("mongodb_ss_opLatencies_ops", UNTYPED, "operations", ("op_type",), "Operations on collections."),
    Metric("mongodb_ss_connections", UNTYPED, "connections", ("conn_type",), "Connections of clients, by state."),
    Metric("mongodb_ss_network_bytesIn", UNTYPED, "bytes", (), "Bytes received from clients."),
    Metric("mongodb_ss_network_bytesOut", UNTYPED, "bytes", (), "Bytes sent to clients."),
    Metric("mongodb_ss_network_numRequests", UNTYPED, "requests", (), "Requests of clients."),
    Metric(
        "mongodb_ss_asserts", UNTYPED, "errors", ("assert_type",), "Commands that failed: user, or internal errors."
    ),
    Metric(
        "mongodb_ss_metrics_document", UNTYPED, "documents", ("doc_op_type",), "Documents by what happened to them."
    ),
    Metric(
        "mongodb_ss_metrics_cursor_open", UNTYPED, "cursors", ("csr_type",), "Open cursors: total, pinned, noTimeout."
    ),
    Metric(
        "mongodb_ss_metrics_cursor_timedOut", UNTYPED, "cursors", (), "Cursors that were closed after their timeout."
    ),
    Metric("mongodb_ss_metrics_cursor_totalOpened", UNTYPED, "cursors", (), "Cursors that were opened."),
    Metric(
        "mongodb_ss_metrics_operation_writeConflicts",
        UNTYPED,
        "writes",
        (),
        "Writes that conflicted with another write.",
    ),
    Metric("mongodb_ss_metrics_ttl_deletedDocuments", UNTYPED, "documents", (), "Expired documents that were deleted."),
    Metric("mongodb_ss_metrics_ttl_passes", UNTYPED, "passes", (), "Passes that deleted expired documents."),
    Metric(
        "mongodb_ss_globalLock_currentQueue", UNTYPED, "operations", ("count_type",), "Operations that wait to begin."
    ),
    Metric("mongodb_ss_logicalSessionRecordCache_activeSessionsCount", UNTYPED, "sessions", (), "Logical sessions."),
    Metric("mongodb_ss_transactions_currentOpen", UNTYPED, "transactions", (), "Transactions in progress."),
    Metric("mongodb_ss_transactions_currentActive", UNTYPED, "transactions", (), "Of these, with a running statement."),
    Metric("mongodb_ss_transactions_currentInactive", UNTYPED, "transactions", (), "Of these, without one."),
    Metric("mongodb_ss_transactions_totalStarted", UNTYPED, "transactions", (), "Transactions that were started."),
    Metric("mongodb_ss_transactions_totalCommitted", UNTYPED, "transactions", (), "Transactions that were committed."),
    Metric("mongodb_ss_transactions_totalAborted", UNTYPED, "transactions", (), "Transactions that were aborted."),
    Metric("mongodb_ss_transactions_retriedCommandsCount", UNTYPED, "commands", (), "Retries of writes."),
    Metric("mongodb_ss_transactions_retriedStatementsCount", UNTYPED, "statements", (), "Statements in these retries."),
    Metric("mongodb_ss_mem_resident", UNTYPED, "megabytes", (), "Memory of the process that is in use."),
    Metric("mongodb_ss_mem_virtual", UNTYPED, "megabytes", (), "Virtual memory of the process."),
    Metric(
        "mongodb_mongod_replset_oplog_head_timestamp",
        UNTYPED,
        "seconds",
        (),
        "Cluster time of the newest entry of the oplog, since 1970.",
    ),
    Metric(
        "mongodb_mongod_replset_oplog_tail_timestamp",
        UNTYPED,
        "seconds",
        (),
        "Cluster time of its oldest entry, since 1970. The difference is the oplog window.",
    ),
    Metric("mongodb_oplog_stats_count", UNTYPED, "entries", (), "Entries of the oplog."),
    Metric("mongodb_oplog_stats_size", UNTYPED, "bytes", (), "Size of the oplog."),
    Metric(
        "mongodb_oplog_stats_maxSize", UNTYPED, "bytes", (), "Size beyond which the oplog drops its oldest entries."
    ),
    Metric("mongodb_dbstats_collections", UNTYPED, "collections", ("database",), "Collections of a database."),
    Metric("mongodb_dbstats_objects", UNTYPED, "documents", ("database",), "Documents, expired ones included."),
    Metric("mongodb_dbstats_dataSize", UNTYPED, "bytes", ("database",), "Size of these documents."),
    Metric("mongodb_dbstats_indexes", UNTYPED, "indexes", ("database",), "Indexes of a database."),
    Metric("mongodb_collstats_storageStats_count", UNTYPED, "documents", _PLACE, "Documents, expired ones included."),
    Metric("mongodb_collstats_storageStats_size", UNTYPED, "bytes", _PLACE, "Size of these documents."),
    Metric("mongodb_collstats_storageStats_nindexes", UNTYPED, "indexes", _PLACE, "Indexes of a collection."),
    # Our own.
    Metric(
        "mongottl_build",
        "info",
        "",
        ("version", "server_version", "engine", "dialect", "compiled"),
        "The version, the MongoDB version that it announces, and how it runs.",
    ),
    Metric(
        "mongottl_node",
        "info",
        "",
        ("node", "address"),
        "Which of the servers with the same store this one is, and where it listens; 0 without a store.",
    ),
    Metric("mongottl_nodes", GAUGE, "", ("state",), "Servers with the same store: current, reloading, lost."),
    Metric(
        "mongottl_command_duration_seconds",
        HISTOGRAM,
        "seconds",
        ("command",),
        "Time of commands until their replies, without that for which they wait for new data.",
    ),
    Metric("mongottl_command_errors", COUNTER, "", ("code", "name"), "Commands that failed, by error."),
    Metric("mongottl_statement_errors", COUNTER, "", ("code", "name"), "Statements of batches that failed, by error."),
    Metric("mongottl_slow_threshold_seconds", GAUGE, "seconds", (), "From this time on a command counts as slow."),
    Metric("mongottl_change_streams", GAUGE, "", (), "Open cursors that are change streams."),
    Metric(
        "mongottl_ttl_monitor_enabled", GAUGE, "", (), "Whether expired documents are deleted: 1, or 0 while paused."
    ),
    Metric(
        "mongottl_ttl_lag_seconds",
        GAUGE,
        "seconds",
        (),
        "For how long the oldest expired document that is still stored has been expired; 0 if there is none.",
    ),
    Metric(
        "mongottl_ttl_wheel_entries", GAUGE, "", (), "Pairs of collection and due second that the timing wheel has."
    ),
    Metric(
        "mongottl_ttl_pending_documents",
        GAUGE,
        "documents",
        _PLACE,
        "Documents that will expire if nothing writes to them, counted up to a million.",
    ),
    Metric(
        "mongottl_ttl_expired_documents",
        GAUGE,
        "documents",
        _PLACE,
        "Documents that are expired, so no command sees them, and not deleted yet.",
    ),
    Metric(
        "mongottl_ttl_purged_documents",
        COUNTER,
        "documents",
        _PLACE,
        "Expired documents that were deleted since the collection was made, or the server started.",
    ),
    Metric("mongottl_ttl_next_due_timestamp_seconds", GAUGE, "seconds", _PLACE, "When the next document expires."),
    Metric(
        "mongottl_collections_omitted",
        GAUGE,
        "",
        (),
        "Collections without metrics of their own, because there are too many.",
    ),
    Metric("mongottl_fsync_duration_seconds", HISTOGRAM, "seconds", (), "Time of flushes to disk."),
    Metric("mongottl_commits", COUNTER, "", (), "Units of work that the storage engine has committed."),
    Metric(
        "mongottl_storage_size_bytes", GAUGE, "bytes", (), "Size of the database, with indexes; estimated in memory."
    ),
    Metric("mongottl_storage_log_size_bytes", GAUGE, "bytes", (), "Size of the storage engine's log on disk."),
    Metric("mongottl_clock_offset_seconds", GAUGE, "seconds", (), "The server's time minus that of the machine."),
    Metric("mongottl_clock_frozen", GAUGE, "", (), "Whether the server's time stands still."),
    Metric(
        "mongottl_request_units",
        COUNTER,
        "",
        ("command", *_PLACE),
        "Request units that commands have cost, in the dialect cosmos.",
    ),
    Metric(
        "mongottl_throttled_statements",
        COUNTER,
        "",
        ("command", *_PLACE),
        "Statements that were refused because the throughput was used up, in the dialect cosmos.",
    ),
)

BY_NAME: Final[dict[str, Metric]] = {metric.name: metric for metric in METRICS}
