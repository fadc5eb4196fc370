"""Every setting of the server, in one table for the command line, the environment, `getParameter` and docs/settings.md.

A setting is a field of `ServerConfig` and a row of `SETTINGS`; a test checks that they agree. The command line and the
environment are both parsed by `Setting.parse`; whatever a configuration comes from, `ServerConfig.validate` checks it.
"""

import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from dataclasses import fields as dataclass_fields
from typing import Any, Final, SupportsIndex, TypeAlias

from mongottl.account import (
    BACKUPS,
    BATCH_TEXTS,
    CAPABILITIES,
    CONTINUOUS,
    NOT_CONTINUOUS,
    REFUSALS,
    THROUGHPUTS,
    VARIANTS,
)
from mongottl.clock import parse_date

VERSION: Final = "0.1.0"
# The source revision that `buildInfo` and explain report.
GIT_VERSION: Final = f"mongottl-{VERSION}"

DIALECTS: Final = ("mongodb", "cosmos")
# Those that accounts of Cosmos DB can have.
COSMOS_VERSIONS: Final = ("3.6", "4.0", "4.2", "5.0", "6.0", "7.0")
LOG_FORMATS: Final = ("text", "json")
MAX_LOG_LEVEL: Final = 5
REPLICA_SET: Final = "replicaSet"
SHARDED: Final = "sharded"
TOPOLOGIES: Final = (REPLICA_SET, SHARDED)
STORAGE_ENGINES: Final = ("auto", "memory", "sqlite")
# The MongoDB versions that the server can announce, with the maxWireVersion of each.
WIRE_VERSIONS: Final = {"3.6": 6, "4.0": 7, "4.2": 8, "4.4": 9, "5.0": 13, "6.0": 17, "7.0": 21, "8.0": 25, "8.2": 27}
# The newest patch of each: the tables of `versions` have what came with patches, too. Source: the release notes.
NEWEST_PATCHES: Final = {
    "3.6": 23,
    "4.0": 28,
    "4.2": 25,
    "4.4": 30,
    "5.0": 34,
    "6.0": 27,
    "7.0": 31,
    "8.0": 20,
    "8.2": 6,
}
LATEST_VERSION: Final = "8.2"
DEFAULT_VERSIONS: Final = {"mongodb": LATEST_VERSION, "cosmos": "7.0"}


class SettingError(ValueError):
    """A setting has a value that it cannot have.

    field: its name in `ServerConfig`. The text begins with it, and may mention other settings, as `{}` in `reason`.
    """

    def __init__(self, field: str, reason: str, *mentioned: str) -> None:
        self.field = field
        self._reason = reason
        self._mentioned = mentioned
        super().__init__(self.text(str))

    def as_given(self, field: str) -> "SettingError":
        """The same error under another name of the setting."""
        return SettingError(field, self._reason, *self._mentioned)

    def text(self, name: Callable[[str], str]) -> str:
        """The error's text. name: gives the name by which the user knows a field, as that of its option."""
        reason = self._reason.format(*map(name, self._mentioned)) if self._mentioned else self._reason
        return f"{name(self.field)}: {reason}"


