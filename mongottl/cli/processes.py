"""Processes of this machine: which of them a process has started, and how they are ended.

A process is named by its id and the instant of its start, so that another one with the same id later is never taken for
it. On Linux the source is /proc, elsewhere `ps`.
"""

import os
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")


class Process(NamedTuple):
    """pid: its id. start: when it has started, as the system writes it."""

    pid: int
    start: str


def process_tree(pid: int) -> list[Process]:
    """The process of that id and its descendants whose ancestors up to it still run; none if it has ended."""
    parents = _parents()
    children: dict[int, list[Process]] = {}
    for process, parent in parents.items():
        children.setdefault(parent, []).append(process)
    tree = [process for process in parents if process.pid == pid]
    for process in tree:  # which grows meanwhile
        tree += children.get(process.pid, ())
    return tree


def still_running(processes: Iterable[Process]) -> list[Process]:
    """The processes among these that have not ended."""
    parents = _parents()
    return [process for process in processes if process in parents]


def send_signal(processes: Iterable[Process], number: int) -> None:
    """Sends a signal to the processes among these that have not ended."""
    for process in still_running(processes):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)


def _parents() -> dict[Process, int]:
    """The processes that have not ended, with the id of each one's parent."""
    parents: dict[Process, int] = {}
    for pid, parent, state, start in _from_proc() if _PROC.joinpath("self/stat").exists() else _from_ps():
        if not state.startswith("Z"):
            parents[Process(pid, start)] = parent
    return parents


def _from_proc() -> Iterable[tuple[int, int, str, str]]:
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            try:
                text = folder.joinpath("stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # it has ended meanwhile
            # After the name, which is in parentheses and may contain anything: state, parent, …, start as field 22.
            fields = text.rpartition(")")[2].split()
            yield int(folder.name), int(fields[1]), fields[0], fields[19]


def _from_ps() -> Iterable[tuple[int, int, str, str]]:
    command = ["ps", "-A", "-o", "pid=,ppid=,stat=,lstart="]
    listed = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    for line in listed.stdout.splitlines():
        pid, parent, state, start = line.split(maxsplit=3)
        yield int(pid), int(parent), state, start


def from_terminal(code: int | None) -> bool:
    """Whether a signal comes from the terminal, which has sent it to all processes in its foreground.

    code: `si_code` of the signal, None if the system does not give it; then it is taken to come from the terminal if
    this process is in its foreground.
    """
    if code is not None:
        return code > 0  # SI_KERNEL; what processes send has 0 or less
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def exit_status(wait_status: int) -> int:
    """The exit status of a process as shells give it: 128 + n if signal n has ended it."""
    code = os.waitstatus_to_exitcode(wait_status)
    return code if code >= 0 else 128 - code
