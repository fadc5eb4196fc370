"""Processes that tests start end with the test, so that what one leaves behind fails no other."""

import ast
import os
import subprocess
import sys

import pytest

from tests.architecture.test_imports import ROOT
from tests.architecture.test_time_in_tests import TESTS, files, name_of
from tests.children import ended_after
from tests.waiting import until

# Classes that keep a process, with the method that ends it, which a fixture or a `finally` calls.
KEEPERS = {
    "drivers/process/test_document_blocks.py": "Shell.stop",
    "drivers/process/test_process.py": "Process.kill",
    "drivers/process/test_run.py": "Running.kill",
}


def unprotected(source: str) -> list[int]:
    """The lines that start a process which `ended_after` does not end, in this module or by the name that it gets."""
    if "Popen" not in source:
        return []
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    ended = [argument for call in calls if name_of(call.func) == "ended_after" for argument in call.args[:1]]
    names = {argument.id for argument in ended if isinstance(argument, ast.Name)}
    kept = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and all(name_of(target) in names for target in node.targets)
    ]
    return [call.lineno for call in calls if name_of(call.func) == "Popen" and call not in [*ended, *kept]]


def test_processes_end_with_their_tests() -> None:
    found = {file for file in files() if unprotected((TESTS / file).read_text(encoding="utf-8"))}
    assert found <= set(KEEPERS), "use ended_after of tests/children.py"
    for file, method in KEEPERS.items():
        keeper, _, name = method.partition(".")
        source = (TESTS / file).read_text(encoding="utf-8")
        assert f"class {keeper}" in source and f"def {name}(self" in source


@pytest.mark.skipif(os.name != "posix", reason="groups of processes")
@pytest.mark.parametrize("group", [False, True])
def test_a_process_is_killed_when_its_block_fails(group: bool) -> None:
    code = "import subprocess, sys; print(subprocess.Popen(['sleep', '600']).pid, flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", code if group else "print(0, flush=True); input()"],
        cwd=ROOT,
        start_new_session=group,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with pytest.raises(subprocess.TimeoutExpired), ended_after(process, group):
        assert process.stdout is not None
        child = int(process.stdout.readline())
        raise subprocess.TimeoutExpired("sleep", 1)
    assert process.returncode < 0
    assert process.stdout is not None and process.stdout.closed
    if group:
        until(lambda: not is_running(child))


def is_running(pid: int) -> bool:
    """Whether a process is there that has not ended; one that has may be in the table until its parent asks."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
