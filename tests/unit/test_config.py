"""The table of settings, and what the command line and the environment make of it."""

import dataclasses
import enum
import os
import re
import shutil
import subprocess
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from mongottl.cli import main
from mongottl.cli.options import configuration, help_text, parse_arguments
from mongottl.cli.subcommands import SUBCOMMANDS, UsageError
from mongottl.config import (
    DIALECTS,
    PARAMETERS,
    SETTING_GROUPS,
    SETTINGS,
    WIRE_VERSIONS,
    MemoryLimits,
    ServerConfig,
    SettingError,
    config_from,
    config_from_environment,
    did_you_mean,
    unknown_variables,
)
from mongottl.config.environment import OTHER_VARIABLES

ROOT = Path(__file__).parents[2]
TYPES = {
    "text": str,
    "path": str,
    "host": str,
    "address": str,
    "set": str,
    "store": str,
    "number": int,
    "time": str,
    "switch": bool,
    "names": tuple[str, ...],
}


def test_settings_have_the_type_of_their_kind() -> None:
    """`switch` is a bool, for instance; None is among the values of those, and only those, whose default it is."""
    declared = get_type_hints(ServerConfig)
    for setting in SETTINGS:
        kind = TYPES[setting.value]
        assert declared[setting.field] == (kind | None if setting.optional else kind), setting.field


def test_defaults_are_allowed_values() -> None:
    for setting in SETTINGS:
        default = getattr(ServerConfig(), setting.field)
        assert setting.check(default) == default, setting.field


@pytest.mark.parametrize(
    ("wanted", "data_dir", "uri"),
    [
        ("auto", None, "memory:"),
        ("auto", "folder", "sqlite:folder"),
        ("sqlite", None, "sqlite:"),
        ("sqlite", "folder", "sqlite:folder"),
        ("memory", None, "memory:"),
    ],
)
def test_the_engine_follows_from_the_data_directory_unless_it_is_named(
    wanted: str, data_dir: str | None, uri: str
) -> None:
    assert ServerConfig(storage_engine=wanted, data_dir=data_dir).store_uri() == uri


def test_parameters_and_limits_agree() -> None:
    assert {parameter.field for parameter in PARAMETERS} == {field.name for field in dataclasses.fields(MemoryLimits)}
    assert len({parameter.name for parameter in PARAMETERS}) == len(PARAMETERS)
    assert all(parameter.help.endswith(".") for parameter in PARAMETERS)


def test_settings_are_described() -> None:
    for setting in SETTINGS:
        assert setting.help.endswith("."), setting.field
        assert re.fullmatch(r"--[a-z]+(-[a-z]+)*", setting.option)
        assert setting.variable == "MONGOTTL_" + setting.field.upper()
    parameters = [setting.parameter for setting in SETTINGS if setting.parameter]
    assert len(set(parameters)) == len(parameters)


def test_defaults_pass_their_own_rules() -> None:
    defaults = ServerConfig()
    for setting in SETTINGS:
        default = getattr(defaults, setting.field)
        if default is not None:
            text = ",".join(default) if setting.value == "names" else str(default)
            assert setting.parse(text) == default


