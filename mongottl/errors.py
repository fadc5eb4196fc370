"""Error codes and the exceptions that carry them.

    MongottlError
    ├── CommandError          answered as {ok: 0, errmsg, code, codeName, …}
    │   └── WriteError        inside insert/update/delete: becomes one entry of writeErrors
    │       └── DuplicateKeyError
    └── ProtocolError         malformed bytes: the connection is closed

Codes and names are mongod's (its documented error codes). Codes above 9,999 are "location" codes; mongod names them
`Location<number>` and so does `code_name`. Only `server/replies` makes replies of these exceptions. This module
depends on no other part of the package.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Final


class ErrorCode(IntEnum):
    """Named error codes, by number; any other number may be used as a plain int and is named `Location<number>`.

    Some are raised nowhere here, but a fail point (`configureFailPoint`) answers any code, under mongod's name for it.
    """

    OK = 0
    InternalError = 1
    BadValue = 2
    NoSuchKey = 4
    GraphContainsCycle = 5
    HostUnreachable = 6
    HostNotFound = 7
    UnknownError = 8
    FailedToParse = 9
    CannotMutateObject = 10
    UserNotFound = 11
    UnsupportedFormat = 12
    Unauthorized = 13
    TypeMismatch = 14
    Overflow = 15
    InvalidLength = 16
    ProtocolError = 17
    AuthenticationFailed = 18
    IllegalOperation = 20
    EmptyArrayOperation = 21
    InvalidBSON = 22
    AlreadyInitialized = 23
    LockTimeout = 24
    NamespaceNotFound = 26
    IndexNotFound = 27
    PathNotViable = 28
    RoleNotFound = 31
    CannotBackfillArray = 34
    ConflictingUpdateOperators = 40
    CursorNotFound = 43
    DBPathInUse = 46
    NoMatchingDocument = 47
    NamespaceExists = 48
    InvalidRoleModification = 49
    MaxTimeMSExpired = 50
    DollarPrefixedFieldName = 52
    InvalidIdField = 53
    NotSingleValueField = 54
    EmptyFieldName = 56
    DottedFieldName = 57
    CommandNotFound = 59
    ShardKeyNotFound = 61
    StaleShardVersion = 63
    WriteConcernFailed = 64
    ImmutableField = 66
    CannotCreateIndex = 67
    IndexAlreadyExists = 68
    ShardNotFound = 70
    InvalidOptions = 72
    InvalidNamespace = 73
    UnknownReplWriteConcern = 79
    IndexOptionsConflict = 85
    IndexKeySpecsConflict = 86
    NetworkTimeout = 89
    ShutdownInProgress = 91
    OperationFailed = 96
    UnsatisfiableWriteConcern = 100
    NotExactValueField = 111
    WriteConflict = 112
    CommandNotSupported = 115
    ConflictingOperationInProgress = 117
    DocumentValidationFailure = 121
    NotAReplicaSet = 123
    CommandFailed = 125
    FailedToSatisfyReadPreference = 133
    ReadConcernMajorityNotAvailableYet = 134
    CappedPositionLost = 136
    JSInterpreterFailure = 139
    ExceededMemoryLimit = 146
    StaleEpoch = 150
    IncompatibleCollationVersion = 161
    ViewDepthLimitExceeded = 165
    CommandNotSupportedOnView = 166
    OptionNotSupportedOnView = 167
    InvalidPipelineOperator = 168
    CannotIndexParallelArrays = 171
    QueryPlanKilled = 175
    AmbiguousIndexKeyPattern = 181
    InvalidViewDefinition = 182
    ClientMetadataMissingField = 183
    ClientMetadataAppNameTooLarge = 184
    ClientMetadataDocumentTooLarge = 185
    ClientMetadataCannotBeMutated = 186
    PrimarySteppedDown = 189
    NamespaceCannotBeSharded = 193
    ViewPipelineMaxSizeExceeded = 195
    InvalidIndexSpecificationOption = 197
    CannotBuildIndexKeys = 201
    ClusterTimeFailsRateLimiter = 205
    InvalidUUID = 207
    StaleClusterTime = 209
    IncompleteTransactionHistory = 217
    QueryFeatureNotAllowed = 224
    TransactionTooOld = 225
    RetryChangeStream = 234
    CursorKilled = 237
    SnapshotTooOld = 239
    ConversionFailure = 241
    SnapshotUnavailable = 246
    NoSuchTransaction = 251
    TransactionCommitted = 256
    TransactionTooLarge = 257
    InvalidResumeToken = 260
    ExceededTimeLimit = 262
    OperationNotSupportedInTransaction = 263
    PreparedTransactionInProgress = 267
    IndexBuildAborted = 276
    UnsatisfiableCommitQuorum = 278
    ChangeStreamFatalError = 280
    IndexInformationTooLarge = 284
    ChangeStreamHistoryLost = 286
    NoQueryExecutionPlans = 291
    QueryExceededMemoryLimitNoDiskUseAllowed = 292
    ObjectIsBusy = 314
    APIVersionError = 322
    APIStrictError = 323
    MechanismUnavailable = 334
    UnsupportedOpQueryCommand = 352
    LoadBalancerSupportMismatch = 354
    CannotConvertIndexToUnique = 359
    CollectionUUIDMismatch = 361
    UserWritesBlocked = 371
    QueryRejectedBySettings = 411
    SocketException = 9001
    NotWritablePrimary = 10107
    BSONObjectTooLarge = 10334
    DuplicateKey = 11000
    InterruptedAtShutdown = 11600
    Interrupted = 11601
    InterruptedDueToReplStateChange = 11602
    BackgroundOperationInProgressForNamespace = 12587
    DatabaseDifferCase = 13297
    StaleConfig = 13388
    NotPrimaryNoSecondaryOk = 13435
    NotPrimaryOrSecondary = 13436
    OutOfDiskSpace = 14031
    SearchNotEnabled = 31082


# Errors after which a driver retries a write with a `txnNumber`; the server labels them RetryableWriteError.
# Source: the driver specifications' "Retryable Writes", and the retriable errors in MongoDB's list of error codes.
RETRYABLE_WRITE_CODES: Final = frozenset(
    int(code)
    for code in (
        ErrorCode.HostUnreachable,
        ErrorCode.HostNotFound,
        ErrorCode.NetworkTimeout,
        ErrorCode.ShutdownInProgress,
        ErrorCode.ReadConcernMajorityNotAvailableYet,
        ErrorCode.PrimarySteppedDown,
        ErrorCode.ExceededTimeLimit,
        ErrorCode.SocketException,
        ErrorCode.NotWritablePrimary,
        ErrorCode.InterruptedAtShutdown,
        ErrorCode.InterruptedDueToReplStateChange,
        ErrorCode.NotPrimaryNoSecondaryOk,
        ErrorCode.NotPrimaryOrSecondary,
    )
)
RETRYABLE_WRITE_LABEL: Final = "RetryableWriteError"
# Errors of a statement after which a driver may run its whole transaction again; labelled TransientTransactionError.
# Source: the driver specifications' "Transactions", and the errors that mongod labels so.
TRANSIENT_TRANSACTION_CODES: Final = RETRYABLE_WRITE_CODES | frozenset(
    int(code)
    for code in (
        ErrorCode.LockTimeout,
        ErrorCode.WriteConflict,
        ErrorCode.SnapshotTooOld,
        ErrorCode.SnapshotUnavailable,
        ErrorCode.NoSuchTransaction,
        ErrorCode.PreparedTransactionInProgress,
    )
)
TRANSIENT_TRANSACTION_LABEL: Final = "TransientTransactionError"
UNKNOWN_COMMIT_LABEL: Final = "UnknownTransactionCommitResult"
# Errors of a change stream after which a driver resumes it; labelled ResumableChangeStreamError.
# Source: the driver specifications' "Change Streams".
RESUMABLE_CHANGE_STREAM_CODES: Final = frozenset(
    int(code)
    for code in (
        ErrorCode.HostUnreachable,
        ErrorCode.HostNotFound,
        ErrorCode.StaleShardVersion,
        ErrorCode.NetworkTimeout,
        ErrorCode.ShutdownInProgress,
        ErrorCode.FailedToSatisfyReadPreference,
        ErrorCode.StaleEpoch,
        ErrorCode.PrimarySteppedDown,
        ErrorCode.RetryChangeStream,
        ErrorCode.ExceededTimeLimit,
        ErrorCode.SocketException,
        ErrorCode.NotWritablePrimary,
        ErrorCode.InterruptedAtShutdown,
        ErrorCode.InterruptedDueToReplStateChange,
        ErrorCode.StaleConfig,
        ErrorCode.NotPrimaryNoSecondaryOk,
        ErrorCode.NotPrimaryOrSecondary,
    )
)
RESUMABLE_CHANGE_STREAM_LABEL: Final = "ResumableChangeStreamError"
# Errors after which resuming again with the same token cannot help.
NON_RESUMABLE_CHANGE_STREAM_CODES: Final = frozenset(
    (int(ErrorCode.ChangeStreamFatalError), int(ErrorCode.ChangeStreamHistoryLost))
)
NON_RESUMABLE_CHANGE_STREAM_LABEL: Final = "NonResumableChangeStreamError"

# Names of mongod that differ from `Location<n>` although the number is a location code.
_NAMES: Final[dict[int, str]] = {int(code): code.name for code in ErrorCode}


def code_name(code: int) -> str:
    """mongod's `codeName` for a code: its name, or `Location<code>`."""
    name = _NAMES.get(code)
    return f"Location{code}" if name is None else name


