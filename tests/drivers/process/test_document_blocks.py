"""The blocks of README.md and docs in Python and mongosh, and their command lines, run as a reader would run them.

Programs in other languages are run by `tests/clients/test_recipes.py`.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pymongo
import pytest

import mongottl
from tests.children import ended_after
from tests.documents import ROOT, Block, blocks
from tests.environment import without_settings
from tests.waiting import PATIENCE_S

HOME = Path(mongottl.__file__).parents[1]
# Where the documents expect a server.
ADDRESS = "127.0.0.1:27017"
# What the documents name, but these tests do not run: they install or build something.
NOT_HERE = ("pip", "docker", "scripts/serve", "scripts/test", "scripts/bench")
# Stands for curl, which not every machine has.
CURL = f"""#!{sys.executable}
import sys, urllib.request
sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[-1]).read())
"""
# Stands for any test runner: it succeeds if it can reach the server that it was given.
RUNNER = """#!/bin/sh
exec mongottl ping "${MONGODB_URI_1:-$MONGODB_URI}"
"""


def environment(**variables: str) -> dict[str, str]:
    """The environment of a process that imports mongottl from where we have it, without settings of ours."""
    return without_settings(**{"PYTHONPATH": str(HOME), "PYTHONDONTWRITEBYTECODE": "1", **variables})


def run_python(folder: Path, *arguments: str) -> str:
    """What a Python process writes to standard output. It has to succeed, and to close all that it opens."""
    command = [sys.executable, "-W", "error", *arguments]
    ended = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment()
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    # Refusals that a program provokes are told with what to do about them.
    assert not [line for line in ended.stderr.splitlines() if "Command refused" not in line]
    return ended.stdout


def python_blocks(tests: bool) -> list[Block]:
    """The blocks in Python that define tests, or the others."""
    return [block for block in blocks("python") if ("def test_" in block.code) is tests]


@pytest.mark.slow
@pytest.mark.parametrize("block", python_blocks(tests=False), ids=lambda block: block.where)
def test_python_programs(block: Block, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(block.code)
    run_python(tmp_path, "program.py")


@pytest.mark.slow
def test_python_tests(tmp_path: Path) -> None:
    """All of them in one run of pytest, with the plugin as the only one, and with warnings as errors."""
    wanted = python_blocks(tests=True)
    for number, block in enumerate(wanted):
        (tmp_path / f"test_{number}.py").write_text(block.code)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    output = run_python(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin())
    tests = sum(len(re.findall(r"^ *def test_", block.code, re.M)) for block in wanted)
    passed = re.search(r"^(\d+) passed", output, re.M)
    assert passed is not None and int(passed[1]) >= tests, output


def plugin() -> list[str]:
    """The options by which pytest finds our plugin where it is not installed, with its entry point."""
    found = any(point.value == "mongottl.pytest_plugin" for point in entry_points(group="pytest11"))
    return [] if found else ["-p", "mongottl.pytest_plugin"]


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("toml"), ids=lambda block: block.where)
def test_settings_of_pytest(block: Block, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(block.code)
    (tmp_path / "test_settings.py").write_text("def test_starts(mongottl_server):\n    pass\n")
    output = run_python(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin())
    assert "1 passed" in output


def test_mongosh_prints_what_the_comments_say(tmp_path: Path) -> None:
    """The lines of the mongosh example, as the commands that mongosh makes of them."""
    from tests.golden.runner import Runner

    (walk,) = blocks("js")
    # Readers type more slowly than the documents would live if the clock ran, which the runner's does not either.
    started = re.search(r"Start `(scripts/serve [^`]*)`", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert started is not None and "--freeze-clock" in started[1]
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
        for line in walk.code.splitlines():
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


class Shell:
    """A folder in which the command lines of one block are run, in turn, with a server for those that need one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._servers: list[subprocess.Popen[str]] = []
        programs = folder / "programs"
        programs.mkdir()
        self._program(programs / "mongottl", f'#!/bin/sh\nexec "{sys.executable}" -m mongottl "$@"\n')
        self._program(programs / "npm", RUNNER)
        self._program(programs / "npx", RUNNER)
        self._program(programs / "mvn", RUNNER)
        self._program(programs / "dotnet", RUNNER)
        self._program(programs / "curl", CURL)
        self._program(folder / "gradlew", RUNNER)
        # What the command lines name: a password, files to load, the data of a stopped server.
        (folder / "password.txt").write_text("secret\n")
        (folder / "dump" / "shop").mkdir(parents=True)
        (folder / "dump" / "shop" / "carts.json").write_text('{"_id": 1}\n')
        with (
            mongottl.start_server(data_dir=str(folder / "data")) as server,
            pymongo.MongoClient[dict[str, Any]](server.uri) as client,
        ):
            client.shop.carts.insert_one({"_id": 1})
        self._environment = environment(PATH=f"{programs}{os.pathsep}{os.environ['PATH']}")
        self._own = mongottl.start_server(data_dir=str(folder / "other"), web_port=0)
        self.uri = self._own.uri
        self.web_url = self._own.web_url or ""

    def _program(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def run(self, line: str) -> None:
        """Runs a command line to its end; a server is only started. A free port stands for that of the documents."""
        words = shlex.split(line, comments=True)
        line = line.replace(f"mongodb://{ADDRESS}/", self.uri).replace("http://127.0.0.1:8080/", self.web_url)
        if words[0] == "mongottl" and (len(words) == 1 or words[1] == "emulator" or words[1].startswith("--")):
            self.serve(line)
            return
        ended = subprocess.run(
            line, shell=True, cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE_S, env=self._environment
        )
        assert ended.returncode == 0, f"{line}: {ended.stdout}{ended.stderr}"

    def serve(self, line: str) -> str:
        """Starts a server at a free port; its first line."""
        command = shlex.split(line, comments=True)
        for option in ("--port", "--web-port"):
            if option in command:
                command[command.index(option) + 1] = "0"
            elif option == "--port":
                command += [option, "0"]
        if "emulator" in command:
            command += ["--certificate-port", "0"]
        server = subprocess.Popen(
            command,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=self._environment,
        )
        self._servers.append(server)
        assert server.stdout is not None
        first = server.stdout.readline()
        assert "accepts connections" in first, line
        return first

    def stop(self) -> None:
        with ExitStack() as ended:
            for server in self._servers:
                ended.enter_context(ended_after(server))
            self._own.stop()
            for server in self._servers:
                server.send_signal(signal.SIGTERM)
            for server in self._servers:
                server.communicate(timeout=PATIENCE_S)
                assert server.returncode == 0


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    try:
        yield shell
    finally:
        shell.stop()


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("sh"), ids=lambda block: block.where)
def test_command_lines(block: Block, shell: Shell) -> None:
    """Each runs and succeeds. Those that install or build something are only looked up."""
    for line in block.code.splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] not in NOT_HERE:
            shell.run(line)
        elif words[0].startswith("scripts/"):
            assert os.access(ROOT / words[0], os.X_OK), line


@pytest.mark.slow
def test_first_line_of_a_server(shell: Shell) -> None:
    """It is as README shows it for a compiled server, but for the port."""
    printed = re.sub(r", interpreted[^)]*|:\d+(?=/)", "", shell.serve("mongottl"))
    assert printed in (ROOT / "README.md").read_text(encoding="utf-8").replace(f"{ADDRESS}/", "127.0.0.1/")
