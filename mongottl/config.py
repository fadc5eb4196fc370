"""Every setting of the server, in one table that the command line, the environment, `getParameter` and the README use.

A setting is a field of `ServerConfig` and a row of `SETTINGS`; a test checks that they agree. The command line and the
environment are both parsed by `Setting.parse`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Final

from mongottl.account import BACKUPS, CAPABILITIES, REFUSALS, THROUGHPUTS

VERSION: Final = "0.1.0"
# The source revision that `buildInfo` and explain report.
GIT_VERSION: Final = f"mongottl-{VERSION}"

DIALECTS: Final = ("mongodb", "cosmos")
LOG_FORMATS: Final = ("text", "json")
STORAGE_ENGINES: Final = ("auto", "memory", "sqlite")
# The MongoDB versions that the server can announce, with the maxWireVersion of each.
WIRE_VERSIONS: Final = {"3.6": 6, "4.0": 7, "4.2": 8, "4.4": 9, "5.0": 13, "6.0": 17, "7.0": 21, "8.0": 25, "8.2": 27}
LATEST_VERSION: Final = "8.2"
DEFAULT_VERSIONS: Final = {"mongodb": LATEST_VERSION, "cosmos": "7.0"}


@dataclass
class ServerConfig:
    """The settings of one server; see `SETTINGS` for what each means."""

    host: str = "127.0.0.1"
    port: int = 27017
    data_dir: str | None = None
    storage_engine: str = "auto"
    dialect: str = "mongodb"
    server_version: str | None = None
    enable_test_commands: bool = False
    replica_set: str = "globaldb"
    advertise_host: str | None = None
    refresh_on_noop: bool = True
    ttl_monitor_enabled: bool = True
    max_connections: int = 10_000
    cursor_timeout_s: int = 600
    oplog_size_mb: int = 64
    oplog_min_retention_hours: int = 0
    auth: bool = False
    user: str | None = None
    password_file: str | None = None
    password: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    tls_allow_connections_without_certificates: bool = False
    tls_self_signed: bool = False
    log_format: str = "text"
    quiet: bool = False
    scripting: bool = True
    cosmos_capability: tuple[str, ...] = ()
    cosmos_backup: str = "periodic"
    cosmos_allow: tuple[str, ...] = ()
    cosmos_throughput: str = "metered"
    cosmos_account: str | None = None
    cosmos_key: str | None = None
    cosmos_key_file: str | None = None

    def chosen_engine(self) -> str:
        """The name of the storage engine that keeps the data."""
        if self.storage_engine != "auto":
            return self.storage_engine
        return "memory" if self.data_dir is None else "sqlite"

    def announced_version(self) -> str:
        """The MongoDB version that `buildInfo` names."""
        return self.server_version or DEFAULT_VERSIONS[self.dialect]

    def max_wire_version(self) -> int:
        return WIRE_VERSIONS[self.announced_version()]


@dataclass(frozen=True)
class Setting:
    """One row of the table.

    field: the attribute of `ServerConfig`. value: "text", "number", "address", "switch" (present or absent) or "names"
    (separated by commas; the option may be given repeatedly). choices: the values allowed, or none. parameter: the name
    under which `getParameter` shows it ("" if it does not).
    maximum: the largest number allowed, or None. on_command_line: False for a secret, which only the environment gives.
    """

    field: str
    value: str
    help: str
    choices: tuple[str, ...] = ()
    parameter: str = ""
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

    def parse(self, text: str) -> str | int | bool | tuple[str, ...]:
        """The value of an option's or variable's text. ValueError says what would have been right."""
        if self.value == "number":
            if not (text.isascii() and text.isdigit()):
                raise ValueError(f"{self.option}: a whole number is needed, not {text!r}")
            number = int(text)
            if self.maximum is not None and number > self.maximum:
                raise ValueError(f"{self.option}: {text} is more than {self.maximum}")
            return number
        if self.value == "switch":
            if text.lower() not in ("1", "0", "true", "false", "yes", "no"):
                raise ValueError(f"{self.option}: true or false is needed, not {text!r}")
            return text.lower() in ("1", "true", "yes")
        if self.value == "names":
            names = tuple(name for name in text.split(",") if name)
            for name in names:
                if name not in self.choices:
                    raise ValueError(f"{self.option}: one of {', '.join(self.choices)} is needed, not {name!r}")
            return names
        if self.choices and text not in self.choices:
            raise ValueError(f"{self.option}: one of {', '.join(self.choices)} is needed, not {text!r}")
        if self.value == "address" and not _is_address(text):
            raise ValueError(f"{self.option}: host:port is needed, not {text!r}")
        if not text:
            raise ValueError(f"{self.option}: may not be empty")
        return text


def _is_address(text: str) -> bool:
    """Whether it is `host:port` or `[::1]:port`."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65_536:
        return False
    return (host.startswith("[") and host.endswith("]")) or not set(host) & set(":[]/ ")