@dataclass
class ServerConfig:
    """The settings of one server; see `SETTINGS` for what each means. SettingError (ValueError) for a bad value."""

    host: str = "127.0.0.1"
    port: int = 27017
    data_dir: str | None = None
    load: str | None = None
    storage_engine: str = "auto"
    dialect: str = "mongodb"
    server_version: str | None = None
    enable_test_commands: bool = False
    now: str | None = None
    freeze_clock: bool = False
    replica_set: str = "globaldb"
    advertise_host: str | None = None
    refresh_on_noop: bool = True
    ttl_monitor_enabled: bool = True
    max_connections: int = 10_000
    cursor_timeout_s: int = 600
    cursor_memory_mb: int = 0
    operation_memory_mb: int = 0
    oplog_size_mb: int = 64
    oplog_min_retention_hours: int = 0
    compact_free_percent: int = 50
    auth: bool = False
    user: str | None = None
    password_file: str | None = None
    password: str | None = dataclass_field(default=None, repr=False)
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    tls_allow_connections_without_certificates: bool = False
    tls_self_signed: bool = False
    log_format: str = "text"
    quiet: bool = False
    verbosity: int = 0
    scripting: bool = True
    cosmos_capability: tuple[str, ...] = ()
    cosmos_backup: str = "periodic"
    cosmos_allow: tuple[str, ...] = ()
    cosmos_refuse: tuple[str, ...] = ()
    cosmos_batch_text: str = "batch"
    cosmos_throughput: str = "metered"
    cosmos_account: str | None = None
    cosmos_key: str | None = dataclass_field(default=None, repr=False)
    cosmos_key_file: str | None = None
    web_port: int | None = None
    web_host: str = "127.0.0.1"
    emulator: bool = False
    certificate_port: int | None = None
    topology: str = REPLICA_SET

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """SettingError for a value that its setting cannot have, or that contradicts another; a path becomes a text, a
        list a tuple."""
        for setting in SETTINGS:
            setattr(self, setting.field, setting.check(getattr(self, setting.field)))
        if self.certificate_port == 0:
            self.certificate_port = None
        for field, needed in _NEEDS:
            if self._is_given(field) and not any(self._is_given(other) for other in needed):
                raise SettingError(field, "only together with " + " or ".join("{}" for _ in needed), *needed)
        if self.user is not None and not any(self._is_given(other) for other in _GIVE_USERS):
            raise SettingError("user", "needs {} or {}", "password_file", "password")
        for field, other in _EXCLUDES:
            if self._is_given(field) and self._is_given(other):
                raise SettingError(field, "not together with {}", other)
        if self.web_port and self.web_port == self.port and self.web_host == self.host:
            raise SettingError("web_port", "needs another port than {}", "port")
        if self.certificate_port is not None and self.certificate_port in (self.port, self.web_port):
            raise SettingError("certificate_port", "needs another port than {} and {}", "port", "web_port")
        if self.emulator and (self.dialect != "cosmos" or self.cosmos_account is None):
            raise SettingError("emulator", "needs {} cosmos and {}", "dialect", "cosmos_account")
        if self.storage_engine == "memory" and self.data_dir is not None:
            raise SettingError("storage_engine", "memory not together with {}", "data_dir")
        if self.dialect != "cosmos":
            for setting in SETTINGS:
                if setting.field.startswith("cosmos_") and self._is_given(setting.field):
                    raise SettingError(setting.field, "only with {} cosmos", "dialect")
        elif self.announced_version() not in COSMOS_VERSIONS:
            known = ", ".join(COSMOS_VERSIONS)
            raise SettingError("server_version", f"with {{}} cosmos one of {known}", "dialect")
        for capability in self.cosmos_capability:
            if capability in NOT_CONTINUOUS and self.cosmos_backup == CONTINUOUS:
                reason = f"{capability} not together with {{}} continuous"
                raise SettingError("cosmos_capability", reason, "cosmos_backup")
        for name in self.cosmos_refuse:
            if name in self.cosmos_allow:
                raise SettingError("cosmos_refuse", f"{name} not together with {{}} {name}", "cosmos_allow")

    def _is_given(self, field: str) -> bool:
        """Whether a setting has another value than its default."""
        value: object = getattr(self, field)
        return value != _DEFAULTS[field]

    def chosen_engine(self) -> str:
        """The name of the storage engine that keeps the data."""
        if self.storage_engine != "auto":
            return self.storage_engine
        return "memory" if self.data_dir is None else "sqlite"

    def start_ms(self) -> int | None:
        """The clock's time at the start, in ms since 1970; None for the machine's. ValueError."""
        return None if self.now is None else parse_date(self.now)

    def announced_version(self) -> str:
        """The MongoDB version that the server announces, without its patch: "8.2"."""
        return self.server_version or DEFAULT_VERSIONS[self.dialect]

    def full_version(self) -> str:
        """The announced version with its patch, as `buildInfo` names it. Accounts of Cosmos DB show patch 0."""
        version = self.announced_version()
        return f"{version}.{0 if self.dialect == 'cosmos' else NEWEST_PATCHES[version]}"

    @property
    def is_sharded(self) -> bool:
        """Whether it answers as a mongos."""
        return self.topology == SHARDED

    def max_wire_version(self) -> int:
        return WIRE_VERSIONS[self.announced_version()]


