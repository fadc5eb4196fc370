"""Every setting of the server, in one table for the command line, the environment, `getParameter` and docs/settings.md.

A setting is a field of `ServerConfig`, declared once with all that is known of it. The command line and the environment
are both parsed by `Setting.parse`; whatever a configuration comes from, `ServerConfig.validate` checks it.
"""

import re
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from typing import Final

from mongottl.clock import parse_date
from mongottl.config.cosmos_choices import (
    BACKUPS,
    BATCH_TEXTS,
    CAPABILITIES,
    CONTINUOUS,
    NOT_CONTINUOUS,
    REFUSALS,
    THROUGHPUTS,
    VARIANTS,
)
from mongottl.config.dialects import DIALECTS
from mongottl.config.setting import Setting, SettingError, setting_field, settings_of
from mongottl.config.versions import NEWEST_PATCHES, WIRE_VERSIONS

LOG_FORMATS: Final = ("text", "json")
MAX_LOG_LEVEL: Final = 5
MAX_PORT: Final = 65_535
REPLICA_SET: Final = "replicaSet"
SHARDED: Final = "sharded"
TOPOLOGIES: Final = (REPLICA_SET, SHARDED)
STORAGE_ENGINES: Final = ("auto", "memory", "sqlite")
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
    ("workers", ("store",)),
)
# A password in the URI of a store: after the user's name, or among its parameters.
_PASSWORD: Final = re.compile(r"(://[^/?#@]*?:|[?&](?:ssl)?password=)[^@&#]*")
# The user of `user` has a password in one of these, or is there already.
_GIVE_USERS: Final = ("password_file", "password", "data_dir", "load")
# Settings of which only one can be given.
_EXCLUDES: Final[tuple[tuple[str, str], ...]] = (
    ("store", "data_dir"),
    ("store", "storage_engine"),
    ("password", "password_file"),
    ("verbosity", "quiet"),
    ("tls_self_signed", "tls_cert"),
    ("cosmos_key", "cosmos_key_file"),
    ("workers", "certificate_port"),  # each worker would do that for itself
)


def without_passwords(store: str) -> str:
    """A setting `store` as it may be shown."""
    return _PASSWORD.sub(r"\1***", store)


