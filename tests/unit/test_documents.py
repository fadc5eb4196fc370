"""What README.md, CHANGELOG.md, docs, compose.yaml, the Dockerfile and the package's metadata promise is true."""

import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from mongottl.cli.container import EMULATOR_DATA, INIT_FOLDER, MONGO_DATA, translate
from mongottl.cli.help import find_pages
from mongottl.cli.options import configuration, help_text
from mongottl.cli.subcommands import SUBCOMMANDS
from mongottl.config import SETTINGS, VERSION, config_from
from tests.documents import DOCS, FILES_RUN_BY, NOT_RUN, ROOT, RUN_BY, Block, all_blocks, documents, files
from tests.waiting import PATIENCE_S

DOCUMENTS = documents()
EVERYTHING = "".join(DOCUMENTS.values())
# Options of other programs: cargo, Node, Jest, Vitest, Mocha, curl, dotnet, Docker, MongoDB's tools, PostgreSQL's.
ELSEWHERE = {
    "--build-arg",
    "--tag",
    "--file",
    "--detach",
    "--wait",
    "--insecure",
    "--output",
    "--read-only",
    "--test",
    "--test-threads",
    "--test-concurrency",
    "--runInBand",
    "--maxWorkers",
    "--parallel",
    "--jobs",
    "--require",
    "--no-file-parallelism",
    "--no-daemon",
    "--fail",
    "--trust",
    "--export-path",
    "--format",
    "--no-password",
    "--replSet",
    "--keyFile",
    "--bind_ip_all",
    "--bind",
    "--eval",
    "--preserveUUID",
    "--oplog",
    "--oplogReplay",
    "--dbname",
    "--schema",
    "--exit-on-error",
    "--analyze-only",
    "--no-owner",
}
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def script(name: str) -> ModuleType:
    """A Python script of `scripts`, as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "scripts" / name))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_generated_tables_are_up_to_date() -> None:
    tables = script("tables")
    for page in tables.TABLES:
        assert tables.with_tables(page) == DOCUMENTS[f"docs/{page}"], "run scripts/tables"


@pytest.mark.parametrize("block", all_blocks(), ids=lambda block: block.where)
def test_each_block_has_a_language_that_a_test_runs(block: Block) -> None:
    if block.language != NOT_RUN and block.page not in FILES_RUN_BY:
        assert block.language in RUN_BY, f"{block.where}: nobody runs {block.language!r}"


def test_modules_that_run_a_language_ask_for_its_blocks() -> None:
    for language, module in RUN_BY.items():
        source = (ROOT / module).read_text(encoding="utf-8")
        assert re.search(rf'\b(blocks|recipe|program)\("{language}"', source), f"{module} does not run {language}"
    for page, module in FILES_RUN_BY.items():
        source = (ROOT / module).read_text(encoding="utf-8")
        for name in files(page):
            assert f'"{name}"' in source, f"{module} does not take {name}"


def test_links_lead_somewhere() -> None:
    """Links to other files of the repository, and to headings by the anchors that GitHub and PyPI make of them."""
    for name, text in DOCUMENTS.items():
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"https?:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (ROOT / name).parent / path if path else ROOT / name
            assert target.exists(), f"{name}: {link}"
            if anchor:
                headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.M)
                anchors = [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]
                assert anchor in anchors, f"{name}: {link}"


def test_readme_names_every_page() -> None:
    for page in DOCS.glob("*.md"):
        assert f"](docs/{page.name})" in DOCUMENTS["README.md"], page.name


def test_scripts_that_are_named_can_be_run() -> None:
    named = set(re.findall(r"\bscripts/[\w-]+", EVERYTHING))
    assert {"scripts/serve", "scripts/test", "scripts/bench"} <= named
    for name in named:
        assert os.access(ROOT / name, os.X_OK), name


def test_installation_says_what_readme_shows() -> None:
    said = (ROOT / "scripts" / "setup").read_text(encoding="utf-8")
    shown = re.findall(r"^mongottl: (.+)$", DOCUMENTS["README.md"], re.M)
    assert len(shown) == 2
    for line in shown:
        assert f'say "{line}"' in said, line


def test_help_names_pages_that_exist() -> None:
    last = " ".join(help_text().splitlines()[-2:])
    named = set(re.findall(r"(\w+)(?= \(|,)", last.partition("a page: ")[2]))
    assert named == {"README", "expiring", "testing", "cosmos", "operating"}
    assert {page.lower() for page in named} <= find_pages().keys()
    for row in SUBCOMMANDS.values():
        assert not row.page or f"`mongottl {row.name}" in DOCUMENTS[f"docs/{row.page}"], row.name


def test_lines_are_wrapped() -> None:
    """At 120 characters, as the sources, but for rows of tables and what a program has written (`text`)."""
    written = {line for block in all_blocks() if block.language == NOT_RUN for line in block.code.splitlines()}
    for name, text in DOCUMENTS.items():
        for number, line in enumerate(text.splitlines(), 1):
            assert len(line) <= 120 or line.startswith("|") or line in written, f"{name}:{number}"


def test_options_that_are_named_exist() -> None:
    known = {setting.option for setting in SETTINGS} | ELSEWHERE
    known |= {f"--no-{setting.option[2:]}" for setting in SETTINGS if setting.value == "switch"}
    package = ROOT / "mongottl"
    folders = (ROOT / "bench", package / "cli", package / "pytest_plugin")
    sources = [ROOT / "tests" / "conftest.py", *(path for folder in folders for path in folder.rglob("*.py"))]
    others = "".join(path.read_text(encoding="utf-8") for path in sources)
    for option in set(re.findall(r"(?<![\w-])--[a-z][a-zA-Z-]+", EVERYTHING)) - known:
        assert f'"{option}"' in others, option


def test_commits_that_are_named_are_in_the_history() -> None:
    command = ["git", "-C", str(ROOT), "log", "--format=%h %s"]
    history = subprocess.run(command, capture_output=True, text=True, check=False).stdout if shutil.which("git") else ""
    if len(history.splitlines()) < 500:
        pytest.skip("the history of the sources is not here")
    text = " ".join((DOCS / "building.md").read_text().split())
    named = re.findall(r'\b([0-9a-f]{7}) "([^"]+)"', text)
    assert len(named) == len(re.findall(r"Shown by [0-9a-f]{7}\b", text)) > 0
    commits = {line[:7]: line.partition(" ")[2] for line in history.splitlines()}
    assert {commit: commits.get(commit) for commit, _ in named} == {commit: text.rstrip(".") for commit, text in named}


def test_folders_and_packages_that_are_named_exist() -> None:
    for folder in re.findall(r"`(tests/\w+|mongottl/)`", EVERYTHING):
        assert (ROOT / folder).is_dir(), folder
    layers = DOCUMENTS["docs/building.md"].partition("## The packages")[2].partition("\n## ")[0]
    packages = re.findall(r"^\| `(\w+)` \| (.+) \|$", layers, re.M)
    there = {path.parent.name for path in (ROOT / "mongottl").glob("*/__init__.py")}
    assert {name for name, _ in packages} == there
    for package, contents in packages:
        folder = ROOT / "mongottl" / package
        for part in set(re.findall(r"`([a-z/_]+)`", contents)) - there:
            assert (folder / part / "__init__.py").is_file() or (folder / f"{part}.py").is_file(), f"{package}: {part}"


def test_versions_agree() -> None:
    assert f"## [{VERSION}]" in DOCUMENTS["CHANGELOG.md"]
    floor = PROJECT["requires-python"].removeprefix(">=")
    assert f"Python {floor} or later" in DOCUMENTS["README.md"]


def test_compose_file() -> None:
    """Its services publish ports of this machine alone, and have options and variables that mean something."""
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    ports = {}
    for name, service in compose["services"].items():
        assert (service["build"], service["restart"]) == (".", "unless-stopped")
        environment = {key: value or "secret" for key, value in service.get("environment", {}).items()}
        translated = translate(service.get("command", []), environment)
        assert translated.remarks == []
        config = configuration(translated.options, translated.environment)
        expected = {config.port, config.web_port, config.certificate_port} - {None}
        published = [port.split(":") for port in service["ports"]]
        assert all(address == "127.0.0.1" and outer == inner for address, outer, inner in published)
        assert {int(inner) for _, _, inner in published} == expected
        assert config.web_port is None or config.web_host == "0.0.0.0"
        for volume in service.get("volumes", []):
            outer, _, inner = volume.partition(":")
            assert outer in compose["volumes"] and config.data_dir == inner
        ports[name] = config.port
    assert ports == {"mongottl": 27017, "auth": 27017, "emulator": 10255}


def test_compose_file_of_several_servers() -> None:
    """Its nodes have one store, on both databases, and HAProxy knows all of them, and nobody else may reach it."""
    compose = yaml.safe_load((ROOT / "compose.several.yaml").read_text(encoding="utf-8"))
    services = compose["services"]
    nodes = {name for name, service in services.items() if service.get("build") == "."}
    for name in nodes:
        translated = translate(services[name]["command"], {})
        assert translated.remarks == []
        config = configuration(translated.options, {})
        assert config.is_sharded and config.port == 27017 and config.host == "*" and "ports" not in services[name]
        hosts = re.fullmatch(r"postgresql://(\w+)@([\w,]+)/(\w+)", config.store or "")
        assert hosts is not None and set(hosts[2].split(",")) <= services.keys()
        database = services["db1"]["environment"]
        assert (hosts[1], hosts[3]) == (database["POSTGRES_USER"], database["POSTGRES_DB"])
        # Each takes 61 connections at most.
        assert int(re.findall(r"max_connections=(\d+)", " ".join(services["db1"]["command"]))[0]) > 61 * len(nodes)
    balancer = compose["configs"]["haproxy"]["content"]
    assert set(re.findall(r"server \w+ (\w+):27017 check", balancer)) == nodes and len(nodes) == 3
    assert services["haproxy"]["ports"] == ["127.0.0.1:27017:27017"]
    for service in services.values():
        for config in service.get("configs", []):
            assert config["source"] in compose["configs"]
        for volume in service.get("volumes", []):
            assert volume.partition(":")[0] in compose["volumes"]


def test_dockerfile() -> None:
    """What it starts is the package's own command, with options that exist, on a Python that the package runs on."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    instructions = re.findall(r"^([A-Z]+) (.*)$", text.replace("\\\n", ""), re.M)
    images = [value.split()[0] for name, value in instructions if name == "FROM"]
    floor = tuple(int(part) for part in PROJECT["requires-python"].removeprefix(">=").split("."))
    pythons = [re.match(r"python:(\d+)\.(\d+)", image) for image in images]
    assert len(pythons) == 2
    # Built and run by the same Python: what is compiled fits no other.
    versions = {(int(found[1]), int(found[2])) for found in pythons if found is not None}
    assert len(versions) == 1 and versions.pop() >= floor
    values = dict(instructions)
    program, command = yaml.safe_load(values["ENTRYPOINT"])
    assert program in PROJECT["scripts"] and command in SUBCOMMANDS
    emulator = config_from({"emulator": "true"})
    assert values["EXPOSE"].split() == [str(port) for port in (27017, emulator.port, emulator.certificate_port)]
    # Every folder in which a container keeps data is there, for the user that it runs as.
    made = " ".join(value for name, value in instructions if name == "RUN")
    assert f"mkdir -p {MONGO_DATA} {EMULATOR_DATA} " in made
    for folder in (MONGO_DATA, EMULATOR_DATA):
        assert folder.startswith(("/data", "/tmp/cosmos"))
    assert f"chown -R {values['USER']}:root /data /tmp/cosmos" in made
    assert str(INIT_FOLDER) in made
    # What the package brings besides comes along: the extras that a server's settings need.
    extras = set(re.findall(r"\[([a-z,]+)\]", text)[0].split(","))
    # ICU is installed apart from them.
    assert extras == set(PROJECT["optional-dependencies"]) - {"browser", "collation", "test"}
    assert "icu" in re.findall(r'python -c "import ([a-zA-Z0-9_, ]+)"', text)[0].split(", ")