def test_help_names_every_setting_with_its_default() -> None:
    text = help_text()
    assert {setting.group for setting in SETTINGS} == SETTING_GROUPS.keys()
    for title in SETTING_GROUPS.values():
        assert f"\n {title}:\n" in text
    for subcommand in SUBCOMMANDS.values():
        assert f"\n  {subcommand.name}" in text and subcommand.help in text
    for setting in SETTINGS:
        assert setting.help in text
    assert "--port N" in text
    assert "--advertise-host HOST:PORT" in text
    assert f"--dialect {{{','.join(DIALECTS)}}}" in text
    # What is on by default is shown with its opposite, so that its description does not seem to be that of the latter.
    assert "--[no-]refresh-on-noop\n        Whether" in text
    assert re.search(r"--\[no-\]ttl-monitor-enabled\n        .* Default: on\.\n", text)
    assert "--no-" not in text.replace("--no-NAME", "")
    assert "--enable-test-commands\n" in text
    assert "Default: 27017." in text
    assert max(len(line) for line in text.splitlines()) <= 120


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        ([], {}),
        (["--port", "1"], {"port": "1"}),
        (["--port=1"], {"port": "1"}),
        (["--port", "1", "--port", "2"], {"port": "2"}),
        (["--data-dir", "a b"], {"data_dir": "a b"}),
        (["--data-dir=a=b"], {"data_dir": "a=b"}),
        (["--quiet"], {"quiet": "true"}),
        (["--no-quiet"], {"quiet": "false"}),
        (["--quiet=no"], {"quiet": "no"}),
        (["--no-ttl-monitor-enabled", "--quiet"], {"ttl_monitor_enabled": "false", "quiet": "true"}),
        (["--data-dir", "--strange"], {"data_dir": "--strange"}),
        (["--load", "load", "--user", "user"], {"load": "load", "user": "user"}),
        (["--data-dir=--quiet"], {"data_dir": "--quiet"}),
        (["--cosmos-allow", "a", "--cosmos-allow=b,c"], {"cosmos_allow": "a,b,c"}),
    ],
)
def test_arguments(arguments: list[str], texts: dict[str, str]) -> None:
    assert parse_arguments(arguments) == texts


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--prot", "1"], "unknown option --prot"),
        (["port"], "an option is needed, not 'port'"),
        (["-p"], "unknown option -p"),
        (["--no-port"], "unknown option --no-port"),
        (["--no-quiet=no"], "--no-quiet takes no value"),
        (["--port"], "--port needs a value"),
        (["--data-dir", "--auth", "--quiet"], "--data-dir needs a value"),
        (["--data-dir", "--no-auth"], "--data-dir needs a value"),
        (["--data-dir", "--port=5"], "--data-dir needs a value"),
        ([""], "an option is needed, not ''"),
    ],
)
def test_wrong_arguments(arguments: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_arguments(arguments)


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("port", "0", 0),
        ("port", "65535", 65535),
        ("host", "::1", "::1"),
        ("host", "fe80::1%eth0", "fe80::1%eth0"),
        ("host", "db_1.bücher-shop.example.", "db_1.bücher-shop.example."),
        ("host", "*", "*"),
        ("replica_set", "set 1: é", "set 1: é"),
        ("quiet", "1", True),
        ("quiet", "YES", True),
        ("quiet", "False", False),
        ("dialect", "cosmos", "cosmos"),
        ("advertise_host", "db:27017", "db:27017"),
        ("advertise_host", "[::1]:1", "[::1]:1"),
    ],
)
def test_values(field: str, text: str, value: object) -> None:
    assert getattr(config_from({field: text}), field) == value


