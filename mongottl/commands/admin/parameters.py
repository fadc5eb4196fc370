"""getParameter and setParameter: those of MongoDB's server parameters that exist here.

Source: MongoDB's "getParameter" and "setParameter" references, and "MongoDB Server Parameters" for the names.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Final, NamedTuple, TypeAlias

from mongottl.commands.access import on_cluster
from mongottl.commands.admin.compatibility import compatibility_version
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ONE, Field
from mongottl.commands.security.login import KNOWN_MECHANISMS
from mongottl.config import MAX_LOG_LEVEL, PARAMETERS, SETTINGS, Parameter
from mongottl.document.bson_field import checked_word, read_known, wrong_type
from mongottl.document.build import encode
from mongottl.document.numbers import is_true, to_double, whole
from mongottl.document.types import INT_MAX, Decimal128, Int64, Value, is_number
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import ElementCursor
from mongottl.errors import CommandError, ErrorCode, shortened
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.state.cluster_clock import IDLE_TICK_S, MAX_DRIFT_S
from mongottl.exec.state.memory_size import available_memory_bytes
from mongottl.query.expr.parser import type_of
from mongottl.security.scram import MIN_ITERATIONS, SHA_1, SHA_256
from mongottl.versions import MECHANISM

# Of the documents of users: with credentials for SCRAM, as since MongoDB 3.0.
AUTH_SCHEMA_VERSION: Final = 5
_MAX_DESCRIPTOR_BYTES: Final = 64
_ALL_PERCENT: Final = 100
_GET_OPTIONS: Final = ("allParameters", "showDetails", "setAt")
# mongod's log components and their parts.
LOG_COMPONENTS: Final[dict[str, tuple[str, ...]]] = {
    "accessControl": (),
    "assert": (),
    "command": (),
    "control": (),
    "executor": (),
    "geo": (),
    "index": (),
    "network": ("asio", "bridge", "connectionPool"),
    "processHealth": (),
    "query": ("optimizer", "ce", "plannerCache", "rejected"),
    "queryStats": (),
    "replication": ("election", "heartbeats", "initialSync", "rollback"),
    "sharding": ("rangeDeleter", "shardingCatalogRefresh", "migration", "reshard", "migrationPerf"),
    "storage": ("journal", "recovery", "wt"),
    "tenantMigration": (),
    "test": (),
    "transaction": (),
    "write": (),
}

Reader: TypeAlias = Callable[[OperationContext], Value]
# Changes a parameter and returns its previous value.
Writer: TypeAlias = Callable[[OperationContext, Value], Value]


class ServerParameter(NamedTuple):
    """One parameter.

    at_startup: whether a command-line option sets it. write: None if it cannot be changed. test_only: whether only a
    server with test commands has it.
    """

    read: Reader
    at_startup: bool = False
    write: Writer | None = None
    test_only: bool = False


def _flag(name: str, value: Value) -> bool:
    if not isinstance(value, (bool, int, float, Decimal128)):
        raise CommandError(ErrorCode.BadValue, f"{name} must be a boolean")
    return is_true(value)


def _set_ttl_monitor(op: OperationContext, value: Value) -> Value:
    was = op.service.expiry.is_enabled
    op.service.expiry.is_enabled = _flag("ttlMonitorEnabled", value)
    op.service.hooks.wake_reaper()
    return was


def _set_require_api_version(op: OperationContext, value: Value) -> Value:
    was = op.service.requires_api_version
    op.service.requires_api_version = _flag("requireApiVersion", value)
    return was


def _set_quiet(op: OperationContext, value: Value) -> Value:
    was = op.service.log_settings.quiet
    op.service.log_settings.quiet = is_true(value) if isinstance(value, bool) or is_number(value) else value is not None
    return was


def _set_descriptor(op: OperationContext, value: Value) -> Value:
    """What tools that manage servers write down for themselves: TypeMismatch (14), Overflow (15) beyond 64 bytes."""
    was = op.service.automation_descriptor
    if not isinstance(value, str):
        raise CommandError(
            ErrorCode.TypeMismatch, "Value for parameter automationServiceDescriptor must be of type string"
        )
    if len(encode_text(value)) > _MAX_DESCRIPTOR_BYTES:
        raise CommandError(
            ErrorCode.Overflow,
            f"Value for parameter automationServiceDescriptor must be no more than {_MAX_DESCRIPTOR_BYTES} bytes",
        )
    op.service.automation_descriptor = value
    return was


def _set_log_level(op: OperationContext, value: Value) -> Value:
    level = int(value) if isinstance(value, bool) else whole(value)
    if level is None or not 0 <= level <= MAX_LOG_LEVEL:
        raise CommandError(ErrorCode.BadValue, f"Invalid value for logLevel: a whole number from 0 to {MAX_LOG_LEVEL}")
    was = op.service.log_settings.verbosity
    op.service.log_settings.verbosity = level
    return was


def _limit(parameter: Parameter) -> ServerParameter:
    """One of `config.PARAMETERS`, the limits on an operation's memory."""

    def read(op: OperationContext) -> Value:
        value = getattr(op.service.limits, parameter.field)
        return value if isinstance(value, bool) else Int64(value)

    def write(op: OperationContext, value: Value) -> Value:
        was = read(op)
        setattr(op.service.limits, parameter.field, _checked_limit(parameter, value, isinstance(was, bool)))
        return was

    return ServerParameter(read, write=write)


