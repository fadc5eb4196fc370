"""What README.md, compose.yaml, the Dockerfile and the package's metadata promise is there and works."""

import importlib.machinery
import importlib.util
import os
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pymongo
import pytest
import yaml

import mongottl
from mongottl.cli import parse_arguments
from mongottl.config import SETTINGS, VERSION, ServerConfig, config_from

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)


def script(name: str) -> ModuleType:
    """A Python script of `scripts`, as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "scripts" / name))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_generated_tables_are_up_to_date() -> None:
    assert script("tables").with_tables(README) == README, "run scripts/tables"


@pytest.mark.parametrize("code", blocks("python"))
def test_python_code_runs(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that defines a test is called with the plugin's fixtures, here made by hand."""
    clients: list[pymongo.MongoClient[dict[str, Any]]] = []

    class Remembered(pymongo.MongoClient[dict[str, Any]]):
        """Examples do not close their clients, which look for their server once more when that is gone."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, serverSelectionTimeoutMS=50, **options)
            clients.append(self)

    monkeypatch.setattr(pymongo, "MongoClient", Remembered)
    names: dict[str, Any] = {}
    try:
        exec(compile("import pymongo\n" + code, "README.md", "exec"), names)
        for name, value in names.items():
            if name.startswith("test_"):
                with mongottl.start_server() as server:
                    value(mongottl_uri=server.uri, mongottl_clock=server.clock)
    finally:
        for client in clients:
            client.close()
    assert clients


def test_shell_walk_does_what_its_comments_say(tmp_path: Path) -> None:
    """The lines of the mongosh example, as the commands that mongosh makes of them."""
    from tests.golden.runner import Runner

    (walk,) = blocks("js")
    runner = Runner(tmp_path)
    helpers: dict[str, Callable[..., str]] = {
        "createIndex": lambda key, options: (
            f"""{{createIndexes: "coll", indexes: [{{key: {key}, name: "i", {options[1:]}]}}"""
        ),
        "insertMany": lambda documents: f"""{{insert: "coll", documents: {documents}}}""",
        "find": lambda query, fields: f"""{{find: "coll", filter: {query}, projection: {fields}}}""",
        "adminCommand": lambda command: f"""{command[:-1]}, $db: "admin"}}""",
    }
    try:
        checked = 0
        for line in walk.splitlines():
            call, _, comment = line.partition("//")
            if not call.strip():
                continue
            found = re.fullmatch(r"db(?:\.coll)?\.(\w+)\((.*)\)", call.strip())
            assert found is not None, line
            arguments = re.split(r"(?<=\}), (?=\{)", found[2]) if found[1] in ("find", "createIndex") else [found[2]]
            reply = runner.run(helpers[found[1]](*arguments))
            assert "ok: 1.0" in reply, reply
            if found[1] == "find":
                shown = re.sub(r"([{\[]) | (?=[}\]])", r"\1", comment.strip().partition("]")[0] + "]")
                assert f"firstBatch: {shown}" in reply, line
                checked += 1
            elif "ttlDeleted" in comment:
                deleted = re.search(r"ttlDeleted: \d+", comment)
                assert deleted is not None and deleted[0] in reply, line
                checked += 1
        assert checked == 4
    finally:
        runner.stop()


def test_scripts_that_are_named_can_be_run() -> None:
    named = set(re.findall(r"\bscripts/[\w-]+", README))
    assert {"scripts/serve", "scripts/test", "scripts/bench"} <= named
    for name in named:
        assert os.access(ROOT / name, os.X_OK), name
    for block in blocks("sh"):
        for line in block.splitlines():
            command = shlex.split(line, comments=True)[0]
            assert command in named or command in ("mongottl", "pip", "docker"), line


def test_options_that_are_named_exist() -> None:
    known = {setting.option for setting in SETTINGS}
    known |= {f"--no-{setting.option[2:]}" for setting in SETTINGS if setting.value == "switch"}
    bench = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "bench").rglob("*.py"))
    for option in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README)) - known:
        assert f'"{option}"' in bench, option


def test_folders_and_packages_that_are_named_exist() -> None:
    for folder in re.findall(r"`(tests/\w+|mongottl/)`", README):
        assert (ROOT / folder).is_dir(), folder
    how = README.partition("## How it is built")[2].partition("\n## ")[0]
    packages = re.findall(r"^\| `(\w+)` \| (.+) \|$", how, re.M)
    for package, contents in packages:
        folder = ROOT / "mongottl" / package
        for part in re.findall(r"`([a-z/]+)`", contents):
            assert (folder / part / "__init__.py").is_file() or (folder / f"{part}.py").is_file(), f"{package}: {part}"
    there = {path.parent.name for path in (ROOT / "mongottl").glob("*/__init__.py")}
    assert {name for name, _ in packages} == there


def test_versions_agree() -> None:
    assert PROJECT["version"] == VERSION
    assert f"- {VERSION}:" in README.partition("## Changes")[2]
    floor = PROJECT["requires-python"].removeprefix(">=")
    assert f"Python {floor} or later" in README


def test_compose_file() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    service = compose["services"]["mongottl"]
    config = config_from(parse_arguments(service["command"]))
    assert service["build"] == "."
    assert service["ports"] == [f"{config.port}:{config.port}"]
    assert config.advertise_host == f"localhost:{config.port}"
    volume, _, mounted = service["volumes"][0].partition(":")
    assert volume in compose["volumes"]
    assert config.data_dir == mounted
    kind, *check = service["healthcheck"]["test"]
    assert kind == "CMD" and check[:2] == ["python", "-c"]
    compile(check[2], "compose.yaml", "exec")
    assert str(config.port) in check[2]


def test_dockerfile() -> None:
    """What it starts is the package's own command, with options that exist, on a Python that the package runs on."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    instructions = re.findall(r"^([A-Z]+) (.*)$", text, re.M)
    images = [value.split()[0] for name, value in instructions if name == "FROM"]
    floor = tuple(int(part) for part in PROJECT["requires-python"].removeprefix(">=").split("."))
    pythons = [re.match(r"python:(\d+)\.(\d+)", image) for image in images]
    assert len(pythons) == 2
    # Built and run by the same Python: what is compiled fits no other.
    versions = {(int(found[1]), int(found[2])) for found in pythons if found is not None}
    assert len(versions) == 1 and versions.pop() >= floor
    values = dict(instructions)
    program, *arguments = yaml.safe_load(values["ENTRYPOINT"])
    assert program in PROJECT["scripts"]
    assert arguments == ["serve"]
    assert config_from(parse_arguments(yaml.safe_load(values["CMD"]))).host == "0.0.0.0"
    assert int(values["EXPOSE"]) == ServerConfig().port
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    data = compose["services"]["mongottl"]["volumes"][0].partition(":")[2]
    assert f"mkdir {data}" in values["RUN"] and f"chown {values['USER']} {data}" in values["RUN"]


def test_entry_points_can_be_imported() -> None:
    points = [*PROJECT["scripts"].values(), *PROJECT["entry-points"]["pytest11"].values()]
    for point in points:
        module, _, attribute = point.partition(":")
        imported = importlib.import_module(module)
        assert not attribute or callable(getattr(imported, attribute))