# Texts that the command line and the environment refuse, and values that Python refuses, for every setting.
WRONG: dict[str, tuple[tuple[str, ...], tuple[object, ...]]] = {
    "host": (
        ("", "a\nb", "\udcff", "db:27017", "[::1]", "::1]", "no such host", "http://db", "db/x", "a..b", ".", "1,2"),
        ("", 5, None, b"::1", "\ud800", "x" * 64, "x." * 128, "<db>", "::1::"),
    ),
    "port": (("", "-1", "1.5", "²", "٣", "65536", "abc"), (-1, 99999, 1.0, "27017", True, None)),
    "data_dir": (("", "a\0b"), ("", 5, b"data", "a\0b", "\ud800")),
    "store": (("", "a\0b", "mysql://x", "sqlite:x", "postgresql"), ("", 5, b"postgresql://x", "postgresql://\ud800")),
    "store_timeout": (("", "0", "-1", "soon", "3601"), (-1, 0, 1e3, None)),
    "load": (("", "a\0b"), ("", 5, b"data", "a\0b")),
    "storage_engine": (("", "wiredTiger"), ("SQLite", None, 1)),
    "dialect": (("", "Cosmos"), ("Cosmos", "", None, ("cosmos",))),
    "server_version": (("", "9.9", "8"), ("9.9", 8.2, "")),
    "enable_test_commands": (("", "perhaps"), (1, "yes", None)),
    "now": (("", "tomorrow", "1969-12-31"), ("", 0, "12:00", True, b"2026-01-01")),
    "freeze_clock": (("", "perhaps"), (1, "yes", None)),
    "replica_set": (("", "\udcff", "set/db:27017"), ("", None, 0, "\ud800", "a b/c")),
    "advertise_host": (
        (
            "",
            "db",
            ":1",
            "db:",
            "db:0",
            "db:65536",
            "::1:5",
            "mongodb://db:5",
            "[db]:5",
            "[]:5",
            "a?b:5",
            "a@b:5",
            "\udcff:5",
        ),
        ("db", "", 27017, ("db", 1), "a b:1", "*:1", "a..b:1", "<db>:1", "[fe80::1%lo]:1"),
    ),
    "refresh_on_noop": (("", "2"), ("false", 0, None)),
    "ttl_monitor_enabled": (("", "on"), ("true", 1.0, None)),
    "max_connections": (("", "0", "99999999999999999999", "-5"), (0, -1, 1_000_001, None, 10.5)),
    "cursor_timeout_s": (("", "0", "-1", "soon"), (-1, 0, 1e3, None)),
    "cursor_memory_mb": (("", "-1", "much"), (-1, None, 0.5, 1 << 31)),
    "operation_memory_mb": (("", "-1", "much"), (-1, None, 0.5, 1 << 31)),
    "cache_memory_mb": (("", "-1", "much"), (-1, None, 0.5, 1 << 31)),
    "oplog_size_mb": (("", "0", "-64"), (0, -64, "64", float("nan"))),
    "oplog_min_retention_hours": (("", "-1"), (-1, 0.5, None)),
    "compact_free_percent": (("", "-1", "100", "half"), (-1, 100, 0.5, None)),
    "auth": (("", "maybe"), ("on", 1)),
    "user": (("", "a\tb", "\udcff"), ("", 5)),
    "password_file": (("",), ("", 5)),
    "password": (("", "a\0b"), ("", 5, b"secret")),
    "tls_cert": (("",), ("", 5)),
    "tls_key": (("",), ("", 5)),
    "tls_ca": (("",), ("", 5)),
    "tls_allow_connections_without_certificates": (("", "x"), (1,)),
    "tls_self_signed": (("", "x"), (1, "localhost")),
    "log_format": (("", "xml", "JSON"), ("xml", None)),
    "quiet": (("", "perhaps"), ("very", 1)),
    "verbosity": (("", "-1", "6", "loud"), (-1, 6, "1", None)),
    "scripting": (("", "js"), ("js", None)),
    "cosmos_capability": (("EnableMagic", "EnableMongoRetryableWrites,x"), ("EnableMagic", ("EnableMagic",), None)),
    "cosmos_backup": (("", "never"), ("Continuous", None)),
    "cosmos_allow": (("everything", "bare-watch,all"), ("bare-watch", ["all"], (1,))),
    "cosmos_refuse": (("everything", "bare-watch"), ("hello", ["bare-watch"], (1,))),
    "cosmos_batch_text": (("", "long"), ("Batch", None)),
    "cosmos_throughput": (("", "400"), (400, None)),
    "cosmos_account": (("",), ("", 5)),
    "cosmos_key": (("",), ("", 5)),
    "cosmos_key_file": (("",), ("", 5)),
    "web_port": (("", "-1", "65536", "abc"), (-1, 65_536, "8081", True)),
    "web_host": (("", "a\nb", "localhost:8080", "[::1]"), ("", 5, None)),
    "emulator": (("", "maybe"), (None, 1, True)),
    "certificate_port": (("", "-1", "65536", "abc"), (-1, 65_536, "8081", 8081)),
    "topology": (("", "cluster"), ("Sharded", 1, None)),
    "workers": (("", "0", "-1", "many", "257"), (0, 257, 1.5, True, None)),
}
WRONG_TEXTS = [(field, text) for field, (texts, _) in WRONG.items() for text in texts]


def test_every_setting_has_values_that_are_refused() -> None:
    assert list(WRONG) == [setting.field for setting in SETTINGS]
    assert all(texts and values for texts, values in WRONG.values())


