"""Other commits of mongottl, installed from this repository's history, to be compared with this one.

A commit is unpacked into a cache folder and installed by its own `scripts/setup` the first time it is asked for, which
takes minutes where it compiles; later runs start at once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parent.parent
_ID_LENGTH = 12


class BuildError(Exception):
    """A commit cannot be installed: the message says what failed."""


def commit_id(revision: str) -> str:
    """The abbreviated id of the commit that a git revision names. BuildError if there is none."""
    found = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", f"--short={_ID_LENGTH}", f"{revision}^{{commit}}"],
        cwd=_REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        raise BuildError(f"{revision} is no commit of this repository")
    return found.stdout.strip()


def installed(commit: str) -> str:
    """The interpreter of a virtual environment with mongottl as of this commit. BuildError if it does not install."""
    folder = _cache_folder() / commit
    python = folder / ".venv/bin/python"
    ready = folder / ".installed"
    if ready.exists():
        return str(python)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(f"+ scripts/setup of {commit}, into {folder}", file=sys.stderr, flush=True)
    with subprocess.Popen(["git", "archive", commit], cwd=_REPOSITORY, stdout=subprocess.PIPE) as archive:
        unpacked = subprocess.run(["tar", "x"], cwd=folder, stdin=archive.stdout, check=False)
    if archive.returncode or unpacked.returncode:
        raise BuildError(f"cannot unpack {commit}")
    if subprocess.run(["scripts/setup"], cwd=folder, stdout=sys.stderr, check=False).returncode:
        raise BuildError(f"scripts/setup of {commit} failed")
    ready.touch()
    return str(python)


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "mongottl-bench"