SettingValue: TypeAlias = str | int | bool | tuple[str, ...]


@dataclass(frozen=True)
class Setting:
    """One row of the table.

    field: the attribute of `ServerConfig`. group: its heading in --help, a key of `SETTING_GROUPS`. value: "text",
    "path", "number", "host" (a name or an address), "address" (of a host, with a port), "set" (the name of a replica
    set), "time" (ISO 8601), "switch" (present or absent) or "names" (separated by commas; the option may be given
    repeatedly). choices: the values allowed, or none. parameter: the name that `getParameter`
    shows ("" for none). minimum, maximum: the smallest and largest number allowed. on_command_line: False for
    a secret, which only the environment gives, and which no error shows.
    """

    field: str
    group: str
    value: str
    help: str
    choices: tuple[str, ...] = ()
    parameter: str = ""
    minimum: int = 0
    maximum: int | None = None
    on_command_line: bool = True

    @property
    def option(self) -> str:
        """The command-line option: `--data-dir`."""
        return "--" + self.field.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable: `MONGOTTL_DATA_DIR`."""
        return "MONGOTTL_" + self.field.upper()

    def parse(self, text: str) -> SettingValue:
        """The value of an option's or variable's text. SettingError says what would have been right."""
        value: SettingValue = text
        if self.value == "number":
            if not _NUMBER.fullmatch(text):
                raise self._wrong("a whole number", text)
            value = int(text)
        elif self.value == "switch":
            if text.lower() not in SWITCH_TEXTS:
                raise self._wrong("true or false", text)
            value = text.lower() in ("1", "true", "yes")
        elif self.value == "names":
            value = tuple(name for name in text.split(",") if name)
        self.check(value)
        return value

    def check(self, value: object) -> SettingValue | None:
        """The value as a configuration keeps it. SettingError for a bad one; None is one that is not set."""
        if value is None and _DEFAULTS[self.field] is None:
            return None
        if self.value == "switch":
            if not isinstance(value, bool):
                raise self._wrong("True or False", value)
            return value
        if self.value == "number":
            return self._check_number(value)
        if self.value == "names":
            if not isinstance(value, (tuple, list)):
                raise self._wrong("a tuple of names", value)
            for name in value:
                if name not in self.choices:
                    raise self._wrong(f"one of {', '.join(self.choices)}", name)
            return tuple(str.__str__(name) for name in value)
        return self._check_text(value)

    def _check_number(self, value: object) -> int:
        # Also NumPy's whole numbers, and members of an IntEnum, which are written differently.
        if isinstance(value, bool) or not isinstance(value, SupportsIndex):
            raise self._wrong("a whole number", value)
        number = int(operator.index(value))
        if number < self.minimum:
            raise self._wrong(f"a number from {self.minimum} on", value)
        if self.maximum is not None and number > self.maximum:
            raise self._wrong(f"a number up to {self.maximum}", value)
        return number

    def _check_text(self, value: object) -> str:
        if self.value == "path" and isinstance(value, os.PathLike):
            value = os.fspath(value)
        elif self.value == "time" and not isinstance(value, str):
            value = self._time_text(value)
        if not isinstance(value, str):
            raise self._wrong("a text", value)
        value = str.__str__(value)  # the text of a member of an enumeration, which is written differently
        if self.choices and value not in self.choices:
            raise self._wrong(f"one of {', '.join(self.choices)}", value)
        if self.value == "host" and value and not (_is_host(value) or _is_ipv6(value) or value == _ALL_ADDRESSES):
            raise self._wrong("the name or address of a host, without port and brackets,", value)
        if self.value == "address" and not _is_address(value):
            raise self._wrong("host:port", value)
        if self.value == "set" and "/" in value:
            raise SettingError(self.field, "may not contain a slash, which ends the name of a set in set/host:port")
        if self.value == "time":
            try:
                parse_date(value)
            except ValueError as error:
                raise SettingError(self.field, str(error)) from None
        if not value:
            raise SettingError(self.field, "may not be empty")
        if not _CONTROL_CHARACTERS.isdisjoint(value):
            raise SettingError(self.field, "may not contain control characters")
        try:
            # A path may have bytes that are no text, which Python keeps as surrogates.
            os.fsencode(value) if self.value == "path" else value.encode()
        except UnicodeEncodeError:
            raise SettingError(self.field, "may not contain surrogates, which cannot be written as UTF-8") from None
        return value

    def _time_text(self, value: object) -> str:
        """A `date` or `datetime` in ISO 8601."""
        from datetime import date

        if not isinstance(value, date):
            raise self._wrong("a datetime, or a text in ISO 8601,", value)
        return value.isoformat()

    def _wrong(self, needed: str, value: object) -> SettingError:
        shown = f", not {value!r}" if self.on_command_line else ""
        return SettingError(self.field, f"{needed} is needed{shown}")


_NUMBER: Final = re.compile(r"-?[0-9]{1,30}")
# What sets a switch, in any case of letters.
SWITCH_TEXTS: Final = ("1", "0", "true", "false", "yes", "no")
_CONTROL_CHARACTERS: Final = frozenset(map(chr, (*range(32), 127)))


# What glibc takes as the name of all addresses, and mongod's --bind_ip too.
_ALL_ADDRESSES: Final = "*"
# Labels of letters, digits, hyphens and, as Docker makes them, underscores; also an IPv4 address. In a URI only letters
# beyond ASCII have to be escaped.
_HOST: Final = re.compile(r"[\w-]{1,63}(\.[\w-]{1,63})*\.?")
_MAX_HOST_CHARACTERS: Final = 254


def _is_host(text: str) -> bool:
    """Whether it is the name of a host, or an IPv4 address."""
    return len(text) <= _MAX_HOST_CHARACTERS and _HOST.fullmatch(text) is not None


def _is_ipv6(text: str) -> bool:
    """Whether it is an IPv6 address without brackets, perhaps with a zone (`fe80::1%eth0`)."""
    if ":" not in text:
        return False
    import ipaddress  # kept out of the start of the server

    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _is_address(text: str) -> bool:
    """Whether it is `host:port` or `[::1]:port`."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65_536:
        return False
    # A zone means something only on the machine that has it.
    return _is_host(host) or (host[:1] + host[-1:] == "[]" and "%" not in host and _is_ipv6(host[1:-1]))


