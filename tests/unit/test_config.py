"""The table of settings, and what the command line and the environment make of it."""

import dataclasses
import re

import pytest

from mongottl.cli import help_text, main, parse_arguments
from mongottl.config import (
    DEFAULT_VERSIONS,
    DIALECTS,
    PARAMETERS,
    SETTINGS,
    WIRE_VERSIONS,
    MemoryLimits,
    ServerConfig,
    config_from,
    config_from_environment,
)

KINDS = {
    "text": (str, type(None)),
    "address": (str, type(None)),
    "number": (int,),
    "switch": (bool,),
    "names": (tuple,),
}


def test_table_and_dataclass_agree() -> None:
    assert [setting.field for setting in SETTINGS] == [field.name for field in dataclasses.fields(ServerConfig)]
    defaults = ServerConfig()
    for setting in SETTINGS:
        assert isinstance(getattr(defaults, setting.field), KINDS[setting.value]), setting.field


@pytest.mark.parametrize(
    ("wanted", "data_dir", "engine"),
    [
        ("auto", None, "memory"),
        ("auto", "folder", "sqlite"),
        ("sqlite", None, "sqlite"),
        ("sqlite", "folder", "sqlite"),
        ("memory", None, "memory"),
        ("memory", "folder", "memory"),  # which then refuses the folder
    ],
)
def test_the_engine_follows_from_the_data_directory_unless_it_is_named(
    wanted: str, data_dir: str | None, engine: str
) -> None:
    assert ServerConfig(storage_engine=wanted, data_dir=data_dir).chosen_engine() == engine


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
    for setting in SETTINGS:
        assert setting.help in text
    assert "--port N" in text
    assert "--advertise-host HOST:PORT" in text
    assert "--dialect {mongodb,cosmos}" in text
    assert "--no-refresh-on-noop" in text
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
        (["--data-dir", "--quiet"], {"data_dir": "--quiet"}),
        (["--cosmos-allow", "a", "--cosmos-allow=b,c"], {"cosmos_allow": "a,b,c"}),
    ],
)
def test_arguments(arguments: list[str], texts: dict[str, str]) -> None:
    assert parse_arguments(arguments) == texts


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--prot", "1"], "unknown option --prot"),
        (["port"], "unknown option port"),
        (["-p"], "unknown option -p"),
        (["--no-port"], "unknown option --no-port"),
        (["--port"], "--port needs a value"),
        ([""], "unknown option"),
    ],
)
def test_wrong_arguments(arguments: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_arguments(arguments)


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("port", "0", 0),
        ("port", "65535", 65535),
        ("host", "::1", "::1"),
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


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("port", ""),
        ("port", "-1"),
        ("port", "1.5"),
        ("port", "²"),
        ("port", "٣"),
        ("port", "65536"),
        ("max_connections", "99999999999999999999"),
        ("host", ""),
        ("replica_set", ""),
        ("quiet", "perhaps"),
        ("dialect", "Cosmos"),
        ("log_format", "xml"),
        ("server_version", "9.9"),
        ("advertise_host", "db"),
        ("advertise_host", ":1"),
        ("advertise_host", "db:0"),
        ("advertise_host", "db:65536"),
        ("advertise_host", "::1:5"),
        ("advertise_host", "mongodb://db:5"),
    ],
)
def test_wrong_values(field: str, text: str) -> None:
    option = "--" + field.replace("_", "-")
    with pytest.raises(ValueError, match=f"^{option}: "):
        config_from({field: text})


def test_environment() -> None:
    environment = {"MONGOTTL_PORT": "5", "MONGOTTL_QUIET": "1", "MONGOTTL_NONSENSE": "x", "PORT": "6"}
    texts = config_from_environment(environment)
    assert texts == {"port": "5", "quiet": "1"}
    assert config_from(texts) == ServerConfig(port=5, quiet=True)


def test_versions() -> None:
    assert set(DEFAULT_VERSIONS) == set(DIALECTS)
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


def test_main_helps(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["-h"], ["serve", "--help"]):
        assert main(arguments) == 0
        assert capsys.readouterr().out == help_text() + "\n"
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("mongottl ")
