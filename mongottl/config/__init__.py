"""The settings of the server.

server_config   `ServerConfig`: every setting, declared once, and which go together
setting         one setting: its option, its variable, its help; parsing and checking its value
defaults        configurations of texts, for a test suite, and in the place of Cosmos DB's emulator
environment     the variables of the environment
parameters      `MemoryLimits`: what `setParameter` changes while the server runs
log_settings    what is logged
cosmos_choices  what the settings of a Cosmos DB account may be
dialects        the dialects that it can speak
versions        this server's version, and those of MongoDB that it can announce
names           names that are like a wrong one
"""

from mongottl.config.defaults import check_names, config_for_tests, config_from
from mongottl.config.dialects import DIALECTS, DialectChoice
from mongottl.config.environment import config_from_environment, known_variables, unknown_variables
from mongottl.config.log_settings import LogSettings
from mongottl.config.names import did_you_mean
from mongottl.config.parameters import PARAMETERS, MemoryLimits, Parameter
from mongottl.config.server_config import (
    LOG_FORMATS,
    MAX_LOG_LEVEL,
    REPLICA_SET,
    SETTING_GROUPS,
    SETTINGS,
    SHARDED,
    STORAGE_ENGINES,
    TOPOLOGIES,
    ServerConfig,
)
from mongottl.config.setting import SWITCH_TEXTS, Setting, SettingError, SettingValue
from mongottl.config.versions import (
    COSMOS_VERSIONS,
    GIT_VERSION,
    LATEST_VERSION,
    NEWEST_PATCHES,
    VERSION,
    WIRE_VERSIONS,
)

__all__ = [
    "COSMOS_VERSIONS",
    "DIALECTS",
    "GIT_VERSION",
    "LATEST_VERSION",
    "LOG_FORMATS",
    "MAX_LOG_LEVEL",
    "NEWEST_PATCHES",
    "PARAMETERS",
    "REPLICA_SET",
    "SETTINGS",
    "SETTING_GROUPS",
    "SHARDED",
    "STORAGE_ENGINES",
    "SWITCH_TEXTS",
    "TOPOLOGIES",
    "VERSION",
    "WIRE_VERSIONS",
    "DialectChoice",
    "LogSettings",
    "MemoryLimits",
    "Parameter",
    "ServerConfig",
    "Setting",
    "SettingError",
    "SettingValue",
    "check_names",
    "config_for_tests",
    "config_from",
    "config_from_environment",
    "did_you_mean",
    "known_variables",
    "unknown_variables",
]