def _checked_limit(parameter: Parameter, value: Value, is_switch: bool) -> int:
    """The checked value: a boolean or number for a switch, else a whole number of at least the parameter's minimum."""
    if not isinstance(value, (bool, int, float, Decimal128)):
        raise CommandError(ErrorCode.TypeMismatch, f"parameter {parameter.name} must be a number, not {type_of(value)}")
    number = int(value) if isinstance(value, bool) else whole(value)
    if is_switch:
        return bool(number)
    if number is None:
        raise CommandError(ErrorCode.BadValue, f"{parameter.name} must be a whole number")
    if number < parameter.minimum:
        minimum = parameter.minimum
        raise CommandError(
            ErrorCode.BadValue,
            f"Invalid value for parameter {parameter.name}: {number} is not greater than or equal to {minimum}",
        )
    return number


def _set_ttl_sleep(op: OperationContext, value: Value) -> Value:
    """Seconds, at least 1, between two TTL deletions."""
    was = op.service.expiry.sleep_s
    number = None if isinstance(value, bool) or not is_number(value) else whole(value)
    if number is None or number < 1:
        raise CommandError(
            ErrorCode.BadValue,
            "Invalid value for parameter ttlMonitorSleepSecs: it must be a whole number of at least 1",
        )
    op.service.expiry.sleep_s = number
    return was


def _component_verbosity(op: OperationContext) -> Value:
    """`{verbosity, command: {verbosity}, network: {verbosity, asio: {verbosity}, …}, …}`.

    -1 means the verbosity of the level above.
    """
    levels = op.service.log_settings.components
    shown: dict[str, Value] = {"verbosity": op.service.log_settings.verbosity}
    for component, parts in LOG_COMPONENTS.items():
        entry: dict[str, Value] = {"verbosity": levels.get(component, -1)}
        for part in parts:
            entry[part] = {"verbosity": levels.get(f"{component}.{part}", -1)}
        shown[component] = entry
    return shown


def _set_component_verbosity(op: OperationContext, value: Value) -> Value:
    """Changes the levels that are named; of them, those of all components and of `command` have an effect."""
    was = _component_verbosity(op)
    if not isinstance(value, bytes):
        raise CommandError(ErrorCode.TypeMismatch, "logComponentVerbosity must be an object")
    levels: dict[str, int] = {}
    op.compute(partial(_read_levels, value, "", levels))
    settings = op.service.log_settings
    if "" in levels:
        settings.verbosity = max(levels.pop(""), 0)
    settings.components.update(levels)
    return was


def _read_levels(document: bytes, path: str, levels: dict[str, int]) -> None:
    """Reads `{verbosity, <component>: {…}}`. BadValue (2) for unknown components and for other levels than -1 to 5."""
    cursor = ElementCursor(document, 0)
    while cursor.next():
        name = cursor.name()
        if name == "verbosity":
            given = cursor.decoded_without_elements()
            level = None if isinstance(given, bool) else whole(given)
            if level is None or not -1 <= level <= MAX_LOG_LEVEL:
                raise CommandError(ErrorCode.BadValue, f"Invalid verbosity for log component {path or 'default'}")
            levels[path] = level
            continue
        below = f"{path}.{name}" if path else name
        known = name in LOG_COMPONENTS if not path else name in LOG_COMPONENTS.get(path, ())
        if not known:
            raise CommandError(ErrorCode.BadValue, f"Invalid component name: {shortened(below)}")
        value = cursor.decoded_without_elements()
        if isinstance(value, bytes):
            _read_levels(value, below, levels)
        else:
            _read_levels(encode({"verbosity": value}), below, levels)


