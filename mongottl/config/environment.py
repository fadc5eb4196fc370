"""The variables of the environment: settings, and those that others read."""

import re
from collections.abc import Mapping
from typing import Final

from mongottl.config.server_config import SETTINGS

# Variables with our prefix that are no settings, and who reads them.
OTHER_VARIABLES: Final[dict[str, str]] = {
    "MONGOTTL_CONFIG": "command line: the file of `--config`",
    "MONGOTTL_PURE": "installation: 1 leaves everything interpreted",
    "MONGOTTL_OPT_LEVEL": "installation: how much the C compiler optimises",
    "MONGOTTL_FAILOVERS": "tests: how often a standby takes the place of its primary",
    "MONGOTTL_FLEET_ROUNDS": "tests: how many faults three servers of a store meet, one after another",
    "MONGOTTL_FUZZ_SEED": "tests: the seed of the random commands",
    "MONGOTTL_KILLS": "tests: how often a server is killed",
    "MONGOTTL_SIMULATION_SEEDS": "tests: the seeds of the simulation",
    "MONGOTTL_SIMULATION_TURNS": "tests: the length of a simulation",
    "MONGOTTL_STORE_ROUNDS": "tests: how many faults a store meets, and runs the model of TTL has on one",
    "MONGOTTL_STORE_SEED": "tests: the seed of these faults",
    "MONGOTTL_TEST_POSTGRESQL": "tests: the version of PostgreSQL, such as 15; by default the newest that is installed",
    "MONGOTTL_TEST_NODES": "tests: with MONGOTTL_TEST_STORE, how many servers stand for each one",
    "MONGOTTL_TEST_BALANCER": "tests: with MONGOTTL_TEST_NODES, what their URIs name: haproxy",
    "MONGOTTL_TEST_STORE": "tests: the store of all servers: a URI as of `--store`, `private`, or PostgreSQL's version",
    "MONGOTTL_DEBIAN_ROOT": "tests: the root of a Debian without Python, for the bundle",
    "MONGOTTL_TEST_IMAGE": "tests: the container image, or `build`",
    "MONGOTTL_VOLUME_FIGURES": "tests: the file that gets the figures of the tests of volume",
}
# What Kubernetes and Docker's links set beside a service or container of the name `mongottl`.
_SERVICE_VARIABLE: Final = re.compile(r"MONGOTTL_(\w+_)?(SERVICE_(HOST|PORT)|PORT_\d+_(TCP|UDP)|ENV|NAME)(_\w+)?")


def config_from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The texts of the settings that the environment names, by field."""
    return {s.field: environment[s.variable] for s in SETTINGS if s.variable in environment}


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