# The groups of settings, with their headings in --help.
SETTING_GROUPS: Final[dict[str, str]] = {
    "network": "where it listens",
    "data": "data",
    "behaviour": "behaviour",
    "tests": "tests",
    "users": "users",
    "tls": "TLS",
    "log": "log",
    "cosmos": "the account that the dialect cosmos imitates",
}

SETTINGS: Final[tuple[Setting, ...]] = (
    Setting("host", "network", "host", "Address to listen on."),
    Setting("port", "network", "number", "TCP port to listen on; 0 picks a free one.", maximum=65_535),
    Setting(
        "data_dir", "data", "path", "Folder for the data; without it everything is kept in memory and lost at the end."
    ),
    Setting(
        "load",
        "data",
        "path",
        "Folder with files to load at the start: what mongodump and mongoexport write, and JSON.",
    ),
    Setting(
        "storage_engine",
        "data",
        "text",
        "Storage engine; `auto` is `sqlite` with a data folder and the faster `memory` without one.",
        STORAGE_ENGINES,
    ),
    Setting(
        "dialect",
        "behaviour",
        "text",
        "Whether to take what MongoDB takes, or to refuse what Cosmos DB refuses. TTL is the same.",
        DIALECTS,
    ),
    Setting(
        "server_version",
        "behaviour",
        "text",
        "MongoDB version to announce; what came later is refused. By default 8.2, or 7.0 as `cosmos`.",
        tuple(WIRE_VERSIONS),
    ),
    Setting(
        "enable_test_commands",
        "tests",
        "switch",
        "Allow commands for tests, such as advanceClock, freezeClock, saveState and configureFailPoint.",
        (),
        "enableTestCommands",
    ),
    Setting(
        "now",
        "tests",
        "time",
        "The clock's time at the start, such as 2026-01-01T12:00:00Z; needs --enable-test-commands.",
    ),
    Setting(
        "freeze_clock",
        "tests",
        "switch",
        "The clock stands still from the first command on, until one moves it; needs --enable-test-commands.",
    ),
    Setting("replica_set", "behaviour", "set", "Name of the one-member replica set that is shown to drivers."),
    Setting(
        "advertise_host",
        "network",
        "address",
        "Address that drivers are told to connect to, in `hello`; by default the one that the client has used.",
    ),
    Setting(
        "refresh_on_noop",
        "behaviour",
        "switch",
        "Whether an update that matches a document but changes nothing restarts its time to live.",
    ),
    Setting(
        "ttl_monitor_enabled", "behaviour", "switch", "Whether expired documents are deleted.", (), "ttlMonitorEnabled"
    ),
    Setting(
        "max_connections",
        "network",
        "number",
        "Connections that may be open at once.",
        (),
        "maxConns",
        minimum=1,
        maximum=1_000_000,
    ),
    Setting(
        "cursor_timeout_s",
        "behaviour",
        "number",
        "Seconds after which an idle cursor is closed.",
        minimum=1,
        maximum=2_000_000,
    ),
    Setting(
        "cursor_memory_mb",
        "behaviour",
        "number",
        "MiB that idle cursors hold together before their data moves to files; 0: an eighth of the memory.",
        maximum=1 << 30,
    ),
    Setting(
        "operation_memory_mb",
        "behaviour",
        "number",
        "MiB that running sorts and groups hold together before they use files; 0: a quarter of memory.",
        maximum=1 << 30,
    ),
    Setting(
        "oplog_size_mb",
        "data",
        "number",
        "Largest size of the oplog, which change streams read, in MiB.",
        minimum=1,
        maximum=1_000_000,
    ),
    Setting(
        "oplog_min_retention_hours",
        "data",
        "number",
        "Hours for which entries of the oplog are kept although it exceeds that size.",
        maximum=1_000_000,
    ),
    Setting(
        "compact_free_percent",
        "data",
        "number",
        "Percentage of the database file that may be unused before space is given back by itself; 0: never.",
        maximum=99,
    ),
    Setting("auth", "users", "switch", "Check users: a client has to log in, and may do what its user's roles allow."),
    Setting("user", "users", "text", "Name of a user with the role `root`, made at the start unless it exists."),
    Setting("password_file", "users", "path", "File whose first line is the password of that user."),
    Setting(
        "password",
        "users",
        "text",
        "The password of that user, without a file; not an option, since everybody can list processes.",
        on_command_line=False,
    ),
    Setting("tls_cert", "tls", "path", "PEM file with the server's certificate, and perhaps its key; turns TLS on."),
    Setting("tls_key", "tls", "path", "PEM file with the key of the certificate."),
    Setting(
        "tls_ca",
        "tls",
        "path",
        "PEM file with the certificate authorities of clients, which then have to present a certificate.",
    ),
    Setting(
        "tls_allow_connections_without_certificates",
        "tls",
        "switch",
        "With --tls-ca, accept clients that present no certificate.",
    ),
    Setting(
        "tls_self_signed",
        "tls",
        "switch",
        "Turn TLS on with a certificate for localhost that is made at the first start; needs the extra `tls`.",
    ),
    Setting(
        "log_format", "log", "text", "Form of the log on standard error: readable lines, or mongod's JSON.", LOG_FORMATS
    ),
    Setting("quiet", "log", "switch", "Log only warnings and errors."),
    Setting(
        "verbosity",
        "log",
        "number",
        "0 to 5, as mongod's logLevel: from 1 on, commands are logged, with --dialect cosmos their charges.",
        maximum=MAX_LOG_LEVEL,
    ),
    Setting(
        "scripting",
        "behaviour",
        "switch",
        "Whether to run JavaScript ($where, $function, mapReduce and others). Needs the extra `javascript`.",
    ),
    Setting(
        "cosmos_capability",
        "cosmos",
        "names",
        "Capabilities that the account has, by Azure's names.",
        tuple(CAPABILITIES),
    ),
    Setting(
        "cosmos_backup", "cosmos", "text", "Kind of backup of the account, which decides about unique indexes.", BACKUPS
    ),
    Setting("cosmos_allow", "cosmos", "names", "Refusals of Cosmos DB to switch off.", (*REFUSALS, *VARIANTS)),
    Setting(
        "cosmos_refuse", "cosmos", "names", "Behaviours that only some accounts have, to switch on.", tuple(VARIANTS)
    ),
    Setting(
        "cosmos_batch_text",
        "cosmos",
        "text",
        "Form of the text of a throttled write of several statements.",
        BATCH_TEXTS,
    ),
    Setting(
        "cosmos_throughput",
        "cosmos",
        "text",
        "Request units: not counted, counted, or counted and throttled by the budget.",
        THROUGHPUTS,
    ),
    Setting(
        "cosmos_account", "cosmos", "text", "Name of the account: clients log in with it and one of the account's keys."
    ),
    Setting(
        "cosmos_key",
        "cosmos",
        "text",
        "The account's key, without a file; otherwise one is made, and kept in the data folder.",
        on_command_line=False,
    ),
    Setting(
        "cosmos_key_file",
        "cosmos",
        "path",
        "File with the account's key, and perhaps its read-only key in a second line.",
    ),
    Setting(
        "web_port",
        "network",
        "number",
        "TCP port of a page that shows what expires and what runs, and of /metrics; 0 picks one. Needs extra `web`.",
        maximum=65_535,
    ),
    Setting("web_host", "network", "host", "Address on which the page listens."),
    Setting(
        "emulator",
        "cosmos",
        "switch",
        "Take the place of Cosmos DB's emulator: by default port 10255, its account and key, TLS, test commands.",
    ),
    Setting(
        "certificate_port",
        "tls",
        "number",
        "TCP port that serves the certificate to trust, at https://…/_explorer/emulator.pem; 0 is off. Extra `web`.",
        maximum=65_535,
    ),
    Setting(
        "topology",
        "network",
        "text",
        "Answer as a replica set, or as a mongos, whose clients keep the address they were given.",
        TOPOLOGIES,
    ),
)

