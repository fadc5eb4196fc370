"""`scripts`: what they say to a user whose Python is too old, how far an installation is, and that they end."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.children import ended_after
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="shell scripts")


def checkout(folder: Path) -> Path:
    """A fresh checkout as far as the scripts look at it before they install."""
    for name in ("scripts", "setup.py", "pyproject.toml"):
        subprocess.run(["cp", "-R", str(ROOT / name), str(folder)], check=True)
    (folder / "mongottl").mkdir()
    return folder


@pytest.mark.parametrize("script", ["serve", "test", "setup"])
@pytest.mark.parametrize(("python", "said"), [("echo 3.10.2; exit 1", "is 3.10.2."), (None, "is not there.")])
def test_an_older_python_is_refused_in_one_line(tmp_path: Path, script: str, python: str | None, said: str) -> None:
    folder = checkout(tmp_path)
    old = tmp_path / "python3.10"
    if python is not None:
        old.write_text(f"#!/bin/sh\n{python}\n")
        old.chmod(0o755)
    ended = subprocess.run(
        [folder / "scripts" / script],
        env={**os.environ, "PYTHON": str(old)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.count("\n") == 1
    assert "Python 3.11 or later is needed" in ended.stderr and f"{old} {said}" in ended.stderr
    assert ".venv" not in ended.stderr
    assert "export PYTHON=" in ended.stderr and "scripts/" not in ended.stderr  # whichever was run
    assert not (folder / ".venv").exists()


def test_an_installation_by_an_older_python_is_refused_by_setup_py(tmp_path: Path) -> None:
    """pip shows what setup.py says; it looks at `requires-python` later."""
    pytest.importorskip("setuptools")  # a new environment has it up to Python 3.11
    code = "import sys; sys.version_info = (3, 10, 2); exec(compile(open('setup.py').read(), 'setup.py', 'exec'))"
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=checkout(tmp_path), capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (1, "mongottl needs Python 3.11 or later; this is 3.10.2\n")


def test_an_installation_says_what_it_does(tmp_path: Path) -> None:
    """With a Python that makes no environment: what is said before, and that nothing half is left."""
    folder = checkout(tmp_path)
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$1" = -c ] && echo 3.13.0 && exit 0\nmkdir -p .venv/bin; exit 1\n')
    python.chmod(0o755)
    for environment, said in (
        ({"MONGOTTL_PURE": "1"}, "interpreted (about ten times slower than compiled); this takes 20 to 70 seconds"),
        ({"MONGOTTL_PURE": "", "CC": "sh"}, "MONGOTTL_PURE=1 starts in 20 to 70 seconds instead"),
        ({"MONGOTTL_PURE": "", "CC": "no-such-compiler"}, "there is no C compiler (no-such-compiler)"),
    ):
        ended = subprocess.run(
            [folder / "scripts/serve"],
            env={**os.environ, "PYTHON": str(python), **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 1
        assert said in ended.stderr
        assert not (folder / ".venv").exists()


def test_setup_keeps_a_pure_build_until_a_compiled_one_is_requested(tmp_path: Path) -> None:
    """With a Python that only notes whether the wheel is compiled."""
    folder = checkout(tmp_path)
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/sh
        case "$*" in
            *python_version*) echo 3.13.0 ;;
            "-m venv"*) mkdir -p .venv/bin; cp "$0" .venv/bin/python; printf '#!/bin/sh\\n' >.venv/bin/mongottl
                chmod +x .venv/bin/mongottl ;;
            *" wheel "*) mkdir -p .venv/wheel; touch .venv/wheel/a.whl; echo "pure: $MONGOTTL_PURE" >>{tmp_path}/made ;;
        esac
        """
    )
    python.chmod(0o755)

    def setup(pure: str | None) -> tuple[list[str], bool]:
        """What the wheel was made of, and whether it was said how to compile."""
        (tmp_path / "made").write_text("")
        others = {name: value for name, value in os.environ.items() if name != "MONGOTTL_PURE"}
        environment = {**others, "PYTHON": str(python), "CC": "sh"} | ({} if pure is None else {"MONGOTTL_PURE": pure})
        ended = subprocess.run(
            [folder / "scripts/setup"], env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        assert ended.returncode == 0, ended.stderr
        return (tmp_path / "made").read_text().split("\n")[:-1], "MONGOTTL_PURE=0 scripts/setup" in ended.stderr

    assert setup("1") == (["pure: 1"], False)
    assert setup(None) == ([], True)
    (folder / "mongottl" / "clock.py").write_text("# another\n")
    assert setup(None) == (["pure: 1"], True)
    assert setup("0") == (["pure: "], False)
    assert setup(None) == ([], False)
    assert setup("1") == (["pure: 1"], False)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"MONGOTTL_PURE": "1"}, "installing"),
        ({"MONGOTTL_PURE": "", "CC": "no-such-compiler"}, "installing"),
        ({"MONGOTTL_PURE": "", "CC": "sh"}, "installing what compiles it"),
    ],
)
def test_an_installation_says_how_far_it_is(tmp_path: Path, environment: dict[str, str], said: str) -> None:
    folder = checkout(tmp_path)
    go_on = tmp_path / "go_on"
    os.mkfifo(go_on)
    # The interpreter that packs the wheel until the test has seen what is said, and then fails.
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/sh
        case "$*" in
            *python_version*) echo 3.13.0 ;;
            "-m venv"*) mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
            *" wheel "*) read go <{go_on}; exit 1 ;;
        esac
        """
    )
    # Ten seconds pass at once, and then no more.
    (tmp_path / "bin").mkdir()
    sleep = tmp_path / "bin" / "sleep"
    sleep.write_text('#!/bin/sh\nmkdir "$0.once" 2>/dev/null\n')
    for program in (python, sleep):
        program.chmod(0o755)
    path = f"{sleep.parent}:{os.environ['PATH']}"
    started = subprocess.Popen(
        [folder / "scripts/setup"],
        env={**os.environ, "PYTHON": str(python), "PATH": path, **environment},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with ended_after(started, group=True) as setup:
        assert setup.stdout is not None
        progress = next((line for line in iter(setup.stdout.readline, "") if line.startswith("  10 s")), "nothing")
        # Opened for reading, too, so that this does not wait if there is no reader.
        with open(os.open(go_on, os.O_RDWR), "w", encoding="ascii") as gate:
            gate.write("\n")
            gate.flush()
            setup.communicate(timeout=PATIENCE_S)
    assert progress == f"  10 s: {said}\n"
    assert setup.returncode == 1


@pytest.mark.parametrize("part", ["requirements", "wheel"])
def test_ctrl_c_ends_an_installation(tmp_path: Path, part: str) -> None:
    """A shell does not give it to what runs in the background: pip, which installs what mongottl needs, and then it."""
    folder = checkout(tmp_path)
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    installs = f"echo $$ >{pids}; exec sleep 600"
    packs = "exec sleep 600" if part == "requirements" else "mkdir -p .venv/wheel; touch .venv/wheel/a.whl"
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/sh
        case "$*" in
            *python_version*) echo 3.13.0 ;;
            "-m venv"*) mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
            *" wheel "*) {packs} ;;
            *{"requirements.txt" if part == "requirements" else "a.whl"}*) {installs} ;;
        esac
        """
    )
    python.chmod(0o755)
    # Open for writing, too, so the end of one writer is not the end of the lines.
    with open(os.open(pids, os.O_RDWR), encoding="ascii") as lines:
        script = subprocess.Popen(
            [folder / "scripts/setup"],
            env={**os.environ, "PYTHON": str(python), "MONGOTTL_PURE": "1"},
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        with ended_after(script, group=True):
            installing = int(lines.readline())
            os.killpg(script.pid, signal.SIGINT)
            # Until all have closed their end of the pipe: pip, too.
            script.communicate(timeout=PATIENCE_S)
            assert script.returncode == 130
            with pytest.raises(ProcessLookupError):
                os.kill(installing, 0)


@pytest.mark.parametrize(
    ("step", "fails"),
    [("lint", ""), ("lint", "exit 1"), ("interpreted", ""), ("interpreted", "exit 1"), ("compiled", "")],
)
def test_nothing_runs_on_after_scripts_test(tmp_path: Path, step: str, fails: str) -> None:
    """What runs in the background ends by Ctrl-C, which a shell does not give to it, and by the foreground's fault."""
    folder = checkout(tmp_path)
    pids, go_on = tmp_path / "pids", tmp_path / "go_on"
    os.mkfifo(pids)
    os.mkfifo(go_on)
    background = f"echo $$ >{pids}; exec sleep 600"
    # It fails when the background runs.
    foreground = f"echo >{pids}; read go <{go_on}; {fails or 'exec sleep 600'}"
    programs = {
        "scripts/setup": "",
        "scripts/check": foreground if step == "lint" else "",
        ".venv/bin/python": f"""case "$*" in
            *tests/unit/catalog*) {foreground if step == "interpreted" else ""} ;;
            *--ignore=tests/volume*) {foreground} ;;
            *) {background} ;;
        esac""",
    }
    (folder / ".venv/bin").mkdir(parents=True)
    for name, code in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{code}\n")
        (folder / name).chmod(0o755)
    # Open for writing, too, so the end of one writer is not the end of the lines.
    with open(os.open(pids, os.O_RDWR), encoding="ascii") as lines:
        script = subprocess.Popen(
            [folder / "scripts/test"], start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        with ended_after(script, group=True):
            _, *begun = sorted([lines.readline().strip() for _ in range(3)])
            if fails:
                go_on.write_text("\n")
            else:
                os.killpg(script.pid, signal.SIGINT)
            script.communicate(timeout=PATIENCE_S)
            assert script.returncode == (1 if fails else 130)
            for pid in begun:
                with pytest.raises(ProcessLookupError):
                    os.kill(int(pid), 0)


@pytest.mark.parametrize(("fails", "status"), [("", 2), ("exit 1", 1)])
def test_coverage_keeps_what_other_parts_have_measured(tmp_path: Path, fails: str, status: int) -> None:
    """A part is measured again alone. All are reported, also if a test fails, which the script then says."""
    folder = checkout(tmp_path)
    (folder / ".venv/bin").mkdir(parents=True)
    programs = {
        "scripts/setup": "",
        ".venv/bin/python": f"""case "$*" in
            *"coverage run"*) echo "$*" >$COVERAGE_FILE.$$; {fails} ;;
            *"coverage combine"*) cat .coverage-data/*/.coverage.* >combined ;;
            *"coverage report"*) echo "TOTAL 100 40 60%"; exit 2 ;;
        esac""",
    }
    for name, code in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{code}\n")
        (folder / name).chmod(0o755)
    measured = []
    for parts in ([], ["tests/golden/", "tests/unit"]):
        ended = subprocess.run(
            [folder / "scripts/coverage", *parts], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert (ended.returncode, ended.stderr) == (status, "")
        assert ended.stdout.endswith("TOTAL 100 40 60%\n")
        measured.append(sorted(line.split()[-1] for line in (folder / "combined").read_text().splitlines()))
    whole = [f"tests/{part}" for part in ("conformance", "drivers", "golden", "property", "unit")]
    assert measured == [whole, sorted({*whole, "tests/golden/"} - {"tests/golden"})]


def test_tables_are_written_from_the_sources_by_whatever_python_starts_the_script(tmp_path: Path) -> None:
    """Not from the package that is installed, which may be older."""
    for name in ("docs", "mongottl", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / ".venv").symlink_to(sys.prefix)
    config = tmp_path / "mongottl/config/server_config.py"
    config.write_text(config.read_text(encoding="utf-8").replace("Address to listen on.", "Where clients connect."))
    checked = subprocess.run(
        [tmp_path / "scripts/tables", "--check"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (
        1,
        "docs/settings.md: the generated tables are out of date; run scripts/tables\n"
        "docs/mongottl.1: the generated tables are out of date; run scripts/tables\n",
    )
    subprocess.run([tmp_path / "scripts/tables"], cwd=tmp_path, check=True)
    assert "| Where clients connect. |" in (tmp_path / "docs/settings.md").read_text(encoding="utf-8")
