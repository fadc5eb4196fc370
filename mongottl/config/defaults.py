"""Configurations for a purpose: of texts, for a test suite, in the place of Cosmos DB's emulator."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mongottl.config.names import did_you_mean
from mongottl.config.server_config import DEFAULTS, SETTINGS, SHARDED, ServerConfig

# The settings of a server for one test suite, unless others are given: `start_server()` and `mongottl run`. Time
# stands still, so that no test depends on how fast it runs.
_FOR_TESTS: Final[dict[str, object]] = {"port": 0, "enable_test_commands": True, "freeze_clock": True, "quiet": True}
# The settings of a server in the place of Cosmos DB's emulator, unless others are given.
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


def config_from(values: Mapping[str, str], for_tests: bool = False) -> ServerConfig:
    """A configuration from texts by field name; what is absent keeps its default. SettingError for a bad value.

    for_tests: whether the defaults are those of a server for a test suite (`config_for_tests`).
    """
    parsed: dict[str, Any] = {s.field: s.parse(values[s.field]) for s in SETTINGS if s.field in values}
    if parsed.get("workers", 1) > 1:
        parsed.setdefault("topology", SHARDED)
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


def check_names(settings: Iterable[str]) -> None:
    """TypeError for a name that is no field of `ServerConfig`."""
    for name in settings:
        if name not in DEFAULTS:
            raise TypeError(f"there is no setting {name}{did_you_mean(name, DEFAULTS)}")