_DEFAULTS: Final[dict[str, object]] = {field.name: field.default for field in dataclass_fields(ServerConfig)}
# Settings that need one of others.
_NEEDS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("password_file", ("user",)),
    ("password", ("user",)),
    ("tls_key", ("tls_cert",)),
    ("tls_ca", ("tls_cert", "tls_self_signed")),
    ("tls_allow_connections_without_certificates", ("tls_ca",)),
    ("now", ("enable_test_commands",)),
    ("freeze_clock", ("enable_test_commands",)),
    ("cosmos_key", ("cosmos_account",)),
    ("cosmos_key_file", ("cosmos_account",)),
    ("web_host", ("web_port",)),
    ("certificate_port", ("tls_self_signed", "tls_cert")),
)
# The user of `user` has a password in one of these, or is there already.
_GIVE_USERS: Final = ("password_file", "password", "data_dir", "load")
# Settings of which only one can be given.
_EXCLUDES: Final[tuple[tuple[str, str], ...]] = (
    ("password", "password_file"),
    ("verbosity", "quiet"),
    ("tls_self_signed", "tls_cert"),
    ("cosmos_key", "cosmos_key_file"),
)
# The settings of a server for one test suite, unless it is told otherwise: `start_server()` and `mongottl run`. Time
# stands still, so that no test depends on how fast it runs.
_FOR_TESTS: Final[dict[str, object]] = {"port": 0, "enable_test_commands": True, "freeze_clock": True, "quiet": True}
# The settings of a server in the place of Cosmos DB's emulator, unless it is told otherwise.
# Source: Microsoft's "Develop locally using the Azure Cosmos DB emulator", which publishes account, key and ports.
_FOR_EMULATOR: Final[dict[str, object]] = {
    "port": 10_255,
    "dialect": "cosmos",
    "cosmos_account": "localhost",
    "cosmos_key": "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==",
    "tls_self_signed": True,
    "certificate_port": 8081,
    "enable_test_commands": True,
}
# Variables with our prefix that are no settings, and who reads them.
OTHER_VARIABLES: Final[dict[str, str]] = {
    "MONGOTTL_CONFIG": "command line: the file of `--config`",
    "MONGOTTL_PURE": "installation: 1 leaves everything interpreted",
    "MONGOTTL_OPT_LEVEL": "installation: how much the C compiler optimises",
    "MONGOTTL_FUZZ_SEED": "tests: the seed of the random commands",
    "MONGOTTL_KILLS": "tests: how often a server is killed",
    "MONGOTTL_SIMULATION_SEEDS": "tests: the seeds of the simulation",
    "MONGOTTL_SIMULATION_TURNS": "tests: the length of a simulation",
    "MONGOTTL_DEBIAN_ROOT": "tests: the root of a Debian without Python, for the bundle",
    "MONGOTTL_TEST_IMAGE": "tests: the container image, or `build`",
    "MONGOTTL_VOLUME_FIGURES": "tests: the file that gets the figures of the tests of volume",
}
# What Kubernetes and Docker's links set beside a service or container of the name `mongottl`.
_SERVICE_VARIABLE: Final = re.compile(r"MONGOTTL_(\w+_)?(SERVICE_(HOST|PORT)|PORT_\d+_(TCP|UDP)|ENV|NAME)(_\w+)?")


