"""The recipes of README.md and docs for test suites, as they stand there, in the test frameworks of each language."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mongottl
from tests.clients.conftest import HERE, LIMIT_S, Installed, run
from tests.documents import blocks

pytestmark = pytest.mark.slow

JAVA = """
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.mongodb.MongoWriteException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.IndexOptions;
import com.mongodb.client.model.Indexes;
import java.util.concurrent.TimeUnit;
import org.bson.Document;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class RecipeTest {
RECIPE
}
"""

# Jest's functions, made of those of Node's own test runner.
JEST = """
const assert = require('node:assert')
const { test, before, after, afterEach } = require('node:test')
const beforeAll = before, afterAll = after
const expect = found => ({
  toBeNull: () => assert.strictEqual(found, null),
  toBeLessThan: bound => assert.ok(found < bound, `${found} is not less than ${bound}`),
})

async function placeOrder(shop, order) {
  for (;;) {
    try {
      return await shop.collection('orders').insertOne(order)
    } catch (error) {
      if (error.code !== 16500) throw error
    }
  }
}

RECIPE
"""

GO = """
package client

import (
	"context"
	"errors"
	"os"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func TestRecipe(t *testing.T) {
	ctx := context.Background()
RECIPE
}
"""


def program(language: str) -> str:
    """README's recipe of a language, which is a whole program."""
    (code,) = recipes(language, "README.md")
    return code


def framed(language: str, frame: str) -> str:
    """The program around the recipe of a language for Cosmos DB."""
    (code,) = recipes(language, "docs/cosmos.md")
    return frame.lstrip().replace("RECIPE", code)


def recipes(language: str, page: str) -> list[str]:
    return [block.code for block in blocks(language) if block.where.startswith(f"{page}:")]


def run_with_server(folder: Path, *command: str, dialect: str = "mongodb", **environment: str) -> str:
    """As `run`, with a server that `mongottl run` starts."""
    home = str(Path(mongottl.__file__).parents[1])
    wrapped = [sys.executable, "-m", "mongottl", "run", "--dialect", dialect, "--", *command]
    return run(folder, *wrapped, PYTHONPATH=home, **environment)


def maven_project(folder: Path, installed: Path, name: str, source: str) -> None:
    shutil.copy(installed / "pom.xml", folder)
    tests = folder / "src" / "test" / "java"
    tests.mkdir(parents=True)
    (tests / f"{name}.java").write_text(source)


def go_module(folder: Path, source: str) -> None:
    for name in ("go.mod", "go.sum"):
        shutil.copy(HERE / "go" / name, folder)
    (folder / "recipe_test.go").write_text(source)


def test_java(installed: Installed, tmp_path: Path) -> None:
    maven_project(tmp_path, installed("java"), "SessionsTest", program("java"))
    said = run_with_server(tmp_path, "mvn", "--batch-mode", "--offline", "test")
    assert "Tests run: 1, Failures: 0, Errors: 0, Skipped: 0" in said


def test_junit(installed: Installed, tmp_path: Path) -> None:
    maven_project(tmp_path, installed("java"), "RecipeTest", framed("java", JAVA))
    said = run_with_server(tmp_path, "mvn", "--batch-mode", "--offline", "test", dialect="cosmos")
    assert "Tests run: 2, Failures: 0, Errors: 0, Skipped: 0" in said


def test_node(installed: Installed, tmp_path: Path) -> None:
    modules = installed("node") / "node_modules"
    (tmp_path / "sessions.test.js").write_text(program("javascript"))
    said = run_with_server(tmp_path, "node", "--test", "sessions.test.js", NODE_PATH=str(modules))
    assert re.search(r"pass 1$", said, re.M)
    assert re.search(r"fail 0$", said, re.M)


def test_jest(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "recipe.test.js").write_text(framed("javascript", JEST))
    modules = installed("node") / "node_modules"
    said = run_with_server(tmp_path, "node", "--test", "recipe.test.js", dialect="cosmos", NODE_PATH=str(modules))
    assert re.search(r"pass 2$", said, re.M)
    assert re.search(r"fail 0$", said, re.M)


def test_go(installed: Installed, tmp_path: Path) -> None:
    installed("go")
    go_module(tmp_path, program("go"))
    assert run_with_server(tmp_path, "go", "test", "-p", "1", "./...").startswith("ok")


def test_go_for_cosmos(installed: Installed, tmp_path: Path) -> None:
    installed("go")
    go_module(tmp_path, framed("go", GO))
    assert run_with_server(tmp_path, "go", "test", "./...", dialect="cosmos").startswith("ok")


# One of several files of tests that run at once, each of which writes and counts after a reset.
COUNTING = """
const { MongoClient } = require('mongodb')
const client = new MongoClient(process.env.MONGODB_URI)
beforeEach(() => client.db('admin').command({resetState: 1}))
afterAll(() => client.close())
for (let n = 0; n < 10; n++) test(`counts ${n}`, async () => {
  const carts = client.db('shop').collection('carts')
  for (let k = 0; k < 5; k++) await carts.insertOne({})
  expect(await carts.countDocuments()).toBe(5)
})
"""


def parallel_tests(folder: Path, runner: str, variable: str) -> None:
    """Three files of tests, and the file of docs/testing.md by which a worker chooses its server."""
    (recipe,) = recipes("javascript", "docs/testing.md")
    (folder / "own-server.js").write_text(recipe.replace("JEST_WORKER_ID", variable))
    options = "setupFiles: ['./own-server.js']"
    text = f"{{{options}}}" if runner == "jest" else f"{{test: {{globals: true, {options}}}}}"
    (folder / f"{runner}.config.js").write_text(f"module.exports = {text}\n")
    for number in range(3):
        (folder / f"counting{number}.test.js").write_text(COUNTING)


def run_with_servers(folder: Path, *command: str, **environment: str) -> str:
    home = str(Path(mongottl.__file__).parents[1])
    wrapped = [sys.executable, "-m", "mongottl", "run", "--per-worker", "2", "--", *command]
    ended = subprocess.run(
        wrapped,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, "PYTHONPATH": home, **environment},
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    assert "Two programs reset this server" not in said
    return said


@pytest.mark.parametrize(
    ("runner", "variable", "arguments"),
    [
        ("jest", "JEST_WORKER_ID", ["--maxWorkers", "2"]),
        ("vitest", "VITEST_POOL_ID", ["run", "--maxWorkers", "2", "--minWorkers", "1"]),
    ],
)
def test_workers_have_their_own_servers(
    installed: Installed, tmp_path: Path, runner: str, variable: str, arguments: list[str]
) -> None:
    modules = installed("runners") / "node_modules"
    (tmp_path / "node_modules").symlink_to(modules)
    parallel_tests(tmp_path, runner, variable)
    said = run_with_servers(tmp_path, str(modules / ".bin" / runner), *arguments, NO_COLOR="1")
    assert re.search(r"Tests +30 passed|Tests: +30 passed", said), said


def test_files_of_node_have_their_own_servers(installed: Installed, tmp_path: Path) -> None:
    modules = installed("node") / "node_modules"
    (tmp_path / "node_modules").symlink_to(modules)
    for number in range(2):
        (tmp_path / f"sessions{number}.test.js").write_text(program("javascript"))
    wrapper = tmp_path / "mongottl"
    wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mongottl "$@"\n')
    wrapper.chmod(0o755)
    home = {"PYTHONPATH": str(Path(mongottl.__file__).parents[1])}
    command = f"ls *.test.js | xargs -P 4 -n 1 {wrapper} run -- node --test"
    said = run(tmp_path, "sh", "-c", command, **home)
    assert len(re.findall(r"pass 1$", said, re.M)) == 2


def test_packages_of_go_have_their_own_servers(installed: Installed, tmp_path: Path) -> None:
    installed("go")
    go_module(tmp_path, program("go"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "recipe_test.go").write_text(program("go"))
    home = {"PYTHONPATH": str(Path(mongottl.__file__).parents[1])}
    said = run(tmp_path, "go", "test", "-exec", f"{sys.executable} -m mongottl run --", "./...", **home)
    assert len(re.findall(r"^ok", said, re.M)) == 2


def test_forks_of_surefire_have_their_own_servers(installed: Installed, tmp_path: Path) -> None:
    source = program("java").replace('getenv("MONGODB_URI")', 'getenv(System.getProperty("variable"))')
    maven_project(tmp_path, installed("java"), "SessionsTest", source)
    tests = tmp_path / "src" / "test" / "java"
    (tests / "OtherTest.java").write_text(source.replace("SessionsTest", "OtherTest"))
    pom = tmp_path / "pom.xml"
    variable = "<variable>MONGODB_URI_${surefire.forkNumber}</variable>"
    properties = f"<systemPropertyVariables>{variable}</systemPropertyVariables>"
    forks = f"<configuration><forkCount>2</forkCount>{properties}</configuration>"
    version = "<version>3.5.4</version>"
    assert pom.read_text().count(version) == 1
    pom.write_text(pom.read_text().replace(version, version + forks))
    said = run_with_servers(tmp_path, "mvn", "--batch-mode", "--offline", "test")
    assert "Tests run: 2, Failures: 0, Errors: 0, Skipped: 0" in said


def test_rust(installed: Installed, tmp_path: Path) -> None:
    built = installed("rust")
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(built / name, tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "lib.rs").write_text(program("rust"))
    # What the client is built of is built already.
    target = {"CARGO_TARGET_DIR": str(built / "target")}
    said = run_with_server(tmp_path, "cargo", "test", "--offline", "--", "--test-threads=1", **target)
    assert "test result: ok. 1 passed" in said