@pytest.mark.parametrize(("field", "text"), WRONG_TEXTS)
def test_wrong_texts_are_refused_by_the_name_under_which_they_were_given(field: str, text: str) -> None:
    [setting] = [setting for setting in SETTINGS if setting.field == field]
    with pytest.raises(SettingError, match=f"^{field}: ") as refused:
        config_from({field: text})
    assert refused.value.field == field
    with pytest.raises(UsageError, match=f"^{setting.variable}: "):
        configuration([], {setting.variable: text})
    if setting.on_command_line:
        with pytest.raises(UsageError, match=f"^{setting.option}: "):
            configuration([f"{setting.option}={text}"], {setting.variable: text})


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, (_, values) in WRONG.items() for value in values]
)
def test_wrong_values_are_refused_by_name(field: str, value: object) -> None:
    settings: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match=f"^{field}: "):
        ServerConfig(**settings)
    with pytest.raises(SettingError, match=f"^{field}: "):
        dataclasses.replace(ServerConfig(), **settings)
    assigned = ServerConfig()
    setattr(assigned, field, value)
    with pytest.raises(SettingError, match=f"^{field}: "):
        assigned.validate()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"user": "ann"}, "--user: needs --password-file or MONGOTTL_PASSWORD"),
        ({"password_file": "x"}, "--password-file: only together with --user"),
        ({"password": "x"}, "MONGOTTL_PASSWORD: only together with --user"),
        ({"user": "a", "password": "x", "password_file": "x"}, "MONGOTTL_PASSWORD: not together with --password-file"),
        ({"tls_key": "x"}, "--tls-key: only together with --tls-cert"),
        ({"tls_key": "x", "tls_self_signed": "1"}, "--tls-key: only together with --tls-cert"),
        ({"tls_ca": "x"}, "--tls-ca: only together with --tls-cert or --tls-self-signed"),
        (
            {"tls_allow_connections_without_certificates": "1"},
            "--tls-allow-connections-without-certificates: only together with --tls-ca",
        ),
        ({"tls_cert": "x", "tls_self_signed": "1"}, "--tls-self-signed: not together with --tls-cert"),
        ({"cosmos_key": "x"}, "MONGOTTL_COSMOS_KEY: only together with --cosmos-account"),
        ({"port": "5", "web_port": "5"}, "--web-port: needs another port than --port"),
        ({"store": "postgresql://x", "data_dir": "x"}, "--store: not together with --data-dir"),
        ({"store": "postgresql://x", "storage_engine": "sqlite"}, "--store: not together with --storage-engine"),
        ({"storage_engine": "memory", "data_dir": "x"}, "--storage-engine: memory not together with --data-dir"),
        ({"cosmos_account": "a", "cosmos_key": "x", "cosmos_key_file": "x"}, "MONGOTTL_COSMOS_KEY: not together with "),
        ({"cosmos_account": "a"}, "--cosmos-account: only with --dialect cosmos"),
        (
            {"cosmos_account": "a", "dialect": "cosmos", "store": "postgresql://x", "topology": "sharded"},
            "--cosmos-account: with --store and --topology sharded needs --cosmos-key-file or MONGOTTL_COSMOS_KEY",
        ),
        ({"workers": "2"}, "--workers: only together with --store"),
        ({"workers": "2", "data_dir": "x"}, "--workers: only together with --store"),
        ({"workers": "2", "store": "postgresql://x", "topology": "replicaSet"}, "--workers: needs --topology sharded"),
        (
            {"workers": "3", "store": "postgresql://x", "port": "8082", "web_port": "8080"},
            "--web-port: needs ports from it on for each of --workers, other than --port",
        ),
        ({"workers": "3", "store": "postgresql://x", "web_port": "65534"}, "--web-port: needs ports from it on for "),
        ({"cosmos_allow": "bare-watch", "dialect": "mongodb"}, "--cosmos-allow: only with --dialect cosmos"),
        (
            {"dialect": "cosmos", "cosmos_backup": "continuous", "cosmos_capability": "EnableTtlOnCustomPath"},
            "--cosmos-capability: EnableTtlOnCustomPath not together with --cosmos-backup continuous",
        ),
        (
            {"dialect": "cosmos", "cosmos_allow": "hello", "cosmos_refuse": "hostInfo,hello"},
            "--cosmos-refuse: hello not together with --cosmos-allow hello",
        ),
        ({"dialect": "cosmos", "server_version": "4.4"}, "--server-version: with --dialect cosmos one of 3.6, 4.0, "),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, str], said: str) -> None:
    on_command_line = {s.field: s.option for s in SETTINGS if s.on_command_line}
    arguments = [f"{on_command_line[field]}={text}" for field, text in settings.items() if field in on_command_line]
    environment = {"MONGOTTL_" + f.upper(): text for f, text in settings.items() if f not in on_command_line}
    if settings.keys() & {"cosmos_key", "cosmos_key_file"}:
        arguments.append("--dialect=cosmos")
    with pytest.raises(UsageError) as refused:
        configuration(arguments, environment)
    assert str(refused.value).startswith(said)
    with pytest.raises(SettingError) as refused_by_field:
        config_from(settings | ({"dialect": "cosmos"} if "cosmos_key" in settings else {}))
    assert str(refused_by_field.value).partition(":")[0] in settings
    assert "--" not in str(refused_by_field.value)