@dataclass
class LogSettings:
    """What is logged: with `quiet` only warnings and errors; from verbosity 1 on (mongod's logLevel) commands as
    well."""

    quiet: bool = False
    verbosity: int = 0
    # Levels of single components, by name; those that are not set, or -1, follow `verbosity`.
    components: dict[str, int] = dataclass_field(default_factory=dict)

    @property
    def command_verbosity(self) -> int:
        """The level of the lines about commands."""
        own = self.components.get("command", -1)
        return self.verbosity if own < 0 else own


@dataclass
class MemoryLimits:
    """The memory that one operation may use, in bytes, and whether it may use the disk beyond that, and what all
    messages that arrive may use; see `PARAMETERS`."""

    allow_disk_use: bool = True
    sort_bytes: int = 100 << 20
    group_bytes: int = 100 << 20
    bucket_auto_bytes: int = 100 << 20
    window_bytes: int = 100 << 20
    graph_lookup_bytes: int = 100 << 20
    lookup_document_bytes: int = 100 << 20
    lookup_table_bytes: int = 100 << 20
    facet_bytes: int = 100 << 20
    densify_bytes: int = 100 << 20
    push_bytes: int = 100 << 20
    add_to_set_bytes: int = 100 << 20
    pre_auth_message_bytes: int = 16 << 10
    incoming_bytes: int = 256 << 20


