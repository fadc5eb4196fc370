"""Which commit a revision names, and what is said where it names none."""

import subprocess
from pathlib import Path

import pytest

from bench import builds


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of one commit, in the place of this one."""
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    for command in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "-m", "First"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(builds, "_REPOSITORY", tmp_path)
    return tmp_path


def test_a_revision_names_a_commit(repository: Path) -> None:
    whole = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repository, capture_output=True, text=True, check=True)
    assert builds.commit_id("HEAD") == whole.stdout[:12]


def test_unknown_commit_is_refused(repository: Path) -> None:
    with pytest.raises(builds.BuildError, match="nothing-like-it is no commit of this repository"):
        builds.commit_id("nothing-like-it")