SETTINGS: Final[tuple[Setting, ...]] = (
    Setting("host", "text", "Address to listen on."),
    Setting("port", "number", "TCP port to listen on; 0 picks a free one.", maximum=65_535),
    Setting("data_dir", "text", "Folder for the data; without it everything is kept in memory and lost at the end."),
    Setting(
        "storage_engine",
        "text",
        "Storage engine; `auto` is `sqlite` with a data folder and the faster `memory` without one.",
        STORAGE_ENGINES,
    ),
    Setting(
        "dialect",
        "text",
        "Behaviour apart from TTL: that of MongoDB, or the refusals and codes of Cosmos DB.",
        DIALECTS,
    ),
    Setting(
        "server_version",
        "text",
        "MongoDB version to announce; what came later is refused. By default 8.2, or 7.0 as `cosmos`.",
        tuple(WIRE_VERSIONS),
    ),
    Setting(
        "enable_test_commands",
        "switch",
        "Allow advanceClock, freezeClock and configureFailPoint.",
        (),
        "enableTestCommands",
    ),
    Setting("replica_set", "text", "Name of the one-member replica set that is shown to drivers."),
    Setting(
        "advertise_host", "address", "host:port that `hello` names; by default that to which the client connected."
    ),
    Setting(
        "refresh_on_noop",
        "switch",
        "Whether an update that matches a document but changes nothing restarts its time to live.",
    ),
    Setting("ttl_monitor_enabled", "switch", "Whether expired documents are deleted.", (), "ttlMonitorEnabled"),
    Setting("max_connections", "number", "Connections accepted at once.", (), "maxConns", maximum=1_000_000),
    Setting("cursor_timeout_s", "number", "Seconds after which an idle cursor is closed.", maximum=2_000_000),
    Setting("oplog_size_mb", "number", "Bound on the oplog of change streams, in MiB.", maximum=1_000_000),
    Setting(
        "oplog_min_retention_hours",
        "number",
        "Hours for which entries of the oplog are kept beyond that bound.",
        maximum=1_000_000,
    ),
    Setting("auth", "switch", "Check users: a client has to log in, and may do what its user's roles allow."),
    Setting("user", "text", "Name of a user with the role `root`, made at the start unless it exists."),
    Setting("password_file", "text", "File whose first line is the password of that user."),
    Setting(
        "password",
        "text",
        "The password of that user, without a file; not an option, since everybody can list processes.",
        on_command_line=False,
    ),
    Setting("tls_cert", "text", "PEM file with the server's certificate, and perhaps its key; turns TLS on."),
    Setting("tls_key", "text", "PEM file with the key of the certificate."),
    Setting(
        "tls_ca",
        "text",
        "PEM file with the certificate authorities of clients, which then have to present a certificate.",
    ),
    Setting(
        "tls_allow_connections_without_certificates",
        "switch",
        "With --tls-ca, accept clients that present no certificate.",
    ),
    Setting(
        "tls_self_signed",
        "switch",
        "Turn TLS on with a certificate for localhost that is made at the first start; needs the extra `tls`.",
    ),
    Setting("log_format", "text", "Form of the log on standard error: readable lines, or mongod's JSON.", LOG_FORMATS),
    Setting("quiet", "switch", "Log only warnings and errors."),
    Setting(
        "scripting",
        "switch",
        "Whether JavaScript is run ($where, $function, $accumulator, mapReduce); needs the extra `javascript`.",
    ),
    Setting("cosmos_capability", "names", "Capabilities of the account, by Azure's names.", tuple(CAPABILITIES)),
    Setting("cosmos_backup", "text", "Kind of backup of the account, which decides about unique indexes.", BACKUPS),
    Setting("cosmos_allow", "names", "Refusals of Cosmos DB that are switched off.", tuple(REFUSALS)),
    Setting(
        "cosmos_throughput",
        "text",
        "Request units: not counted, counted, or counted and throttled by the budget.",
        THROUGHPUTS,
    ),
    Setting("cosmos_account", "text", "Name of the account: clients log in with it and one of the account's keys."),
    Setting(
        "cosmos_key",
        "text",
        "The account's key, without a file; otherwise one is made, and kept in the data folder.",
        on_command_line=False,
    ),
    Setting("cosmos_key_file", "text", "File with the account's key, and perhaps its read-only key in a second line."),
)


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
    """The memory that one operation may use, in bytes, and whether it may use the disk beyond that; see
    `PARAMETERS`."""

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


@dataclass(frozen=True)
class Parameter:
    """A parameter of mongod that `setParameter` changes while the server runs.

    name: mongod's. field: the attribute of `MemoryLimits`: a number from `minimum` to the largest int64, or a switch.
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
)


def config_from(values: Mapping[str, str]) -> ServerConfig:
    """A configuration from texts by field name; what is absent keeps its default. ValueError for a bad value."""
    config = ServerConfig()
    for setting in SETTINGS:
        text = values.get(setting.field)
        if text is not None:
            setattr(config, setting.field, setting.parse(text))
            if setting.field.startswith("cosmos_") and values.get("dialect") != "cosmos":
                raise ValueError(f"{setting.option}: only with --dialect cosmos")
    return config


def config_from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The texts of the settings that the environment names, by field."""
    return {s.field: environment[s.variable] for s in SETTINGS if s.variable in environment}