def test_errors_do_not_show_secrets() -> None:
    for field in ("password", "cosmos_key"):
        for secret in ("se\0cret", ["secret"], b"secret"):
            with pytest.raises(SettingError) as refused:
                ServerConfig(**{field: secret})  # type: ignore[arg-type]
            assert "secret" not in str(refused.value)
    assert "secret" not in repr(ServerConfig(user="ann", password="secret"))


def test_workers_are_a_mongos() -> None:
    assert config_from({"workers": "2", "store": "postgresql://x"}).is_sharded
    assert not config_from({"workers": "1"}).is_sharded


def test_paths_and_lists_are_taken() -> None:
    config = ServerConfig(data_dir=Path("data"), dialect="cosmos", cosmos_allow=["bare-watch"])  # type: ignore[arg-type]
    assert (config.data_dir, config.cosmos_allow) == ("data", ("bare-watch",))


def test_environment() -> None:
    environment = {"MONGOTTL_PORT": "5", "MONGOTTL_QUIET": "1", "MONGOTTL_NONSENSE": "x", "PORT": "6"}
    texts = config_from_environment(environment)
    assert texts == {"port": "5", "quiet": "1"}
    assert config_from(texts) == ServerConfig(port=5, quiet=True)
    assert configuration(["--port=7"], environment) == ServerConfig(port=7, quiet=True)


@pytest.mark.parametrize(
    ("texts", "fields"),
    [
        ({}, {"enable_test_commands": True, "freeze_clock": True, "quiet": True}),
        ({"freeze_clock": "0", "port": "5"}, {"enable_test_commands": True, "quiet": True, "port": 5}),
        ({"verbosity": "1"}, {"enable_test_commands": True, "freeze_clock": True, "verbosity": 1}),
        ({"enable_test_commands": "false"}, {"quiet": True}),
    ],
)
def test_defaults_for_test_suites(texts: dict[str, str], fields: dict[str, Any]) -> None:
    """They give way to what is said, and never contradict it."""
    assert config_from(texts, for_tests=True) == ServerConfig(**{"port": 0, **fields})
    with pytest.raises(SettingError, match="freeze_clock: only together with enable_test_commands"):
        config_from({"enable_test_commands": "0", "freeze_clock": "1"}, for_tests=True)


class _Text(str, enum.Enum):  # noqa: UP042  # unlike members of StrEnum, written as _Text.HOST
    HOST = "127.0.0.1"
    DIALECT = "cosmos"
    VERSION = "6.0"
    REFUSAL = "bare-watch"


class _Number(enum.IntEnum):
    PORT = 5


class _Index:
    """A whole number as NumPy has them: no int, but an index."""

    def __index__(self) -> int:
        return 7


