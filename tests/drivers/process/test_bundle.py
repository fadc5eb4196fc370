"""`scripts/bundle`: the bundle runs on a machine that has no Python, wherever it lies, and as a package of npm.

The machine is a folder that `chroot` makes the root. It has glibc, a shell and `readlink`, and nothing else; with
MONGOTTL_DEBIAN_ROOT it is a minimal Debian in that folder, which debootstrap puts there the first time.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

import pymongo
import pytest

import mongottl
from mongottl.build_info import is_compiled
from mongottl.config import VERSION
from tests.drivers.process.test_process import Process, spawn
from tests.environment import without_settings
from tests.waiting import PATIENCE_S

__all__ = ["spawn"]
Client = pymongo.MongoClient[dict[str, Any]]

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "bundle"
CANNOT_DOWNLOAD = 75
# What the limits of the package are.
MOST_BYTES = 60_000_000
# Where the bundle lies on the machine: not where it was made, and a path that a shell has to quote.
PLACE = "opt/a folder/mongottl"
GLIBC = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1", "libresolv.so.2")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bundles are for Linux")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what scripts/bundle makes of the environment in which the tests run."""
    if not Path(mongottl.__file__).is_relative_to(sys.prefix):
        pytest.skip("the sources are tested; only what is installed can be bundled")
    if os.confstr("CS_GNU_LIBC_VERSION") is None:
        pytest.skip("bundles are for glibc")
    folder = tmp_path_factory.mktemp("dist")
    ended = subprocess.run(
        [sys.executable, SCRIPT, "--environment", sys.prefix, "--dist", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode == CANNOT_DOWNLOAD:
        pytest.skip(f"what scripts/bundle needs cannot be downloaded: {ended.stderr[-200:]}")
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture(scope="module")
def archive(dist: Path) -> Path:
    [found] = dist.glob("*.tar.gz")
    return found


@pytest.fixture(scope="module")
def unpacked(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    [bundle] = folder.iterdir()
    return bundle


def dynamic_section(file: Path) -> str:
    return subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True).stdout


def elf_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]


class Machine:
    """A root without Python, with the bundle at PLACE, and a link to its program in /usr/bin."""

    def __init__(self, root: Path) -> None:
        self.root = root
        script = 'mount --rbind /dev "$0/dev" && mount --rbind /proc "$0/proc" && exec chroot "$0" "$@"'
        own_user = [] if os.geteuid() == 0 else ["--map-root-user"]
        self.command = ["unshare", "--mount", *own_user, "sh", "-c", script, str(root)]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
            env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
        )


def put_glibc(root: Path) -> None:
    """Makes a root of glibc, `sh` and `readlink`."""
    for program in ("sh", "readlink"):
        found = shutil.which(program)
        assert found is not None
        put(root, Path("/usr/bin", program), Path(found))
        listed = subprocess.run(["ldd", found], capture_output=True, text=True, check=True).stdout
        for place in re.findall(r"(/\S+) \(0x", listed):
            put(root, Path(place))
            if Path(place).name == "libc.so.6":
                for name in GLIBC:
                    put(root, Path(place).with_name(name))
    # Its interpreter is named in each program of it.
    (root / "bin").mkdir(exist_ok=True)
    if not (root / "bin/sh").exists():
        (root / "bin/sh").symlink_to("../usr/bin/sh")


def put(root: Path, place: Path, source: Path | None = None) -> None:
    target = root / place.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy((source or place).resolve(), target)