def test_entry_points_can_be_imported() -> None:
    points = [*PROJECT["scripts"].values(), *PROJECT["entry-points"]["pytest11"].values()]
    for point in points:
        module, _, attribute = point.partition(":")
        imported = importlib.import_module(module)
        assert not attribute or callable(getattr(imported, attribute))


def test_every_package_is_described() -> None:
    text = (ROOT / "mongottl" / "README.md").read_text(encoding="utf-8")
    packages = {path.parent.name for path in (ROOT / "mongottl").glob("*/__init__.py")}
    assert set(re.findall(r"^- \[(\w+)\]\(\1/__init__\.py\): ", text, re.M)) == packages


def test_the_files_that_an_owner_needs_are_there() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert PROJECT["license"] == "Apache-2.0"
    for name in PROJECT["license-files"]:
        assert (ROOT / name).is_file()
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    steps = [step.get("run") for step in workflow["jobs"]["test"]["steps"]]
    assert ".ci/run" in steps
    for template in (ROOT / ".github" / "ISSUE_TEMPLATE").iterdir():
        form = yaml.safe_load(template.read_text(encoding="utf-8"))
        assert form["name"] and all(part["id"] for part in form["body"])


def test_the_unit_of_systemd_starts_what_there_is() -> None:
    unit = (ROOT / "docs" / "mongottl.service").read_text(encoding="utf-8")
    [command] = re.findall(r"^ExecStart=/usr/local/bin/mongottl (.+)$", unit, re.M)
    subcommand, *options = command.split()
    assert subcommand == "serve"
    [folder] = re.findall(r"^StateDirectory=(.+)$", unit, re.M)
    assert configuration(options, {}).data_dir == f"/var/lib/{folder}"
    variables = {setting.variable for setting in SETTINGS}
    assert set(re.findall(r"MONGOTTL_[A-Z_]+", unit)) <= variables


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = (ROOT / "docs" / "mongottl.service").read_text(encoding="utf-8")
    copy = tmp_path / "mongottl.service"
    copy.write_text(unit.replace("/usr/local/bin/mongottl", sys.executable), encoding="utf-8")
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    told = [line for line in checked.stderr.splitlines() if "mongottl.service" in line]
    assert (checked.returncode, told) == (0, []), checked.stderr
