"""Error codes and the exceptions that carry them.

    MongottlError
    ├── CommandError          answered as {ok: 0, errmsg, code, codeName, …}
    │   └── WriteError        inside insert/update/delete: becomes one entry of writeErrors
    │       └── DuplicateKeyError
    └── ProtocolError         malformed bytes: the connection is closed

Codes and names are mongod's (its documented error codes). Codes above 9,999 are "location" codes; mongod names them
`Location<number>` and so does `code_name`. `server/dispatch` alone makes replies of these exceptions. This module knows
no other part of the package.
"""

from enum import IntEnum
from typing import Final


class ErrorCode(IntEnum):
    """Named error codes; any other number may be used as a plain int and is then named `Location<number>`."""

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
    CannotBackfillArray = 33
    ConflictingUpdateOperators = 40
    CursorNotFound = 43
    DBPathInUse = 46
    NamespaceExists = 48
    MaxTimeMSExpired = 50
    DollarPrefixedFieldName = 52
    InvalidIdField = 53
    NotSingleValueField = 54
    EmptyFieldName = 56
    DottedFieldName = 57
    CommandNotFound = 59
    ImmutableField = 66
    CannotCreateIndex = 67
    IndexAlreadyExists = 68
    InvalidOptions = 72
    InvalidNamespace = 73
    WriteConcernFailed = 64
    IndexOptionsConflict = 85
    IndexKeySpecsConflict = 86
    UnsatisfiableWriteConcern = 100
    OperationFailed = 96
    CommandNotSupported = 115
    DocumentValidationFailure = 121
    NotAReplicaSet = 123
    CommandFailed = 125
    NotExactValueField = 111
    ExceededMemoryLimit = 146
    InvalidPipelineOperator = 168
    CommandNotSupportedOnView = 166
    OptionNotSupportedOnView = 167
    NamespaceCannotBeSharded = 193
    InvalidIndexSpecificationOption = 197
    ChangeStreamFatalError = 280
    IndexInformationTooLarge = 284
    QueryExceededMemoryLimitNoDiskUseAllowed = 292
    QueryFeatureNotAllowed = 224
    TransactionTooOld = 225
    NoSuchTransaction = 251
    TransactionCommitted = 256
    OperationNotSupportedInTransaction = 263
    UnsupportedOpQueryCommand = 352
    APIVersionError = 322
    APIStrictError = 323
    InvalidUUID = 207
    WriteConflict = 112
    ClientMetadataMissingField = 183
    ClientMetadataAppNameTooLarge = 184
    ClientMetadataDocumentTooLarge = 185
    ClientMetadataCannotBeMutated = 186
    InterruptedAtShutdown = 11600
    Interrupted = 11601
    BSONObjectTooLarge = 10334
    DuplicateKey = 11000
    OutOfDiskSpace = 14031
    IncompleteTransactionHistory = 217
    NoMatchingDocument = 47
    QueryPlanKilled = 175
    NoQueryExecutionPlans = 291
    InvalidViewDefinition = 182
    IncompatibleCollationVersion = 161
    ViewDepthLimitExceeded = 165
    ViewPipelineMaxSizeExceeded = 195
    CappedPositionLost = 136
    ConversionFailure = 241
    StaleClusterTime = 209
    CursorKilled = 237
    CollectionUUIDMismatch = 361
    CannotConvertIndexToUnique = 359
    CannotBuildIndexKeys = 201
    UnsatisfiableCommitQuorum = 278
    UnknownReplWriteConcern = 79
    QueryRejectedBySettings = 411
    AmbiguousIndexKeyPattern = 181
    IndexBuildAborted = 276
    BackgroundOperationInProgressForNamespace = 12587
    CannotIndexParallelArrays = 171
    DatabaseDifferCase = 13297
    SearchNotEnabled = 31082
    NetworkTimeout = 89
    ShutdownInProgress = 91
    ReadConcernMajorityNotAvailableYet = 134
    PrimarySteppedDown = 189
    ExceededTimeLimit = 262
    SocketException = 9001
    NotWritablePrimary = 10107
    InterruptedDueToReplStateChange = 11602
    NotPrimaryNoSecondaryOk = 13435
    NotPrimaryOrSecondary = 13436


# Errors after which a driver sends a write with a `txnNumber` once more; the server labels them RetryableWriteError.
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

# Names of mongod that differ from `Location<n>` although the number is a location code.
_NAMES: Final[dict[int, str]] = {int(code): code.name for code in ErrorCode}


def code_name(code: int) -> str:
    """mongod's `codeName` for a code: its name, or `Location<code>`."""
    name = _NAMES.get(code)
    return f"Location{code}" if name is None else name


class MongottlError(Exception):
    """The root of all errors that this package raises on purpose."""


class CommandError(MongottlError):
    """A command cannot be carried out; the client gets `code`, `codeName` and `message`.

    details: further fields of the reply (`{"keyPattern": …}`), as values that `document.build` encodes.
    labels: the reply's `errorLabels`.
    """

    def __init__(
        self,
        code: int,
        message: str,
        details: dict[str, object] | None = None,
        labels: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.code = int(code)
        self.message = message
        self.details: dict[str, object] = {} if details is None else details
        self.labels = labels

    @property
    def code_name(self) -> str:
        return code_name(self.code)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code_name}, {self.message!r})"


class WriteError(CommandError):
    """One statement of a write command failed; the others may go on (`ordered: false`)."""


class DuplicateKeyError(WriteError):
    """A unique index holds the key already. details: `keyPattern` and `keyValue`."""


class ProtocolError(MongottlError):
    """The peer's bytes break the wire protocol; nothing can be answered and the connection is closed."""
