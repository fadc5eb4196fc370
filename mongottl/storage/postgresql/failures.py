"""What PostgreSQL and the connection to it may fail with, and what the engine has to do about each.

A failure has a kind, found in one table by SQLSTATE (PostgreSQL's documentation, appendix A). The kind says what is to
be done, and whether the same may be sent again:

| Kind | What has happened | What the engine does |
|---|---|---|
| CONFLICT | the same rows were changed; a deadlock | WriteConflict; in a transaction 112, transient |
| LOCKED | another transaction holds a row's lock | waits 5 to 50 ms, repeats; in a transaction as CONFLICT |
| DUPLICATE | the unique index `constraint` has the key | DuplicateKey; of the oplog's: the statement was done |
| FENCE | the catalog is stale: a fence divided by zero | reloads the catalog, repeats |
| OLD | a later write of the session was executed | 225, TransactionTooOld |
| GONE | the connection is lost, or the server stops | reconnects, repeats |
| READ_ONLY | a standby, or not the primary any more | as GONE |
| BUSY | the server takes no more connections | waits, repeats |
| STALE_STATEMENT | prepared statements were lost | reconnects, repeats |
| OUT_OF_TIME | `statement_timeout`, or cancelled | StoreUnreachable: its caller may repeat it |
| FULL | no room on the disk, or no memory | EngineUnavailable; nothing is repeated |
| LOGIN | wrong password, no such user, `pg_hba.conf` | one line at the start; later as GONE |
| NO_DATABASE | the database does not exist | as LOGIN |
| FORBIDDEN | the user lacks rights | one line at the start; later EngineUnavailable |
| REFUSED | an older server, a newer schema, a standby | one line at the start |
| NO_TABLES | schema or table are not there any more | EngineUnavailable |
| UNEXPECTED | anything else: a fault of ours | EngineUnavailable, with PostgreSQL's text |

What may be committed is never repeated. `may_be_committed` is True only if the end of the unit was sent and no answer
says that it has failed: then the engine looks whether it was done. An error in the answer to one of a unit's calls, of
whatever severity, means that it was not done: the server answers all calls before it commits.
"""

from typing import Any, Final

from psycopg import pq

CONFLICT: Final = "conflict"
LOCKED: Final = "locked"
DUPLICATE: Final = "duplicate"
FENCE: Final = "fence"
OLD: Final = "old"
GONE: Final = "gone"
READ_ONLY: Final = "read only"
BUSY: Final = "busy"
STALE_STATEMENT: Final = "stale statement"
OUT_OF_TIME: Final = "out of time"
FULL: Final = "full"
LOGIN: Final = "login"
NO_DATABASE: Final = "no database"
FORBIDDEN: Final = "forbidden"
REFUSED: Final = "refused"
NO_TABLES: Final = "no tables"
UNEXPECTED: Final = "unexpected"

# By SQLSTATE, else by its class, which are the first two characters.
KINDS: Final[dict[str, str]] = {
    "40001": CONFLICT,  # serialization_failure
    "40P01": CONFLICT,  # deadlock_detected
    "40003": GONE,  # statement_completion_unknown
    "55P03": LOCKED,  # lock_not_available
    "23505": DUPLICATE,  # unique_violation
    "22012": FENCE,  # division_by_zero
    "2201E": OLD,  # invalid_argument_for_logarithm
    "57P01": GONE,  # admin_shutdown, and pg_terminate_backend
    "57P02": GONE,  # crash_shutdown
    "57P03": GONE,  # cannot_connect_now
    "57P04": GONE,  # database_dropped
    "57P05": GONE,  # idle_session_timeout
    "25P03": GONE,  # idle_in_transaction_session_timeout
    "25P04": GONE,  # transaction_timeout
    "08": GONE,  # connection exceptions
    "25006": READ_ONLY,  # read_only_sql_transaction
    "53300": BUSY,  # too_many_connections
    "26000": STALE_STATEMENT,  # invalid_sql_statement_name: a pooler has given us another session
    "0A000": STALE_STATEMENT,  # feature_not_supported: "cached plan must not change result type"
    "57014": OUT_OF_TIME,  # query_canceled
    "53": FULL,  # 53100 disk_full, 53200 out_of_memory
    "58030": FULL,  # io_error
    "28": LOGIN,  # 28P01 invalid_password, 28000 invalid_authorization_specification
    "3D000": NO_DATABASE,  # invalid_catalog_name
    "42501": FORBIDDEN,  # insufficient_privilege
    "42P01": NO_TABLES,  # undefined_table
    "3F000": NO_TABLES,  # invalid_schema_name
}

