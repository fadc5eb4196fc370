"""What is installed: every file of the package, and metadata that say what it is."""

import re
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from mongottl.config import VERSION

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def installed() -> metadata.Distribution:
    """The distribution, if it is installed and not only found in these sources."""
    try:
        distribution = metadata.distribution("mongottl")
    except metadata.PackageNotFoundError:
        pytest.skip("mongottl is not installed")
    if Path(str(distribution.locate_file(""))).resolve() == ROOT:
        pytest.skip("mongottl is not installed")
    return distribution


def test_every_file_of_the_package_is_installed_and_no_other() -> None:
    files = {str(file) for file in installed().files or ()}
    listed = subprocess.run(
        ["git", "ls-files", "mongottl"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    if not listed:
        pytest.skip("not a checkout")
    sources = {file for file in files if file.startswith("mongottl/") and not file.endswith((".so", ".pyd", ".pyc"))}
    assert sources == set(listed)


def test_metadata() -> None:
    described = installed().metadata
    assert described["Version"] == VERSION
    assert described["Requires-Python"] == ">=3.11"
    assert described["Description-Content-Type"] == "text/markdown"
    assert "documents expire" in described["Summary"]
    assert re.search(r"^# mongottl$", described.get_payload(), re.M)  # type: ignore[attr-defined]
    assert "Typing :: Typed" in described.get_all("Classifier", [])


def test_the_version_stands_in_one_place() -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "mongottl.config.VERSION"}


def test_the_tests_check_types_with_the_mypy_that_compiles() -> None:
    source = (ROOT / "build_backend.py").read_text(encoding="utf-8")
    [checker] = [each for each in PROJECT["project"]["optional-dependencies"]["test"] if each.startswith("mypy==")]
    assert f'"{checker}"' in source