def _set_transaction_lifetime(op: OperationContext, value: Value) -> Value:
    """Seconds, at least 1, for transactions that begin from now on."""
    was = int(op.service.transaction_lifetime_s)
    number = None if isinstance(value, bool) or not is_number(value) else whole(value)
    if number is None or number < 1:
        raise CommandError(
            ErrorCode.BadValue,
            "Invalid value for parameter transactionLifetimeLimitSeconds: it must be a whole number of at least 1",
        )
    op.service.transaction_lifetime_s = float(number)
    return was


def _set_script_limit(op: OperationContext, value: Value) -> Value:
    """Milliseconds, at least 1, that one call of a function in JavaScript may take."""
    was = op.service.processes.scripts.limit_ms
    number = None if isinstance(value, bool) or not is_number(value) else whole(value)
    if number is None or not 1 <= number <= INT_MAX:
        raise CommandError(
            ErrorCode.BadValue,
            "Invalid value for parameter internalQueryJavaScriptFnTimeoutMillis:"
            " it must be a whole number of at least 1",
        )
    op.service.processes.scripts.limit_ms = number
    return was


def _scram_iterations(name: str, mechanism: str) -> ServerParameter:
    """The number of iterations of the passwords that are hashed from now on, at least MIN_ITERATIONS."""

    def read(op: OperationContext) -> Value:
        return op.service.accounts.iterations[mechanism]

    def write(op: OperationContext, value: Value) -> Value:
        was = read(op)
        number = None if isinstance(value, bool) or not is_number(value) else whole(value)
        if number is None or not MIN_ITERATIONS <= number <= INT_MAX:
            raise CommandError(
                ErrorCode.BadValue,
                f"Invalid value for parameter {name}: it must be a whole number of at least {MIN_ITERATIONS}",
            )
        op.service.accounts.iterations[mechanism] = number
        return was

    return ServerParameter(read, at_startup=True, write=write)


def _set_query_stats_rate(op: OperationContext, value: Value) -> Value:
    """How many queries `$queryStats` records per second: 0 for none, -1 for all."""
    store = op.service.profiler.query_stats
    was = store.rate_limit
    number = None if isinstance(value, bool) or not is_number(value) else whole(value)
    if number is None or not -1 <= number <= INT_MAX:
        raise CommandError(
            ErrorCode.BadValue,
            "Invalid value for parameter internalQueryStatsRateLimit: it must be a whole number of at least -1",
        )
    store.rate_limit = number
    op.service.profiler.attend()
    return was


