"""The recipes of docs/containers.md, as they stand there, and the action of the repository.

Files are checked against the schemas of their formats, or compiled. What compose files, services and the StatefulSet
start is started as the image starts it, with their options, variables and ports, and asked by their own health checks:
in a namespace of the network, where all ports are free. Where a Docker daemon has the image `mongottl`, Compose and
Testcontainers run what they are given.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

import mongottl
from mongottl.cli.container import EMULATOR_DATA, translate
from mongottl.cli.options import configuration
from tests.children import ended_after
from tests.clients.conftest import Installed, run
from tests.documents import ROOT, files
from tests.environment import without_settings
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow

RECIPES = files("docs/containers.md")
ACTION = ROOT / ".github" / "actions" / "mongottl" / "action.yml"
HOME = str(Path(mongottl.__file__).parents[1])
CONTAINER = [sys.executable, "-P", "-m", "mongottl", "container"]
PORT = 27017
# Testcontainers' own container, which removes what tests leave, is an image that no machine without a network has.
TESTCONTAINERS = {"TESTCONTAINERS_RYUK_DISABLED": "true", "TESTCONTAINERS_CHECKS_DISABLE": "true"}


def write(folder: Path, name: str) -> Path:
    """Puts a recipe where its first line says."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(RECIPES[name])
    return path


def parsed(name: str) -> Any:
    return yaml.safe_load(RECIPES[name])


# Formats


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("compose.emulator.yaml", "vendor.compose-spec"),
        ("compose.tests.yaml", "vendor.compose-spec"),
        (".devcontainer/compose.yaml", "vendor.compose-spec"),
        (".github/workflows/service.yml", "vendor.github-workflows"),
        (".github/workflows/action.yml", "vendor.github-workflows"),
    ],
)
def test_files_have_the_form_of_their_formats(installed: Installed, tmp_path: Path, name: str, schema: str) -> None:
    check_form(installed, write(tmp_path, name), schema)


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        (ROOT / "compose.yaml", "vendor.compose-spec"),
        (ROOT / "compose.several.yaml", "vendor.compose-spec"),
        (ROOT / ".github" / "workflows" / "ci.yml", "vendor.github-workflows"),
        (ACTION, "vendor.github-actions"),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else None,
)
def test_files_of_the_repository_have_the_form_of_their_formats(installed: Installed, path: Path, schema: str) -> None:
    check_form(installed, path, schema)


def check_form(installed: Installed, path: Path, schema: str) -> None:
    python = installed("containers/python") / "environment" / "bin" / "python"
    said = run(path.parent, python, "-m", "check_jsonschema", "--builtin-schema", schema, path)
    assert "ok -- validation done" in said


def test_the_manifest_has_the_form_of_kubernetes_resources(installed: Installed, tmp_path: Path) -> None:
    python = installed("containers/python") / "environment" / "bin" / "python"
    manifest = write(tmp_path, "mongottl.yaml")
    # Of the oldest version that is in service, and of the newest that the schemas have.
    for version in ([], ["--kubernetes-version", "1.33"]):
        said = run(tmp_path, python, "-m", "kubernetes_validate", "--strict", *version, manifest)
        assert said.count("INFO") == 2, said


def test_workflows_give_the_action_what_it_takes() -> None:
    inputs = yaml.safe_load(ACTION.read_text(encoding="utf-8"))["inputs"]
    [step] = [step for step in parsed(".github/workflows/action.yml")["jobs"]["test"]["steps"] if "with" in step]
    owner, _, path = step["uses"].partition("@")[0].removeprefix("OWNER/").partition("/")
    assert (owner, ROOT / path) == ("mongottl", ACTION.parent)
    assert step["with"].keys() <= inputs.keys()