@pytest.fixture(scope="module")
def machine(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    debian = os.environ.get("MONGOTTL_DEBIAN_ROOT")
    root = Path(debian) if debian else tmp_path_factory.mktemp("machine")
    if debian and not (root / "bin/sh").exists():
        if shutil.which("debootstrap") is None:
            pytest.skip("debootstrap is not installed")
        subprocess.run(["debootstrap", "--variant=minbase", "stable", root], check=True)
    elif not debian:
        put_glibc(root)
    for name in ("dev", "proc", "tmp", "usr/bin", str(PurePosixPath(PLACE).parent)):
        (root / name).mkdir(parents=True, exist_ok=True)
    shutil.copytree(unpacked, root / PLACE)
    link = root / "usr/bin/mongottl"
    try:
        link.symlink_to(f"../../{PLACE}/bin/mongottl")
        machine = Machine(root)
        ended = machine.run("sh", "-c", ":")
        if ended.returncode:
            pytest.skip(f"a folder cannot be made the root here: {ended.stderr.strip()}")
        yield machine
    finally:
        link.unlink(missing_ok=True)
        shutil.rmtree(root / PLACE)


@pytest.mark.slow
def test_the_archive_is_small_and_says_which_glibc_it_needs(archive: Path, unpacked: Path) -> None:
    assert archive.stat().st_size < MOST_BYTES
    named = re.fullmatch(rf"mongottl-{re.escape(VERSION)}-linux-(?:x86_64|aarch64)-glibc(\d+)\.(\d+)", unpacked.name)
    assert named and archive.name == f"{unpacked.name}.tar.gz"
    needed = {
        (int(major), int(minor))
        for file in elf_files(unpacked)
        for major, minor in re.findall(
            r"GLIBC_(\d+)\.(\d+)",
            subprocess.run(["readelf", "-V", file], capture_output=True, text=True, check=True).stdout,
        )
    }
    assert max(needed) == (int(named[1]), int(named[2]))
    assert f"glibc {named[1]}.{named[2]} or later" in (unpacked / "README.md").read_text()


@pytest.mark.slow
def test_the_archive_has_files_alone_sorted_and_of_one_time(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
    # npm packs no links. Programs are in two places.
    assert all(member.isreg() and (member.uid, member.gid) == (0, 0) for member in members)
    assert len({member.mtime for member in members}) == 1
    places = [PurePosixPath(member.name).parts for member in members]
    assert places == sorted(places)
    modes = {member.name.partition("/")[2]: member.mode for member in members}
    assert modes["bin/mongottl"] == modes["python/bin/python3"] == 0o755


@pytest.mark.slow
def test_bundle_has_the_licence_of_each_package_and_library(unpacked: Path) -> None:
    licenses = {folder.name for folder in (unpacked / "licenses").iterdir() if any(folder.iterdir())}
    [site] = unpacked.glob("python/lib/python3.*/site-packages")
    packages = {re.sub(r"[-_.]+", "-", path.name.partition("-")[0]).lower() for path in site.glob("*.dist-info")}
    libraries = {path.name.partition(".so")[0] for path in unpacked.glob("python/lib/*.so*")}
    assert {"mongottl", "trio", "pymongo", "tzdata"} <= packages
    libraries = {library for library in libraries if not library.startswith("libpython")}
    assert packages | libraries | {"python"} == licenses
    # Under the GPL, or not for users.
    assert not {"libreadline", "libgdbm"} & libraries
    assert not {"pip", "setuptools", "pytest", "mypy"} & packages
    assert not list(unpacked.glob("python/lib/python3.*/test"))


@pytest.mark.slow
def test_no_file_looks_for_libraries_outside_the_bundle(unpacked: Path) -> None:
    files = elf_files(unpacked)
    assert len(files) > 50
    for file in files:
        section = dynamic_section(file)
        assert "RUNPATH" not in section, file
        for folders in re.findall(r"Library rpath: \[(.*)\]", section):
            for folder in folders.split(":"):
                assert folder.startswith("$ORIGIN"), file
                place = Path(folder.replace("$ORIGIN", str(file.parent))).resolve()
                assert place.is_dir() and place.is_relative_to(unpacked), file


@pytest.mark.slow
def test_bundle_runs_where_there_is_no_python(machine: Machine) -> None:
    assert machine.run("sh", "-c", "command -v python3 || command -v python").returncode != 0
    for program in ("mongottl", f"/{PLACE}/bin/mongottl"):
        ended = machine.run(program, "version")
        how = "compiled" if is_compiled() else "interpreted.*"
        assert ended.stderr == ""
        assert re.fullmatch(rf"mongottl {re.escape(VERSION)} \({how}\), a bundle with Python 3\.\S+\n", ended.stdout)
    relative = machine.run("sh", "-c", f"cd '/{PLACE}/bin'; ./mongottl version; sh mongottl version")
    assert relative.stdout.count("a bundle") == 2 and relative.stderr == ""
    assert machine.run("mongottl", "help", "expiring").stdout == (ROOT / "docs/expiring.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_run_gives_its_command_the_uri_and_nothing_else(machine: Machine) -> None:
    ended = machine.run("mongottl", "run", "--", "sh", "-c", "export -p; exit 3")
    assert (ended.returncode, ended.stderr) == (3, "")
    exported = {line.split("=")[0].removeprefix("export ") for line in ended.stdout.splitlines()}
    # LC_CTYPE is what Python sets everywhere in a locale that is not UTF-8.
    assert exported - {"LC_CTYPE", "PWD", "OLDPWD", "SHLVL", "_"} == {"MONGODB_URI", "PATH"}


def lacks(unpacked: Path, extra: str) -> bool:
    """Whether the environment of the tests has not what an extra needs, so that the bundle has it neither."""
    found = re.search(r"It lacks what these extras need: (.*)\.", (unpacked / "README.md").read_text())
    return found is not None and extra in found[1].split(", ")


@pytest.mark.slow
def test_a_server_has_all_that_libraries_do_for_it(
    machine: Machine, unpacked: Path, spawn: Callable[..., Process]
) -> None:
    server = spawn("--data-dir", "/tmp/data", "--tls-self-signed", command=[*machine.command, "mongottl"])
    with Client(f"mongodb://127.0.0.1:{server.port}/?tls=true&tlsInsecure=true") as client:
        found = client.admin.command("hello", compression=["snappy", "zstd", "zlib"])["compression"]
        assert found == ["snappy", "zstd", "zlib"]
        things = client.test.things
        things.create_index([("place", "2dsphere")])
        things.create_index([("text", "text")])
        things.insert_many(
            [
                {"_id": 1, "text": "running horses", "place": {"type": "Point", "coordinates": [13.4, 52.5]}},
                {"_id": 2, "text": "Ängste", "place": {"type": "Point", "coordinates": [2.3, 48.9]}},
            ]
        )

        def ids(condition: dict[str, Any], **options: Any) -> list[int]:
            return [document["_id"] for document in things.find(condition, **options)]

        # QuickJS in processes of its own, S2, snowball, PCRE2, ICU, time zones.
        assert ids({"$where": "this._id > 1"}) == [2]
        near = {"$near": {"$geometry": {"type": "Point", "coordinates": [2, 48]}, "$maxDistance": 200_000}}
        assert ids({"place": near}) == [2]
        assert ids({"$text": {"$search": "horse"}}) == [1]
        assert ids({"text": {"$regex": r"^\p{Lu}(?=ng)"}}) == [2]
        if not lacks(unpacked, "collation"):
            assert ids({"text": "angste"}, collation={"locale": "de", "strength": 1}) == [2]
        date = {"$dateToString": {"date": datetime(1970, 1, 1), "timezone": "Europe/Berlin", "format": "%H:%M"}}
        assert next(things.aggregate([{"$limit": 1}, {"$project": {"at": date}}]))["at"] == "01:00"
    # The launcher has become the server: the signal reaches it.
    server.stop()
    assert (machine.root / "tmp/data/mongottl.sqlite3").is_file()
    shutil.rmtree(machine.root / "tmp/data")


# As a package of npm


@pytest.fixture(scope="module")
def node_folder(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which both packages are installed: the wrapper as `npm pack` makes it, and the bundle's."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    folder = tmp_path_factory.mktemp("node")
    npm("pack", str(ROOT / "npm"), cwd=folder)
    assert members(folder / f"mongottl-{VERSION}.tgz") == members(dist / f"mongottl-{VERSION}.tgz")
    [carrier] = dist.glob(f"mongottl-linux-*-{VERSION}.tgz")
    # Offline: what is installed comes from these files, whoever has these names elsewhere.
    npm("install", "--offline", "--no-audit", "--no-fund", f"./mongottl-{VERSION}.tgz", str(carrier), cwd=folder)
    return folder


def npm(*arguments: str, cwd: Path) -> None:
    ended = subprocess.run(["npm", *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def members(package: Path) -> dict[str, bytes]:
    with tarfile.open(package) as tar:
        files = {member.name: tar.extractfile(member) for member in tar.getmembers()}
        return {name: file.read() for name, file in files.items() if file is not None}


def npx(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["npx", "--no-install", "mongottl", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        env=without_settings(),
    )


@pytest.mark.slow
def test_npx_runs_tests_with_a_server(node_folder: Path) -> None:
    ended = npx(node_folder, "run", "--", "node", "-e", "console.log(process.env.MONGODB_URI); process.exit(3)")
    assert (ended.returncode, ended.stderr) == (3, "")
    assert ended.stdout.startswith("mongodb://127.0.0.1:")
    assert "a bundle with Python" in npx(node_folder, "version").stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_server_behind_node(
    node_folder: Path, spawn: Callable[..., Process], number: signal.Signals
) -> None:
    server = spawn(command=["node", str(node_folder / "node_modules/mongottl/bin/mongottl.js")])
    with Client(server.uri) as client:
        assert client.admin.command("ping")["ok"] == 1
    server.stop(number)


@pytest.mark.slow
def test_bundle_script_names_a_missing_package(node_folder: Path, tmp_path: Path) -> None:
    alone = shutil.copytree(node_folder / "node_modules/mongottl", tmp_path / "mongottl")
    ended = subprocess.run(
        ["node", alone / "bin/mongottl.js", "version"], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert ended.returncode == 1
    assert re.match(r"mongottl: the package @mongottl/linux-\w+ is not installed\.", ended.stderr)