@dataclass(frozen=True)
class Parameter:
    """A parameter that `setParameter` changes while the server runs.

    name: mongod's, or our own if mongod has no such limit. field: the attribute of `MemoryLimits`: a number from
    `minimum` to the largest int64, or a switch.
    """

    name: str
    field: str
    help: str
    minimum: int = 1


PARAMETERS: Final[tuple[Parameter, ...]] = (
    Parameter(
        "allowDiskUseByDefault",
        "allow_disk_use",
        "Whether `find` and `aggregate` without `allowDiskUse` may use temporary files.",
    ),
    Parameter(
        "internalQueryMaxBlockingSortMemoryUsageBytes",
        "sort_bytes",
        "Memory of a sort, or of the scores of a text search, before it uses temporary files, or fails (292).",
        minimum=0,
    ),
    Parameter(
        "internalDocumentSourceGroupMaxMemoryBytes",
        "group_bytes",
        "Memory of a `$group` before it uses temporary files, or fails (292).",
    ),
    Parameter(
        "internalDocumentSourceBucketAutoMaxMemoryBytes",
        "bucket_auto_bytes",
        "Memory of a `$bucketAuto` before it uses temporary files, or fails (292).",
    ),
    Parameter(
        "internalDocumentSourceSetWindowFieldsMaxMemoryBytes",
        "window_bytes",
        "Memory of a partition of `$setWindowFields` before it uses temporary files, or fails (292).",
    ),
    Parameter(
        "internalDocumentSourceGraphLookupMaxMemoryBytes",
        "graph_lookup_bytes",
        "Memory of the documents that a `$graphLookup` finds for one document; more is an error (40099).",
    ),
    Parameter(
        "internalLookupStageIntermediateDocumentMaxSizeBytes",
        "lookup_document_bytes",
        "Size of the documents that a `$lookup` joins to one document; more is an error (4568).",
        minimum=16 << 20,
    ),
    Parameter(
        "internalDocumentSourceLookupCacheSizeBytes",
        "lookup_table_bytes",
        "Memory in which a `$lookup` caches the other collection; beyond it, that is read once for each batch.",
    ),
    Parameter(
        "internalQueryFacetMaxOutputDocSizeBytes",
        "facet_bytes",
        "Size of the output of all pipelines of a `$facet`; more is an error (4031700).",
    ),
    Parameter(
        "internalDocumentSourceDensifyMaxMemoryBytes",
        "densify_bytes",
        "Memory of the partitions of a `$densify`; more is an error (6007200).",
    ),
    Parameter("internalQueryMaxPushBytes", "push_bytes", "Memory of one `$push` of a group; more is an error (146)."),
    Parameter(
        "internalQueryMaxAddToSetBytes",
        "add_to_set_bytes",
        "Memory of one `$addToSet` of a group; more is an error (146).",
    ),
    Parameter(
        "preAuthMaximumMessageSizeBytes",
        "pre_auth_message_bytes",
        "With --auth, the longest message of a client that has not logged in; a longer one ends its connection.",
        minimum=1 << 10,
    ),
    Parameter(
        "internalIncomingMessagesMaxBytes",
        "incoming_bytes",
        "Memory of all messages that are not answered yet; beyond it, long ones are read one after the other.",
    ),
)