def test_the_dev_container_names_what_is_there() -> None:
    """Its form is JSON with comments, which Python's parser does not know; this file has one, in its first line."""
    container = json.loads(RECIPES[".devcontainer/devcontainer.json"].partition("\n")[2])
    compose = parsed(".devcontainer/compose.yaml")
    assert container["dockerComposeFile"] == "compose.yaml"
    application = compose["services"][container["service"]]
    assert application["volumes"] == [f"..:{container['workspaceFolder']}"]
    assert application["network_mode"] == "service:emulator"
    # What it fetches is what is trusted.
    fetch = container["postStartCommand"]
    [certificate] = re.findall(r"-o (\S+) https://localhost:8081/_explorer/emulator.pem$", fetch)
    assert container["remoteEnv"] == {"NODE_EXTRA_CA_CERTS": certificate}


# What the recipes start


def reason_to_skip() -> str:
    missing = [tool for tool in ("unshare", "nsenter", "ip", "curl") if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    return "" if os.geteuid() == 0 else "a namespace of the network needs root"


needs_namespace = pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip())
# Mounts are seen by the container alone. $VOLUMES: outer:inner, separated by spaces.
PREPARE = """
set -e
ip link set lo up
for pair in $VOLUMES; do
    mkdir -p "${pair#*:}"
    mount --bind "${pair%%:*}" "${pair#*:}"
done
exec "$@"
"""
CLIENT = """
import sys
from mongottl.cli.client import connect
with connect(sys.argv[1], 10) as client:
    client.shop.carts.insert_one({})
    print(client.server_info()["version"], client.shop.carts.count_documents({}))
"""


class Container:
    """`mongottl container` with a network of its own."""

    def __init__(self, log: Path, arguments: list[str], environment: dict[str, str], volumes: dict[Path, str]) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                ["unshare", "--net", "--mount", "sh", "-c", PREPARE, "sh", *CONTAINER, *arguments],
                env=without_settings(
                    **environment,
                    PYTHONPATH=HOME,
                    XDG_CACHE_HOME=str(log.parent),
                    VOLUMES=" ".join(f"{outer}:{inner}" for outer, inner in volumes.items()),
                ),
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def inside(self, *command: str | Path) -> list[str | Path]:
        """The command in the container's network."""
        return ["nsenter", "--target", str(self.process.pid), "--net", "--", *command]

    def succeeds(self, *command: str) -> bool:
        ended = subprocess.run(self.inside(*command), capture_output=True, timeout=PATIENCE_S, check=False)
        return ended.returncode == 0

    def wait_for(self, *command: str) -> None:
        """Until a health check succeeds."""

        def is_healthy() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return self.succeeds(*command)

        until(is_healthy, f"no success of {command}")

    def store(self, uri: str) -> list[str]:
        """Stores a document, and gives the server's version and the number of documents."""
        folder = self.log.parent
        return run(folder, *self.inside(sys.executable, "-c", CLIENT, uri), PYTHONPATH=HOME).split()

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0, self.log.read_text()


Start = Callable[..., Container]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:
        count = 0

        def start(
            arguments: list[str] | None = None,
            environment: dict[str, Any] | None = None,
            volumes: dict[Path, str] | None = None,
        ) -> Container:
            nonlocal count
            count += 1
            variables = {name: str(value) for name, value in (environment or {}).items()}
            container = Container(tmp_path / f"log{count}", arguments or [], variables, volumes or {})
            process = container.process
            stack.enter_context(ended_after(process))
            return container

        yield start


def inner_ports(service: dict[str, Any]) -> set[int]:
    """The ports of the container that a service publishes, as `8081:8081`, `10250-10255:10250-10255` and the like."""
    ports: set[int] = set()
    for published in service["ports"]:
        first, _, last = str(published).rpartition(":")[2].partition("-")
        ports.update(range(int(first), int(last or first) + 1))
    return ports


def served_ports(arguments: list[str], environment: dict[str, Any]) -> set[int]:
    translated = translate(arguments, {name: str(value) for name, value in environment.items()})
    config = configuration(translated.options, {**environment, **translated.environment})
    return {port for port in (config.port, config.web_port, config.certificate_port) if port}