# Characters of a client's text that a message shows.
_SHOWN_CHARACTERS: Final = 1000


def shortened(text: str) -> str:
    """What a client has sent, such as a name, as a message shows it: only the beginning of a long text.

    mongod shows them whole; but clients that have not logged in would have 48 MB sent back, encoded and logged.
    """
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


class MongottlError(Exception):
    """The base class of all errors that this package raises deliberately."""


class CommandError(MongottlError):
    """A command cannot be carried out; the client gets `code`, `codeName` and `message`.

    details: further fields of the reply (`{"keyPattern": …}`), as values that `document.build` encodes.
    labels: the reply's `errorLabels`.
    advice: of a refusal of the dialect or of the announced version, what the user of this server can do about it, as
    one sentence: an option, an index, or that nothing changes it. The log and the page show it; the reply never does.
    "" for other errors.
    """

    def __init__(
        self,
        code: int,
        message: str,
        details: dict[str, object] | None = None,
        labels: tuple[str, ...] = (),
        advice: str = "",
    ) -> None:
        super().__init__(message)
        self.code = int(code)
        self.message = message
        self.details: dict[str, object] = {} if details is None else details
        self.labels = labels
        self.advice = advice

    @property
    def code_name(self) -> str:
        return code_name(self.code)

    def complete(self) -> None:
        """Called before `details` are read. What takes long to describe is described here, and not where the error is
        raised: there a unit of work may be open, in which nothing else runs."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code_name}, {self.message!r})"


# The errors that end an operation from outside: its time is up, it was killed, the server stops.
_INTERRUPTIONS: Final = (ErrorCode.MaxTimeMSExpired, ErrorCode.Interrupted, ErrorCode.InterruptedAtShutdown)


def is_interruption(error: CommandError) -> bool:
    """Whether the operation must end, so that no code may take the error for that of an operand, a statement or a
    plan, and go on."""
    return error.code in _INTERRUPTIONS


class WriteError(CommandError):
    """One statement of a write command failed; with `ordered: false` the others are still carried out."""


class DuplicateKeyError(WriteError):
    """A unique index has the key already. details: `keyPattern` and `keyValue`, where the dialect sends them.

    key_value: the key as raw BSON, {path: value, …}; None where it does not matter. describe: the end of the message,
    which `complete` adds, where the key is long.
    """

    def __init__(
        self,
        code: int,
        message: str,
        details: dict[str, object] | None = None,
        key_value: bytes | None = None,
        describe: Callable[[], str] | None = None,
    ) -> None:
        super().__init__(code, message, details)
        self.key_value = key_value
        self.describe = describe

    def complete(self) -> None:
        describe = self.describe
        if describe is not None:
            self.describe = None
            self.message += describe()


class ProtocolError(MongottlError):
    """The peer's bytes break the wire protocol; nothing can be answered and the connection is closed."""


class HttpRequestError(ProtocolError):
    """The peer's bytes are an HTTP request, to which there is an answer before the connection is closed."""