@dataclass
class ServerConfig:
    """The settings of one server; SettingError (ValueError) for a bad value."""

    host: str = setting_field("127.0.0.1", "network", "host", "Address to listen on.")
    port: int = setting_field(
        27017, "network", "number", "TCP port to listen on; 0 picks a free one.", maximum=MAX_PORT
    )
    data_dir: str | None = setting_field(
        None, "data", "path", "Folder for the data; without it everything is kept in memory and lost at the end."
    )
    store: str | None = setting_field(
        None,
        "data",
        "store",
        "Keep the data in `postgresql://user@host/database`, or by a private PostgreSQL: `local-postgresql:FOLDER`.",
    )
    store_timeout: int = setting_field(
        5,
        "data",
        "number",
        "Seconds for which calls are repeated while the store is away, before clients get an error.",
        minimum=1,
        maximum=3600,
    )
    load: str | None = setting_field(
        None, "data", "path", "Folder with files to load at the start: what mongodump and mongoexport write, and JSON."
    )
    storage_engine: str = setting_field(
        "auto",
        "data",
        "text",
        "Storage engine; `auto` is `sqlite` with a data folder and the faster `memory` without one.",
        choices=STORAGE_ENGINES,
    )
    dialect: str = setting_field(
        "mongodb",
        "behaviour",
        "text",
        "Whether to take what MongoDB takes, or to refuse what Cosmos DB refuses. TTL is the same.",
        choices=DIALECTS,
    )
    server_version: str | None = setting_field(
        None,
        "behaviour",
        "text",
        "MongoDB version to announce; what came later is refused. By default 8.2, or 7.0 as `cosmos`.",
        choices=tuple(WIRE_VERSIONS),
    )
    enable_test_commands: bool = setting_field(
        False,
        "tests",
        "switch",
        "Allow commands for tests, such as advanceClock, freezeClock, saveState and configureFailPoint.",
        choices=(),
        parameter="enableTestCommands",
    )
    now: str | None = setting_field(
        None,
        "tests",
        "time",
        "The clock's time at the start, such as 2026-01-01T12:00:00Z; needs --enable-test-commands.",
    )
    freeze_clock: bool = setting_field(
        False,
        "tests",
        "switch",
        "The clock stands still from the first command on, until one moves it; needs --enable-test-commands.",
    )
    replica_set: str = setting_field(
        "globaldb", "behaviour", "set", "Name of the one-member replica set that is shown to drivers."
    )
    advertise_host: str | None = setting_field(
        None,
        "network",
        "address",
        "Address in the reply of `hello`, to which drivers connect; by default the one that the client has used.",
    )
    refresh_on_noop: bool = setting_field(
        True,
        "behaviour",
        "switch",
        "Whether an update that matches a document but changes nothing restarts its time to live.",
    )
    ttl_monitor_enabled: bool = setting_field(
        True, "behaviour", "switch", "Whether expired documents are deleted.", choices=(), parameter="ttlMonitorEnabled"
    )
    max_connections: int = setting_field(
        10_000,
        "network",
        "number",
        "Connections that may be open at once.",
        choices=(),
        parameter="maxConns",
        minimum=1,
        maximum=1_000_000,
    )
    cursor_timeout_s: int = setting_field(
        600, "behaviour", "number", "Seconds after which an idle cursor is closed.", minimum=1, maximum=2_000_000
    )
    cursor_memory_mb: int = setting_field(
        0,
        "behaviour",
        "number",
        "MiB that idle cursors hold together before their data moves to files; 0: an eighth of the memory.",
        maximum=1 << 30,
    )
    operation_memory_mb: int = setting_field(
        0,
        "behaviour",
        "number",
        "MiB that running sorts and groups hold together before they use files; 0: a quarter of memory.",
        maximum=1 << 30,
    )
    cache_memory_mb: int = setting_field(
        0,
        "data",
        "number",
        "MiB of the documents in a data folder to keep in memory once read; 0: an eighth of the memory.",
        maximum=1 << 30,
    )
    oplog_size_mb: int = setting_field(
        64,
        "data",
        "number",
        "Largest size of the oplog, which change streams read, in MiB.",
        minimum=1,
        maximum=1_000_000,
    )
    oplog_min_retention_hours: int = setting_field(
        0,
        "data",
        "number",
        "Hours for which entries of the oplog are kept although it exceeds that size.",
        maximum=1_000_000,
    )
    compact_free_percent: int = setting_field(
        50,
        "data",
        "number",
        "Percentage of the database file that may be unused before space is given back by itself; 0: never.",
        maximum=99,
    )
    auth: bool = setting_field(
        False, "users", "switch", "Check users: a client has to log in, and may do what its user's roles allow."
    )
    user: str | None = setting_field(
        None, "users", "text", "Name of a user with the role `root`, made at the start unless it exists."
    )
    password_file: str | None = setting_field(
        None, "users", "path", "File whose first line is the password of that user."
    )
    password: str | None = setting_field(
        None,
        "users",
        "text",
        "The password of that user, without a file; not an option, since everybody can list processes.",
        on_command_line=False,
    )
    tls_cert: str | None = setting_field(
        None, "tls", "path", "PEM file with the server's certificate, and perhaps its key; turns TLS on."
    )
    tls_key: str | None = setting_field(None, "tls", "path", "PEM file with the key of the certificate.")
    tls_ca: str | None = setting_field(
        None,
        "tls",
        "path",
        "PEM file with the certificate authorities of clients, which then have to present a certificate.",
    )
    tls_allow_connections_without_certificates: bool = setting_field(
        False, "tls", "switch", "With --tls-ca, accept clients that present no certificate."
    )
    tls_self_signed: bool = setting_field(
        False,
        "tls",
        "switch",
        "Turn TLS on with a certificate for localhost that is made at the first start; needs the extra `tls`.",
    )
    log_format: str = setting_field(
        "text",
        "log",
        "text",
        "Form of the log on standard error: readable lines, or mongod's JSON.",
        choices=LOG_FORMATS,
    )
    quiet: bool = setting_field(False, "log", "switch", "Log only warnings and errors.")
    verbosity: int = setting_field(
        0,
        "log",
        "number",
        "0 to 5, as mongod's logLevel: from 1 on, commands are logged, with --dialect cosmos their charges.",
        maximum=MAX_LOG_LEVEL,
    )
    scripting: bool = setting_field(
        True,
        "behaviour",
        "switch",
        "Whether to run JavaScript ($where, $function, mapReduce and others). Needs the extra `javascript`.",
    )
    cosmos_capability: tuple[str, ...] = setting_field(
        (), "cosmos", "names", "Capabilities that the account has, by Azure's names.", choices=tuple(CAPABILITIES)
    )
    cosmos_backup: str = setting_field(
        "periodic",
        "cosmos",
        "text",
        "Kind of backup of the account, which decides about unique indexes.",
        choices=BACKUPS,
    )
    cosmos_allow: tuple[str, ...] = setting_field(
        (), "cosmos", "names", "Refusals of Cosmos DB to switch off.", choices=(*REFUSALS, *VARIANTS)
    )
    cosmos_refuse: tuple[str, ...] = setting_field(
        (), "cosmos", "names", "Behaviours that only some accounts have, to switch on.", choices=tuple(VARIANTS)
    )
    cosmos_batch_text: str = setting_field(
        "batch", "cosmos", "text", "Form of the text of a throttled write of several statements.", choices=BATCH_TEXTS
    )
    cosmos_throughput: str = setting_field(
        "metered",
        "cosmos",
        "text",
        "Request units: not counted, counted, or counted and throttled by the budget.",
        choices=THROUGHPUTS,
    )
    cosmos_account: str | None = setting_field(
        None, "cosmos", "text", "Name of the account: clients log in with it and one of the account's keys."
    )
    cosmos_key: str | None = setting_field(
        None,
        "cosmos",
        "text",
        "The account's key, without a file; otherwise one is made, and kept in the data folder.",
        on_command_line=False,
    )
    cosmos_key_file: str | None = setting_field(
        None, "cosmos", "path", "File with the account's key, and perhaps its read-only key in a second line."
    )
    web_port: int | None = setting_field(
        None,
        "network",
        "number",
        "TCP port of a page that shows what expires and what runs, and of /metrics; 0 picks one. Needs extra `web`.",
        maximum=MAX_PORT,
    )
    web_host: str = setting_field("127.0.0.1", "network", "host", "Address on which the page listens.")
    emulator: bool = setting_field(
        False,
        "cosmos",
        "switch",
        "Take the place of Cosmos DB's emulator: by default port 10255, its account and key, TLS, test commands.",
    )
    certificate_port: int | None = setting_field(
        None,
        "tls",
        "number",
        "TCP port that serves the certificate to trust, at https://…/_explorer/emulator.pem; 0 is off. Extra `web`.",
        maximum=MAX_PORT,
    )
    topology: str = setting_field(
        REPLICA_SET,
        "network",
        "text",
        "Answer as a replica set, or as a mongos, whose clients keep the address they were given.",
        choices=TOPOLOGIES,
    )
    workers: int = setting_field(
        1,
        "network",
        "number",
        "Processes that serve on one port with one --store; together they are a mongos for loadBalanced=true.",
        minimum=1,
        maximum=256,
    )

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
        if self.emulator and (self.dialect != "cosmos" or not self._is_given("cosmos_account")):
            raise SettingError("emulator", "needs {} cosmos and {}", "dialect", "cosmos_account")
        if self.workers > 1:
            self._validate_workers()
        has_key = self._is_given("cosmos_key") or self._is_given("cosmos_key_file")
        if self._is_given("cosmos_account") and not has_key and self.store is not None and self.is_sharded:
            # Each node would make a key of its own, and only that of the last one would let anybody in.
            reason = f"with {{}} and {{}} {SHARDED} needs {{}} or {{}}"
            raise SettingError("cosmos_account", reason, "store", "topology", "cosmos_key_file", "cosmos_key")
        if self.storage_engine == "memory" and self.data_dir is not None:
            raise SettingError("storage_engine", "memory not together with {}", "data_dir")
        for setting in SETTINGS:
            if setting.group in DIALECTS and setting.group != self.dialect and self._is_given(setting.field):
                raise SettingError(setting.field, f"only with {{}} {setting.group}", "dialect")
        versions = DIALECTS[self.dialect].versions
        if self.announced_version() not in versions:
            raise SettingError("server_version", f"with {{}} {self.dialect} one of {', '.join(versions)}", "dialect")
        for capability in self.cosmos_capability:
            if capability in NOT_CONTINUOUS and self.cosmos_backup == CONTINUOUS:
                reason = f"{capability} not together with {{}} continuous"
                raise SettingError("cosmos_capability", reason, "cosmos_backup")
        for name in self.cosmos_refuse:
            if name in self.cosmos_allow:
                raise SettingError("cosmos_refuse", f"{name} not together with {{}} {name}", "cosmos_allow")

    def _validate_workers(self) -> None:
        if not self.is_sharded:
            raise SettingError("workers", f"needs {{}} {SHARDED}", "topology")
        if self.web_port:
            last = self.web_port + self.workers - 1
            if last > MAX_PORT or (self.web_host == self.host and self.web_port <= self.port <= last):
                raise SettingError(
                    "web_port", "needs ports from it on for each of {}, other than {}", "workers", "port"
                )

    def _is_given(self, field: str) -> bool:
        """Whether a setting has another value than its default."""
        value: object = getattr(self, field)
        return value != DEFAULTS[field]

    def store_uri(self) -> str:
        """The URI of the storage engine that keeps the data (`storage.opening`)."""
        if self.store is not None:
            return self.store
        name = self.storage_engine
        if name == "auto":
            name = "memory" if self.data_dir is None else "sqlite"
        return f"{name}:{self.data_dir or ''}"

    def store_shown(self) -> str | None:
        """The setting `store` without passwords, as it may be shown; None without one."""
        return None if self.store is None else without_passwords(self.store)

    def start_ms(self) -> int | None:
        """The clock's time at the start, in ms since 1970; None for the machine's. ValueError."""
        return None if self.now is None else parse_date(self.now)

    def announced_version(self) -> str:
        """The MongoDB version that the server announces, without its patch: "8.2"."""
        return self.server_version or DIALECTS[self.dialect].default_version

    def full_version(self) -> str:
        """The announced version with its patch, as `buildInfo` names it. Accounts of Cosmos DB show patch 0."""
        version = self.announced_version()
        return f"{version}.{NEWEST_PATCHES[version] if DIALECTS[self.dialect].has_patches else 0}"

    @property
    def is_sharded(self) -> bool:
        """Whether it answers as a mongos."""
        return self.topology == SHARDED

    def max_wire_version(self) -> int:
        return WIRE_VERSIONS[self.announced_version()]


SETTINGS: Final[tuple[Setting, ...]] = settings_of(ServerConfig)
DEFAULTS: Final[dict[str, object]] = {field.name: field.default for field in dataclass_fields(ServerConfig)}
