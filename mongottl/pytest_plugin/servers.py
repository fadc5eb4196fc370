"""The servers of a pytest run: those that tests share, and those of their own.

A shared server runs until the end of the run. Its state is saved before a test and restored after it, which takes less
than starting a server.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pytest

if TYPE_CHECKING:
    from mongottl.server.thread import RunningServer

NAME: Final = "mongottl"
# What the mark takes beside the fields of `ServerConfig` and the arguments of `start_server`.
_SHARED: Final = "shared"
# Settings that take a port. Where it is 0 or not given, each server finds a free one.
_PORTS: Final = ("port", "web_port")


class Servers:
    """The servers of a run that tests share, by their settings."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._running: dict[str, RunningServer] = {}
        # The ports that the settings of these servers name.
        self._ports: dict[str, set[object]] = {}

    @contextmanager
    def for_test(self, request: pytest.FixtureRequest, settings: dict[str, object]) -> "Iterator[RunningServer]":
        """The server of a test with the settings of pytest's configuration, those of its marks and these."""
        settings = {**_marked_settings(self._config, request.node), **settings}
        if settings.get("data_dir") in (None, False):
            settings.pop("data_dir", None)  # a mark that takes back what one of its class or module says
        in_memory = "data_dir" not in settings and settings.get("storage_engine") in (None, "auto", "memory")
        shared = settings.pop(_SHARED, in_memory)
        if not isinstance(shared, bool):
            refuse(f"the mark {NAME}: {_SHARED}: True or False is needed, not {shared!r}")
        if shared and not in_memory:
            refuse(f"the mark {NAME}: {_SHARED}: only for data in memory, not in files")
        if shared:
            with self._unchanged(settings, f"pytest {request.fixturename}") as server:
                yield server
            return
        if settings.get("data_dir") is True:
            path: Path = request.getfixturevalue("tmp_path")
            settings["data_dir"] = str(path / NAME)
        with self._start(settings, None) as server:
            yield server

    def shared(self, settings: dict[str, object]) -> "RunningServer":
        """The running server that tests with these settings share."""
        if settings.get("data_dir") is True:
            refuse("mongottl_session: data_dir = true is a folder for each test, which tests do not share")
        key = repr(sorted((name, _shown(value)) for name, value in settings.items()))
        server = self._running[key] = self._start(settings, self._running.get(key))
        self._ports[key] = _ports(settings)
        return server

    def stop(self) -> None:
        """Stops all of them."""
        while self._running:
            self._running.popitem()[1].stop()

    def _start(self, settings: dict[str, object], server: "RunningServer | None") -> "RunningServer":
        """Starts a server, or one again that a test has stopped. pytest.UsageError if another server of this run has
        the port that the settings name."""
        try:
            return start(settings) if server is None else server.start()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                for key, other in self._running.items():
                    if other.running and self._ports[key] & _ports(settings):
                        why = "tests with other settings share a server that has this port until the end of the run"
                        hint = "without a port, each server finds a free one, which mongottl_uri names"
                        raise pytest.UsageError(f"{error.strerror}: {why}; {hint}") from None
            raise

    @contextmanager
    def _unchanged(self, settings: dict[str, object], state: str) -> "Iterator[RunningServer]":
        """The shared server, whose state is afterwards what it was; a new one if the test has stopped it."""
        server = self.shared(settings)
        server.save(state)
        saved = server.states
        runs = server.runs
        try:
            yield server
        finally:
            if server.runs != runs or not server.running or not _restored(server, state, saved):
                server.stop()


def _restored(server: "RunningServer", state: str, saved: list[str]) -> bool:
    """Restores a state, and drops all but those that were saved before; False if that cannot be done: the server stops
    meanwhile, or the test has dropped the state."""
    from mongottl.errors import CommandError

    try:
        server.restore(state)
        for name in server.states:
            if name not in saved:
                server.drop(name)
    except (RuntimeError, CommandError):
        return False
    return True


def _ports(settings: dict[str, object]) -> set[object]:
    """The ports that settings name."""
    return {settings[name] for name in _PORTS if settings.get(name)}


def _shown(value: object) -> object:
    """A value whose `repr` differs from those of other values, also one that hides secrets."""
    return vars(value) if is_dataclass(value) else value


def _marked_settings(config: pytest.Config, node: pytest.Item) -> dict[str, object]:
    """The settings of pytest's configuration and of a test's marks. A mark that names none fails the test."""
    settings = ini_settings(config)
    for mark in reversed(list(node.iter_markers(NAME))):  # the closest last
        if mark.args:
            refuse(f"the mark {NAME} takes settings by name, such as dialect='cosmos': {mark.args!r}")
        settings.update(mark.kwargs)
    return settings


def refuse(reason: str) -> NoReturn:
    """Fails the test with the reason alone: where the mistake is found is of no use to who has made it."""
    pytest.fail(reason, pytrace=False)


def start(settings: dict[str, Any]) -> "RunningServer":
    """Starts a server. settings: as for `start_server`; wrong ones, and files that cannot be used, fail the test."""
    import mongottl
    from mongottl.config import check_names

    try:
        check_names(settings.keys() - {"config", "frozen"})
    except TypeError as error:
        reason = str(error)
    else:
        try:
            return mongottl.start_server(**settings)
        except mongottl.SettingError as error:
            reason = str(error)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise  # callers know who has it
            reason = str(error)
    # After the blocks, so that it does not show what was caught as well.
    refuse(f"the settings of {NAME}: {reason}")


def ini_settings(config: pytest.Config) -> dict[str, object]:
    """The settings of pytest's configuration. pytest.UsageError for a line that is none.

    data_dir: True, as in the mark, for a folder of each test.
    """
    from mongottl.config import SETTINGS

    known = {setting.field: setting for setting in SETTINGS}
    settings: dict[str, object] = {}
    for line in config.getini(NAME):
        name, _, value = (part.strip() for part in line.partition("="))
        try:
            if name == "frozen":
                settings[name] = known["freeze_clock"].parse(value)
            elif name == "data_dir" and value.lower() == "true":
                settings[name] = True
            elif name in known:
                settings[name] = known[name].parse(value)
            else:
                raise ValueError("there is no such setting")
        except ValueError as error:
            raise pytest.UsageError(f"pytest's setting {NAME}: {line!r}: {error}") from None
    return settings