@pytest.mark.parametrize(
    ("field", "given", "value"),
    [
        ("host", _Text.HOST, "127.0.0.1"),
        ("dialect", _Text.DIALECT, "cosmos"),
        ("server_version", _Text.VERSION, "6.0"),
        ("cosmos_allow", [_Text.REFUSAL], ("bare-watch",)),
        ("port", _Number.PORT, 5),
        ("port", _Index(), 7),
        ("data_dir", os.fsdecode(b"a\xff"), os.fsdecode(b"a\xff")),
        ("now", date(2026, 1, 2), "2026-01-02"),
        ("now", datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=1))), "2026-01-02T03:00:00+01:00"),
    ],
)
def test_values_of_other_types_that_mean_the_same(field: str, given: Any, value: object) -> None:
    settings = {"dialect": "cosmos", "enable_test_commands": True, field: given}
    kept = getattr(ServerConfig(**settings), field)
    assert kept == value
    assert type(kept) is type(value)
    assert [type(name) for name in ServerConfig(**settings).cosmos_allow] == [str] * (field == "cosmos_allow")


def test_unknown_variables_are_noticed() -> None:
    services = ("MONGOTTL_SERVICE_HOST", "MONGOTTL_PORT_27017_TCP_ADDR", "MONGOTTL_SERVICE_PORT_MONGO")
    environment = dict.fromkeys([*(s.variable for s in SETTINGS), *OTHER_VARIABLES, *services, "MONGODB_URI"], "x")
    assert unknown_variables(environment) == []
    assert unknown_variables(environment | {"MONGOTTL_PROT": "1", "MONGOTTL_": "1"}) == ["MONGOTTL_", "MONGOTTL_PROT"]


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("MONGOTTL_port", ["MONGOTTL_NOW", "MONGOTTL_PORT"], "; did you mean MONGOTTL_PORT?"),
        ("--Quiet", ["--auth", "--quiet"], "; did you mean --quiet?"),
        ("Dialekt", ["dialect", "port"], "; did you mean dialect?"),
        ("xyz", ["dialect", "port"], ""),
    ],
)
def test_similar_names_are_proposed(name: str, known: list[str], said: str) -> None:
    assert did_you_mean(name, known) == said


def test_variables_that_scripts_and_tests_read_are_known() -> None:
    known = {setting.variable for setting in SETTINGS} | OTHER_VARIABLES.keys()
    paths = [
        ROOT / "setup.py",
        *(ROOT / "scripts").iterdir(),
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "bench").rglob("*.py"),
    ]
    read: set[str] = set()
    for path in paths:
        if path.is_file() and path != Path(__file__):
            text = path.read_text(encoding="utf-8")
            read |= set(re.findall(r"environ(?:\.get\(|\[)\"(MONGOTTL_\w+)", text))
            read |= set(re.findall(r"\$\{?(MONGOTTL_\w+)", text))
    assert read <= known
    # The command line reads the one, and tests look for the other.
    assert OTHER_VARIABLES.keys() - read <= {"MONGOTTL_CONFIG", "MONGOTTL_VOLUME_FIGURES"}


def test_versions() -> None:
    assert all(row.default_version in row.versions for row in DIALECTS.values())
    assert {version for row in DIALECTS.values() for version in row.versions} <= set(WIRE_VERSIONS)
    assert (ServerConfig().announced_version(), ServerConfig().max_wire_version()) == ("8.2", 27)
    cosmos = ServerConfig(dialect="cosmos")
    assert (cosmos.announced_version(), cosmos.max_wire_version()) == ("7.0", 21)
    for version, wire in WIRE_VERSIONS.items():
        assert ServerConfig(server_version=version).max_wire_version() == wire