def emulator_uri() -> str:
    """The string of application-test.yml."""
    uri: str = parsed("src/test/resources/application-test.yml")["spring"]["data.mongodb"]["uri"]
    return uri


@needs_namespace
def test_a_compose_file_for_the_emulator_starts_this_image(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("trustme")
    service = parsed("compose.emulator.yaml")["services"]["cosmosdb"]
    assert served_ports([], service["environment"]) <= inner_ports(service)
    [volume] = service["volumes"]
    assert volume.partition(":")[2] == EMULATOR_DATA
    data = tmp_path / "data"
    data.mkdir()
    check = ("sh", "-c", service["healthcheck"]["test"])
    pem = tmp_path / "emulator.pem"
    # Other files differ in the version, of which 4.0 is the emulator's last, and in the value that asks for data.
    for number, (version, kept) in enumerate([("4.2", "true"), ("4.0", "True"), ("3.6", 1)], 1):
        environment = {**service["environment"]}
        environment["AZURE_COSMOS_EMULATOR_ENABLE_MONGODB_ENDPOINT"] = version
        environment["AZURE_COSMOS_EMULATOR_ENABLE_DATA_PERSISTENCE"] = kept
        container = start([], environment, {data: EMULATOR_DATA})
        container.wait_for(*check)
        command = ("curl", "--insecure", "--output", str(pem), "https://localhost:8081/_explorer/emulator.pem")
        assert container.succeeds(*command)
        found, documents = container.store(f"{emulator_uri()}&tlsCAFile={pem}")
        assert found.startswith(f"{version}.") and documents == str(number)
        told = container.log.read_bytes().decode()
        assert "PARTITION_COUNT has no effect here" in told and "Started\r\n" in told
        container.stop()


@needs_namespace
def test_a_compose_file_for_tests(start: Start) -> None:
    service = parsed("compose.tests.yaml")["services"]["mongottl"]
    assert inner_ports(service) == served_ports(service["command"], {}) == {PORT}
    container = start(service["command"])
    container.wait_for("curl", "--silent", f"http://localhost:{PORT}")
    assert container.store(f"mongodb://localhost:{PORT}/?retryWrites=false")[1] == "1"
    container.stop()


@needs_namespace
def test_a_service_of_github_actions(start: Start) -> None:
    job = parsed(".github/workflows/service.yml")["jobs"]["test"]
    service = job["services"]["mongottl"]
    assert inner_ports(service) == served_ports([], service["env"]) == {PORT}
    container = start([], service["env"])
    container.wait_for("curl", "--silent", f"http://localhost:{PORT}")
    [uri] = [step["env"]["MONGODB_URI"] for step in job["steps"] if "env" in step]
    assert container.store(uri)[1] == "1"
    moved = "db.adminCommand({advanceClock: 60}).ok"
    environment = {"PYTHONPATH": HOME}
    command = container.inside(sys.executable, "-m", "mongottl", "shell", uri, "--eval", moved)
    assert run(ROOT, *command, **environment) == "1\n"
    container.stop()


@needs_namespace
def test_the_emulator_of_the_dev_container(start: Start, tmp_path: Path) -> None:
    """Its application is in the same network, and finds all at localhost."""
    pytest.importorskip("trustme")
    service = parsed(".devcontainer/compose.yaml")["services"]["emulator"]
    container = start([], service["environment"])
    command = json.loads(RECIPES[".devcontainer/devcontainer.json"].partition("\n")[2])["postStartCommand"]
    pem = tmp_path / "emulator.pem"
    container.wait_for("sh", "-c", command.replace("/tmp/emulator.pem", str(pem)))
    assert container.store(f"{emulator_uri()}&tlsCAFile={pem}")[1] == "1"
    container.stop()


def pod() -> dict[str, Any]:
    _, stateful_set = yaml.safe_load_all(RECIPES["mongottl.yaml"])
    template: dict[str, Any] = stateful_set["spec"]["template"]["spec"]
    return template


@needs_namespace
def test_the_container_of_the_stateful_set(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("h11")
    service, stateful_set = yaml.safe_load_all(RECIPES["mongottl.yaml"])
    labels = stateful_set["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == stateful_set["spec"]["selector"]["matchLabels"] == labels
    assert stateful_set["spec"]["serviceName"] == service["metadata"]["name"]
    [described] = pod()["containers"]
    ports = {port["name"]: port["containerPort"] for port in described["ports"]}
    assert set(ports.values()) == served_ports(described["args"], {}) == {PORT, 8080}
    mounts = {mount["name"]: mount["mountPath"] for mount in described["volumeMounts"]}
    [claim] = stateful_set["spec"]["volumeClaimTemplates"]
    data = tmp_path / "data"
    data.mkdir()
    # The volume is this folder.
    arguments = [str(data) if word == mounts[claim["metadata"]["name"]] else word for word in described["args"]]
    assert str(data) in arguments
    for number in (1, 2):
        container = start(arguments)
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = described[name]["httpGet"]
            # Kubernetes names the address of the pod as the host.
            url = f"http://127.0.0.1:{ports[probe['port']]}{probe['path']}"
            container.wait_for("curl", "--fail", "--silent", url)
        assert container.store(f"mongodb://localhost:{PORT}/")[1] == str(number)
        container.stop()


# The action


def expression(text: str, inputs: dict[str, str]) -> str:
    """A value with GitHub's expressions of inputs in it."""
    return re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: inputs[found[1]], text)


def test_the_action_starts_a_server(tmp_path: Path) -> None:
    """Its steps, as GitHub runs them: each in a bash of its own, which ends at the first failure."""
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    action = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    inputs = {name: described["default"] for name, described in action["inputs"].items()}
    inputs |= parsed(".github/workflows/action.yml")["jobs"]["test"]["steps"][1]["with"]
    checkout = tmp_path / "checkout"
    hidden = shutil.ignore_patterns(".git", ".venv", "build", "__pycache__", ".mypy_cache", "*.so")
    shutil.copytree(ROOT, checkout, ignore=hidden)
    told = {name: tmp_path / name for name in ("GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_PATH")}
    for path in told.values():
        path.touch()
    runner = tmp_path / "runner"
    runner.mkdir()
    variables = {
        **{name: str(path) for name, path in told.items()},
        "GITHUB_ACTION_PATH": str(checkout / ACTION.parent.relative_to(ROOT)),
        "RUNNER_TEMP": str(runner),
        "PYTHON": sys.executable,
    }
    assert action["runs"]["using"] == "composite"
    options = ["--noprofile", "--norc", "-e", "-o", "pipefail"]
    try:
        for step in action["runs"]["steps"]:
            assert step["shell"] == "bash"
            condition = step.get("if")
            assert condition is None or condition == f"inputs.serve == '{inputs['serve']}'"
            own = {name: expression(value, inputs) for name, value in step["env"].items()}
            script = tmp_path / "step.sh"
            # The options of the command line that the server is started with, at any port that is free.
            script.write_text(step["run"].replace("$OPTIONS", "$OPTIONS --port 0"))
            run(tmp_path, "bash", *options, script, **{**variables, **own})
        [uri] = re.findall(r"^MONGODB_URI=(.+)$", told["GITHUB_ENV"].read_text(), re.M)
        assert told["GITHUB_OUTPUT"].read_text() == f"uri={uri}\n"
        assert action["outputs"]["uri"]["value"] == "${{ steps.serve.outputs.uri }}"
        # Later steps find the command by PATH, and no other program with it.
        folder = told["GITHUB_PATH"].read_text().strip()
        assert not os.path.exists(os.path.join(folder, "python"))
        programs = f"{folder}:{os.environ['PATH']}"
        run(tmp_path, "sh", "-c", f"mongottl ping '{uri}'", PATH=programs)
        assert run(tmp_path, "sh", "-c", "mongottl run -- printenv MONGODB_URI", PATH=programs).startswith("mongodb://")
    finally:
        written = runner / "mongottl" / "pid"
        if written.exists():
            os.kill(int(written.read_text()), signal.SIGTERM)


# What is compiled


JAVA = ("src/test/java/SessionsTest.java", "src/test/java/EmulatorTest.java", "src/test/java/MongoTest.java")
SPRING = """
package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.bson.Document;
import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.test.context.SpringBootTest;
import org.springframework.data.mongodb.core.MongoTemplate;
import org.springframework.test.context.ActiveProfiles;

@SpringBootTest
@ActiveProfiles("test")
class ShopTest {
    @SpringBootApplication
    static class Shop {}

    @Autowired MongoTemplate template;

    @Test
    void storesACart() {
        template.insert(new Document("_id", 1), "carts");
        assertEquals(1, template.getCollection("carts").countDocuments());
        assertEquals("shop", template.getDb().getName());
    }
}
"""


@pytest.fixture
def maven(installed: Installed, tmp_path: Path) -> Path:
    """A project with all recipes in Java, and one of Spring Boot's tests."""
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copy(installed("containers/java") / "pom.xml", folder)
    for name in (*JAVA, "src/test/resources/application-test.yml"):
        write(folder, name)
    shop = folder / "src" / "test" / "java" / "shop"
    shop.mkdir()
    (shop / "ShopTest.java").write_text(SPRING)
    return folder


def offline(*goals: str) -> list[str]:
    return ["mvn", "--batch-mode", "--offline", *goals]


@needs_namespace
def test_java_compiles_and_spring_boot_finds_the_emulator(start: Start, maven: Path) -> None:
    """Maven compiles all classes before it runs this one, which needs no Docker."""
    pytest.importorskip("trustme")
    container = start([], {"AZURE_COSMOS_EMULATOR_ENABLE_MONGODB_ENDPOINT": "4.2"})
    address = "https://localhost:8081/_explorer/emulator.pem"
    container.wait_for("curl", "--insecure", "--fail", "--output", str(maven / "emulator.pem"), address)
    said = run(maven, *container.inside(*offline("-Dtest=ShopTest", "test")))
    assert "Tests run: 1, Failures: 0, Errors: 0, Skipped: 0" in said
    for name in JAVA:
        assert (maven / "target" / "test-classes" / Path(name).with_suffix(".class").name).is_file()
    container.stop()


def test_node_has_what_the_recipe_calls(installed: Installed, tmp_path: Path) -> None:
    """TypeScript checks the calls by the declarations that Testcontainers and the driver bring."""
    modules = installed("containers/node") / "node_modules"
    (tmp_path / "node_modules").symlink_to(modules)
    write(tmp_path, "sessions.test.js")
    compiler = modules / "typescript" / "bin" / "tsc"
    options = ["--noEmit", "--allowJs", "--checkJs", "--strict", "--skipLibCheck", "--target", "es2022"]
    run(tmp_path, "node", compiler, *options, "--module", "node16", "--types", "node", "sessions.test.js")


def test_python_has_what_the_recipe_calls(installed: Installed, tmp_path: Path) -> None:
    python = installed("containers/python") / "environment" / "bin" / "python"
    write(tmp_path, "test_sessions.py")
    # PyMongo's client wants to know the type of its documents, which a reader does not.
    options = ["--check-untyped-defs", "--disable-error-code", "var-annotated"]
    run(tmp_path, python, "-m", "mypy", *options, "test_sessions.py")


def go_module(folder: Path) -> Path:
    for name in ("go.mod", "go.sum"):
        shutil.copy(ROOT / "tests" / "clients" / "containers" / "go" / name, folder)
    return write(folder, "sessions_test.go")


def test_go_compiles(installed: Installed, tmp_path: Path) -> None:
    installed("containers/go")
    go_module(tmp_path)
    run(tmp_path, "go", "vet", "./...")


# What Docker runs


@pytest.fixture(scope="session")
def docker() -> str:
    """The command. Skips where there is no daemon that has the image `mongottl`."""
    command = shutil.which("docker")
    if command is None:
        pytest.skip("docker is not installed")
    asked = subprocess.run([command, "image", "inspect", "mongottl"], capture_output=True, text=True, check=False)
    if asked.returncode:
        pytest.skip(f"Docker does not have the image mongottl: {asked.stderr.strip()[-200:]}")
    return command


def compose(docker: str) -> list[str]:
    """Docker's plug-in, or the program of its own."""
    if subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode == 0:
        return [docker, "compose"]
    if shutil.which("docker-compose") is None:
        pytest.skip("docker compose is not installed")
    return ["docker-compose"]


def test_testcontainers_for_java_runs_the_image(docker: str, maven: Path) -> None:
    said = run(maven, *offline("-Dtest=SessionsTest,EmulatorTest,MongoTest", "test"), **TESTCONTAINERS)
    assert "Tests run: 3, Failures: 0, Errors: 0, Skipped: 0" in said


def test_testcontainers_for_node_runs_the_image(docker: str, installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(installed("containers/node") / "node_modules")
    write(tmp_path, "sessions.test.js")
    said = run(tmp_path, "node", "--test", "sessions.test.js", **TESTCONTAINERS)
    assert re.search(r"pass 1$", said, re.M) and re.search(r"fail 0$", said, re.M)


def test_testcontainers_for_python_runs_the_image(docker: str, installed: Installed, tmp_path: Path) -> None:
    python = installed("containers/python") / "environment" / "bin" / "python"
    write(tmp_path, "test_sessions.py")
    said = run(tmp_path, python, "-m", "pytest", "-q", "test_sessions.py", **TESTCONTAINERS)
    assert said.rstrip().splitlines()[-1].startswith("1 passed")


def test_testcontainers_for_go_runs_the_image(docker: str, installed: Installed, tmp_path: Path) -> None:
    installed("containers/go")
    go_module(tmp_path)
    assert run(tmp_path, "go", "test", "./...", **TESTCONTAINERS).startswith("ok")


@pytest.mark.parametrize("name", ["compose.emulator.yaml", "compose.tests.yaml"])
def test_compose_runs_the_image(docker: str, tmp_path: Path, name: str) -> None:
    write(tmp_path, name)
    command = [*compose(docker), "--file", name, "--project-name", f"mongottl-test-{os.getpid()}"]
    try:
        run(tmp_path, *command, "up", "--detach", "--wait")
        [service] = parsed(name)["services"]
        version = "db.version()"
        said = run(tmp_path, *command, "exec", "-T", service, "mongosh", "--eval", version)
        assert said.startswith("4.2." if service == "cosmosdb" else "7.0.")
    finally:
        run(tmp_path, *command, "down", "--volumes")


def test_docker_runs_the_stateful_sets_container(docker: str, tmp_path: Path) -> None:
    """With its user, without rights and a file system that can be written, as Kubernetes would run it."""
    described = pod()["containers"][0]
    context = {**pod()["securityContext"], **described["securityContext"]}
    assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
    name = f"mongottl-test-{os.getpid()}"
    user = f"{context['runAsUser']}:{context['fsGroup']}"
    limits = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", user]
    owned = f"uid={context['runAsUser']},gid={context['fsGroup']}"
    volumes = ["--tmpfs", "/tmp", "--tmpfs", f"/data:{owned}"]
    try:
        run(tmp_path, docker, "run", "--detach", "--name", name, *limits, *volumes, "mongottl", *described["args"])
        probe = f"http://127.0.0.1:8080{described['readinessProbe']['httpGet']['path']}"
        ask = [docker, "exec", name, "curl", "--fail", probe]
        until(lambda: subprocess.run(ask, capture_output=True).returncode == 0, "the container is not ready")
        script = "db.carts.insertOne({}).insertedCount"
        assert run(tmp_path, docker, "exec", name, "mongosh", "--eval", script) == "1\n"
    finally:
        run(tmp_path, docker, "rm", "--force", name)