def config_from(values: Mapping[str, str], for_tests: bool = False) -> ServerConfig:
    """A configuration from texts by field name; what is absent keeps its default. SettingError for a bad value.

    for_tests: whether the defaults are those of a server for a test suite (`config_for_tests`).
    """
    parsed: dict[str, Any] = {s.field: s.parse(values[s.field]) for s in SETTINGS if s.field in values}
    return config_for_tests(parsed) if for_tests else ServerConfig(**{**_emulator_defaults(parsed), **parsed})


def config_for_tests(settings: Mapping[str, Any]) -> ServerConfig:
    """A configuration for one test suite: a free port, test commands, a clock that stands still, only warnings logged,
    unless the settings, by field, say otherwise. SettingError for a bad value."""
    defaults = {**_emulator_defaults(settings), **_FOR_TESTS}
    if settings.get("enable_test_commands") is False:
        del defaults["freeze_clock"]  # only test commands could move it
    if settings.get("verbosity"):
        del defaults["quiet"]
    if "certificate_port" not in settings:
        defaults.pop("certificate_port", None)  # several suites may run at once
    return ServerConfig(**{**defaults, **settings})


def _emulator_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of the settings of a server in the emulator's place; none if these settings, by field, ask for no
    such server. What a setting contradicts is left out."""
    if settings.get("emulator") is not True:
        return {}
    defaults = dict(_FOR_EMULATOR)
    for given, contradicted in (("cosmos_key_file", "cosmos_key"), ("tls_cert", "tls_self_signed")):
        if settings.get(given) is not None:
            del defaults[contradicted]
    if settings.get("tls_self_signed") is False and settings.get("tls_cert") is None:
        del defaults["certificate_port"]
    return defaults


def config_from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The texts of the settings that the environment names, by field."""
    return {s.field: environment[s.variable] for s in SETTINGS if s.variable in environment}


def check_names(settings: Iterable[str]) -> None:
    """TypeError for a name that is no field of `ServerConfig`."""
    for name in settings:
        if name not in _DEFAULTS:
            raise TypeError(f"there is no setting {name}{did_you_mean(name, _DEFAULTS)}")


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`; did you mean --port?`, or nothing if no name is like the wrong one."""
    import difflib

    # All options begin with dashes, and whether letters are capitals says nothing about what was meant.
    by_letters = {known.lstrip("-").lower(): known for known in names}
    similar = difflib.get_close_matches(name.lstrip("-").lower(), by_letters, 1)
    return f"; did you mean {by_letters[similar[0]]}?" if similar else ""


def known_variables() -> list[str]:
    """The variables of the environment that somebody reads."""
    return [*(setting.variable for setting in SETTINGS), *OTHER_VARIABLES]


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """The variables with our prefix that nobody reads, so probably misspelt ones."""
    known = known_variables()
    return sorted(
        name
        for name in environment
        if name.startswith("MONGOTTL_") and name not in known and not _SERVICE_VARIABLE.fullmatch(name)
    )