# Kinds after which a connection is not used any more.
_FINAL: Final = frozenset({GONE, READ_ONLY, STALE_STATEMENT, LOGIN, NO_DATABASE})


class StoreFailure(Exception):
    """What a call of the store has failed with.

    kind: see above. sqlstate: empty if the connection was lost without a word of the server. message: one line.
    call: position among the calls of the unit, -1 for none of them. constraint: the violated index, else empty.
    may_be_committed: whether the unit may have been committed all the same.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        sqlstate: str = "",
        call: int = -1,
        constraint: str = "",
        may_be_committed: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.sqlstate = sqlstate
        self.call = call
        self.constraint = constraint
        self.may_be_committed = may_be_committed

    @property
    def ends_connection(self) -> bool:
        return self.kind in _FINAL


def kind_of(sqlstate: str) -> str:
    """The kind of a failure by its SQLSTATE; a lost connection has none."""
    if not sqlstate:
        return GONE
    return KINDS.get(sqlstate) or KINDS.get(sqlstate[:2], UNEXPECTED)


def failure_of(result: Any, call: int) -> StoreFailure:
    """The failure that an error among the answers names. call: position of the call that is answered."""
    sqlstate = _field(result, pq.DiagnosticField.SQLSTATE)
    text = _field(result, pq.DiagnosticField.MESSAGE_PRIMARY) or one_line(result.error_message)
    constraint = _field(result, pq.DiagnosticField.CONSTRAINT_NAME)
    return StoreFailure(kind_of(sqlstate), text, sqlstate, call, constraint)


def lost(message: str, may_be_committed: bool = False) -> StoreFailure:
    """The failure of a connection that has ended without a word of the server. message: libpq's."""
    return StoreFailure(GONE, one_line(message), may_be_committed=may_be_committed)


# What the server says when it does not take a connection: libpq gives its text alone, without the SQLSTATE. By the
# English texts; in another language such a failure counts as one that passes, and is reported with its text.
_LOGIN_TEXTS: Final = (
    ("password authentication failed", LOGIN),
    ("no password supplied", LOGIN),
    ("authentication failed", LOGIN),
    ("no pg_hba.conf entry", LOGIN),
    ("pg_hba.conf rejects", LOGIN),
    ("is not permitted to log in", LOGIN),
    ("permission denied for database", FORBIDDEN),
    ("too many clients already", BUSY),
    ("too many connections for", BUSY),
    ("remaining connection slots are reserved", BUSY),
    ("session is read-only", READ_ONLY),
    ("server is in hot standby mode", READ_ONLY),
)


def connect_failure(message: bytes) -> StoreFailure:
    """The failure of a connection that was not made, by libpq's message."""
    text = one_line(message)
    kind = next((kind for part, kind in _LOGIN_TEXTS if part in text), GONE)
    if kind == GONE and "FATAL:" in text and "does not exist" in text:
        kind = NO_DATABASE if 'database "' in text else LOGIN
    return StoreFailure(kind, text)


def one_line(message: bytes | str) -> str:
    """A message of libpq in one line."""
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else message
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def _field(result: Any, field: Any) -> str:
    value: bytes | None = result.error_field(field)
    return "" if value is None else value.decode("utf-8", "replace")
