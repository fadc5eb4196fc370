"""What all tests share: helper modules under `tests` and `bench` can be imported, and the header says what is tested.

The repository's root comes last on the path, so that an installed (compiled) mongottl is not shadowed by its sources.
"""

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is, and nothing of what is tested.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

sys.path.append(str(Path(__file__).parents[1]))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the replies of the scripts in tests/golden")


def pytest_report_header(config: pytest.Config) -> str:
    import mongottl
    from mongottl.build_info import describe_version

    return f"{describe_version()} from {Path(mongottl.__file__).parent}"