_SIZE_UNITS: Final = {"%": 0, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


def _set_query_stats_size(op: OperationContext, value: Value) -> Value:
    """The memory of the recorded queries: "4MB", or "1%" of the server's memory."""
    store = op.service.profiler.query_stats
    was = store.size_text
    text = value.strip() if isinstance(value, str) else ""
    unit = next((unit for unit in _SIZE_UNITS if text.upper().endswith(unit)), "")
    try:
        number = float(text[: -len(unit)]) if unit else -1.0
    except ValueError:
        number = -1.0
    if not 0.0 <= number <= INT_MAX or (unit == "%" and number > _ALL_PERCENT):
        raise CommandError(
            ErrorCode.BadValue,
            'Invalid value for parameter internalQueryStatsCacheSize: a size such as "4MB", or a share such as "1%"',
        )
    factor = _SIZE_UNITS[unit] or available_memory_bytes() / _ALL_PERCENT
    store.resize(text, int(number * factor))
    return was


def _set_rate_limiter(op: OperationContext, value: Value) -> Value:
    rate = op.service.connection_rate
    was = rate.enabled
    rate.enabled = _flag("ingressConnectionEstablishmentRateLimiterEnabled", value)
    rate.refill()
    return was


def _rate(name: str, field: str, least: float) -> ServerParameter:
    """A number of `ConnectionRate`: an int32 of at least `least`, or for seconds any number above it."""

    def read(op: OperationContext) -> Value:
        value: Value = getattr(op.service.connection_rate, field)
        return value

    def write(op: OperationContext, value: Value) -> Value:
        was = read(op)
        number: float | None = None
        if not isinstance(value, bool) and isinstance(value, (int, float, Decimal128)):
            number = to_double(value) if isinstance(was, float) else whole(value)
        if number is None or not (least < number if isinstance(was, float) else least <= number <= INT_MAX):
            shown = str(value) if isinstance(value, bool) or is_number(value) else f"a value of type {type_of(value)}"
            raise CommandError(ErrorCode.BadValue, f"Invalid value for parameter {name}: {shown} is out of range")
        setattr(op.service.connection_rate, field, number)
        op.service.connection_rate.refill()
        return was

    return ServerParameter(read, write=write)


def _setting(field: str) -> ServerParameter:
    return ServerParameter(lambda op: getattr(op.service.config, field), at_startup=True)


def _known_mechanisms(op: OperationContext) -> Value:
    features = op.service.features
    return [*(KNOWN_MECHANISMS if features is None else features.known(MECHANISM, KNOWN_MECHANISMS))]


def _fixed(value: Value, at_startup: bool = False) -> ServerParameter:
    return ServerParameter(lambda op: value, at_startup)


# Lifetime of a key that signs cluster times, in seconds: three months, as in mongod.
_KEY_LIFETIME_S: Final = 7_776_000

SERVER_PARAMETERS: Final[dict[str, ServerParameter]] = {
    **{setting.parameter: _setting(setting.field) for setting in SETTINGS if setting.parameter},
    **{parameter.name: _limit(parameter) for parameter in PARAMETERS},
    "automationServiceDescriptor": ServerParameter(
        lambda op: op.service.automation_descriptor, at_startup=True, write=_set_descriptor
    ),
    "acceptApiVersion2": ServerParameter(lambda op: False, at_startup=True, test_only=True),
    "authSchemaVersion": _fixed(AUTH_SCHEMA_VERSION),
    "authenticationMechanisms": ServerParameter(_known_mechanisms),
    "cursorTimeoutMillis": ServerParameter(lambda op: op.service.config.cursor_timeout_s * 1000, at_startup=True),
    "featureCompatibilityVersion": ServerParameter(lambda op: {"version": compatibility_version(op)}),
    "ingressConnectionEstablishmentBurstCapacitySecs": _rate(
        "ingressConnectionEstablishmentBurstCapacitySecs", "burst_s", 0
    ),
    "ingressConnectionEstablishmentMaxQueueDepth": _rate(
        "ingressConnectionEstablishmentMaxQueueDepth", "queue_depth", 0
    ),
    "ingressConnectionEstablishmentRateLimiterEnabled": ServerParameter(
        lambda op: op.service.connection_rate.enabled, write=_set_rate_limiter
    ),
    "ingressConnectionEstablishmentRatePerSec": _rate("ingressConnectionEstablishmentRatePerSec", "per_second", 1),
    "internalQueryJavaScriptFnTimeoutMillis": ServerParameter(
        lambda op: op.service.processes.scripts.limit_ms, at_startup=True, write=_set_script_limit
    ),
    "internalQueryStatsCacheSize": ServerParameter(
        lambda op: op.service.profiler.query_stats.size_text, write=_set_query_stats_size
    ),
    "internalQueryStatsRateLimit": ServerParameter(
        lambda op: op.service.profiler.query_stats.rate_limit, write=_set_query_stats_rate
    ),
    "KeysRotationIntervalSec": _fixed(_KEY_LIFETIME_S, at_startup=True),
    "ShardingTaskExecutorPoolReplicaSetMatching": _fixed("automatic", at_startup=True),
    "localLogicalSessionTimeoutMinutes": _fixed(30),
    "logComponentVerbosity": ServerParameter(_component_verbosity, write=_set_component_verbosity),
    "logLevel": ServerParameter(lambda op: op.service.log_settings.verbosity, write=_set_log_level),
    "logicalSessionRefreshMillis": _fixed(300_000),
    "maxAcceptableLogicalClockDriftSecs": _fixed(Int64(MAX_DRIFT_S)),
    "periodicNoopIntervalSecs": _fixed(IDLE_TICK_S),
    "quiet": ServerParameter(lambda op: op.service.log_settings.quiet, at_startup=True, write=_set_quiet),
    "requireApiVersion": ServerParameter(lambda op: op.service.requires_api_version, write=_set_require_api_version),
    "transactionLifetimeLimitSeconds": ServerParameter(
        lambda op: int(op.service.transaction_lifetime_s), write=_set_transaction_lifetime
    ),
    "scramIterationCount": _scram_iterations("scramIterationCount", SHA_1),
    "scramSHA256IterationCount": _scram_iterations("scramSHA256IterationCount", SHA_256),
    "ttlMonitorEnabled": ServerParameter(
        lambda op: op.service.expiry.is_enabled, at_startup=True, write=_set_ttl_monitor
    ),
    "ttlMonitorSleepSecs": ServerParameter(lambda op: op.service.expiry.sleep_s, write=_set_ttl_sleep),
}


class GetParameterRequest(NamedTuple):
    command: Annotated[Value, Field("getParameter", ONE)]


@command(
    "getParameter",
    GetParameterRequest,
    access=on_cluster("getParameter"),
    help="Returns the values of server parameters, by name or all with '*'.",
    admin_only=True,
    strict=False,
)
def get_parameter(op: OperationContext, request: GetParameterRequest) -> Reply:
    """`{getParameter: "*" | {allParameters, showDetails, setAt: "startup" | "runtime"} | <anything>, <name>: 1, …}`.

    showDetails: each as `{value, settableAtRuntime, settableAtStartup}`. InvalidOptions (72) if no known parameter is
    named, TypeMismatch (14) for options of wrong types, BadValue (2) for another `setAt`.
    """
    everything = request.command == "*"
    details = False
    set_at: Value = None
    if isinstance(request.command, bytes):
        for name, value in read_known("getParameter", request.command, _GET_OPTIONS).items():
            if name == "setAt":
                set_at = value
                _check_set_at(value)
            else:
                wanted = _checked_switch(name, value)
                details = wanted if name == "showDetails" else details
                everything = wanted if name == "allParameters" else everything
    known = [
        name
        for name, parameter in SERVER_PARAMETERS.items()
        if not parameter.test_only or op.service.config.enable_test_commands
    ]
    names = sorted(known) if everything else [name for name in op.command.extra_fields if name in known]
    if not names:
        raise CommandError(ErrorCode.InvalidOptions, "no option found to get")
    found: dict[str, Value] = {}
    for name in names:
        parameter = SERVER_PARAMETERS[name]
        at_runtime = parameter.write is not None
        if everything and set_at is not None and not (at_runtime if set_at == "runtime" else parameter.at_startup):
            continue
        found[name] = parameter.read(op)
        if details:
            found[name] = {
                "value": found[name],
                "settableAtRuntime": at_runtime,
                "settableAtStartup": parameter.at_startup,
            }
    return found


def _check_set_at(value: Value) -> None:
    if value is not None:
        checked_word("getParameter.setAt", value, ("startup", "runtime"))


def _checked_switch(name: str, value: Value) -> bool:
    if value is None:
        return False
    if not isinstance(value, (bool, int, float, Decimal128)):
        raise wrong_type(f"getParameter.{name}", value, "[bool, long, int, decimal, double]")
    return is_true(value)


class SetParameterRequest(NamedTuple):
    command: Annotated[Value, Field("setParameter", ONE)]


@command(
    "setParameter",
    SetParameterRequest,
    access=on_cluster("setParameter"),
    help="Sets server parameters, such as ttlMonitorEnabled, memory limits and logLevel.",
    admin_only=True,
    strict=False,
)
def set_parameter(op: OperationContext, request: SetParameterRequest) -> Reply:
    """`{setParameter: 1, ttlMonitorEnabled: false}` pauses TTL deletion; expired documents stay invisible.

    Memory limits apply to operations that begin afterwards. logLevel: from 1 on commands are logged. `was`: the
    previous value of the last parameter. InvalidOptions (72) without a parameter, or for one that is unknown or not
    settable at run time; BadValue (2) and TypeMismatch (14) for an invalid value; parameters before it are changed.
    """
    if not op.command.extra_fields:
        raise CommandError(ErrorCode.InvalidOptions, "no option found to set, use help:true to see options ")
    writers: list[tuple[Writer, Value]] = []
    for name, value in op.command.extra_fields.items():
        parameter = SERVER_PARAMETERS.get(name)
        if parameter is None:
            raise CommandError(
                ErrorCode.InvalidOptions,
                f"attempted to set unrecognized parameter [{name}], use help:true to see options ",
            )
        if parameter.write is None:
            raise CommandError(ErrorCode.IllegalOperation, f"not allowed to change [{name}] at runtime")
        writers.append((parameter.write, value))
    was: Value = None
    for write, value in writers:
        was = write(op, value)
    return {"was": was}
