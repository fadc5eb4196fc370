"""What is installed: every file of the package, and metadata that say what it is."""

import ast
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
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "mongottl.config.versions.VERSION"}


def test_the_tests_check_types_with_the_mypy_that_compiles() -> None:
    source = (ROOT / "build_backend.py").read_text(encoding="utf-8")
    [checker] = [each for each in PROJECT["project"]["optional-dependencies"]["test"] if each.startswith("mypy==")]
    assert f'"{checker}"' in source


def test_install_instructions_name_existing_extras() -> None:
    """There is no package of this name on an index: a text that says so names what works in a checkout."""
    suffixes = (".py", ".md", ".toml", ".yaml", ".1", ".service")
    texts = {path: path.read_text(encoding="utf-8") for path in (*ROOT.glob("*"), *ROOT.glob("docs/*"))
             if path.is_file() and (path.suffix in suffixes or path.name == "Dockerfile")}  # fmt: skip
    sources = {path: path.read_text(encoding="utf-8") for path in ROOT.glob("mongottl/**/*.py")}
    for path, text in {**texts, **sources}.items():
        assert not re.search(r"(pip3? install|install) +['\"]?mongottl\b", text), path
    named = {
        argument.value
        for text in sources.values()
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "to_install"
        for argument in call.args
        if isinstance(argument, ast.Constant)
    }
    extras = set(PROJECT["project"]["optional-dependencies"])
    assert {"geo", "javascript", "collation", "tls", "web"} <= named <= extras
    for text in texts.values():
        for names in re.findall(r"pip install '\.\[([\w,]+)\]'", text):
            assert set(names.split(",")) <= extras
