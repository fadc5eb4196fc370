"""What all tests share: helper modules under `tests` and `bench` can be imported, and the header says what is tested.

The repository's root comes last on the path, so that an installed (compiled) mongottl is not shadowed by its sources.
"""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))


def pytest_report_header(config: pytest.Config) -> str:
    import mongottl
    from mongottl.build_info import describe_version

    return f"{describe_version()} from {Path(mongottl.__file__).parent}"