def test_main_refuses_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--port", "x"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "mongottl: --port: a whole number is needed, not 'x'\nTry 'mongottl --help'.\n"
    assert main(["--prot", "5"]) == 2
    assert capsys.readouterr().err.startswith("mongottl: unknown option --prot; did you mean --port?\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["srve"], "there is no command 'srve'; did you mean serve?"),
        (["--dbpath", "x"], "unknown option --dbpath; mongod's --dbpath is --data-dir here"),
        (["--bind_ip=x"], "unknown option --bind_ip; mongod's --bind_ip is --host here"),
        (["--storageEngine", "x"], "unknown option --storageEngine; mongod's --storageEngine has no counterpart here"),
        (["help", "expirng"], "there is no command and no page 'expirng'; did you mean expiring?"),
    ],
)
def test_mistakes_are_answered_with_what_was_meant(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_help_shows_commands_and_pages(capsys: pytest.CaptureFixture[str]) -> None:
    for row in SUBCOMMANDS.values():
        assert main(["help", row.name]) == 0
        shown = capsys.readouterr().out
        assert "usage: mongottl" in shown
        if row.page:
            assert main(["help", row.page.removesuffix(".md")]) == 0
            assert capsys.readouterr().out == (ROOT / "docs" / row.page).read_text(encoding="utf-8")
    assert main(["help"]) == 0
    assert capsys.readouterr().out == help_text() + "\n"


CONFIG_FILE = """
port = 27018
data-dir = "data"
quiet = true
ttl_monitor_enabled = false
enable-test-commands = true
now = 2026-01-01T12:00:00Z
cosmos-allow = ["bare-watch", "time-limits"]
dialect = "cosmos"
"""


def test_a_file_in_toml_gives_settings(tmp_path: Path) -> None:
    file = tmp_path / "mongottl.toml"
    file.write_text(CONFIG_FILE)
    for config in (
        configuration(["--config", str(file)], {}),
        configuration([f"--config={file}"], {"MONGOTTL_CONFIG": "no such file"}),
        configuration([], {"MONGOTTL_CONFIG": str(file)}),
    ):
        assert (config.port, config.data_dir, config.quiet, config.ttl_monitor_enabled) == (27018, "data", True, False)
        assert config.start_ms() == 1_767_268_800_000
        assert config.cosmos_allow == ("bare-watch", "time-limits")
    # An option counts before its variable, and this before the file.
    assert configuration(["--config", str(file)], {"MONGOTTL_PORT": "5"}).port == 5
    assert configuration(["--config", str(file), "--port", "6"], {"MONGOTTL_PORT": "5"}).port == 6


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port = 'x'", "port: a whole number is needed, not 'x'"),
        ("prot = 1", "there is no setting prot; did you mean port?"),
        ("dbpath = 'x'", "there is no setting dbpath; mongod's --dbpath is --data-dir here"),
        ("port = 1.5", "port: a text, a whole number, true, false, a time or a list of texts is needed"),
        ("[net]\nport = 1", "there is no setting net"),
        ("port = ", "Invalid value"),
        ("password = 'x'", "password is a secret, and others may read the file"),
    ],
)
def test_mistakes_in_a_file_are_told_with_its_name(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "mongottl.toml"
    file.write_text(text)
    file.chmod(0o644)
    with pytest.raises(UsageError) as refused:
        configuration(["--config", str(file)], {})
    assert str(refused.value).startswith(f"{file}: {said}")
    with pytest.raises(UsageError, match="--config: cannot read no-such-file: No such file or directory"):
        configuration(["--config", "no-such-file"], {})


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["emu"], {"emulator"}),
        (["serve", "--dialect", "c"], {"cosmos"}),
        (["--data-d"], {"--data-dir"}),
        (["run", "--no-such"], set()),
        (["run", "--per"], {"--per-worker"}),
        (["serve", "--per"], set()),
        (["trust", "--tr"], {"--trust-store"}),
        (["trust", "j"], {"java"}),
        (["help", "emu"], {"emulator"}),
        (["completion", ""], {"bash", "zsh", "fish"}),
        (["serve", "--port", ""], set()),
    ],
)
def test_bash_completes_commands_options_and_values(
    words: list[str], expected: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    assert main(["completion", "bash"]) == 0
    function = capsys.readouterr().out
    line = " ".join(f"'{word}'" for word in ["mongottl", *words])
    script = f'{function}\nCOMP_WORDS=({line}) COMP_CWORD={len(words)}\n_mongottl\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
    shown = subprocess.run([bash, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert set(shown) == expected


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_every_option(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    shown = capsys.readouterr().out
    for setting in SETTINGS:
        if setting.on_command_line:
            assert setting.option in shown or f"-l {setting.option[2:]} " in shown
    assert main(["completion", "csh"]) == 2


def test_main_helps(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["-h"], ["serve", "--help"]):
        assert main(arguments) == 0
        assert capsys.readouterr().out == help_text() + "\n"
    assert main(["run", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--[no-]freeze-clock\n" in shown and "--no-" not in shown.replace("--no-NAME", "")
    assert max(len(line) for line in shown.splitlines()) <= 120
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("mongottl ")
