"""Log lines: readable ones and mongod's JSON."""

import io
import json
import os
import re
from collections.abc import Iterator
from typing import TextIO

import pytest

from mongottl.clock import iso_date
from mongottl.server.log import MESSAGE_IDS, Log


def text_of(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def test_readable_line() -> None:
    stream = io.StringIO()
    Log("text", stream=stream).info("network", "Connection accepted", "conn3", remote="127.0.0.1:5")
    [line] = text_of(stream)
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z I NETWORK   \[conn3\] Connection accepted  "
        r'{"remote": "127\.0\.0\.1:5"}',
        line,
    )


def test_json_line() -> None:
    stream = io.StringIO()
    Log("json", stream=stream).warning("network", "Protocol error", "conn3", error='"\n')
    [line] = text_of(stream)
    entry = json.loads(line)
    assert list(entry) == ["t", "s", "c", "id", "ctx", "msg", "attr"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", entry.pop("t")["$date"])
    assert entry == {
        "s": "W",
        "c": "NETWORK",
        "id": MESSAGE_IDS["Protocol error"],
        "ctx": "conn3",
        "msg": "Protocol error",
        "attr": {"error": '"\n'},
    }


def test_no_attributes() -> None:
    readable, structured = io.StringIO(), io.StringIO()
    Log("text", stream=readable).error("control", "Stopped")
    Log("json", stream=structured).error("control", "Stopped")
    assert readable.getvalue().endswith(" E CONTROL   [main] Stopped\n")
    assert "attr" not in json.loads(structured.getvalue())


@pytest.mark.parametrize("form", ["text", "json"])
def test_exception_has_its_trace(form: str) -> None:
    stream = io.StringIO()
    log = Log(form, stream=stream)
    try:
        raise KeyError("nothing")
    except KeyError as error:
        log.exception("command", "Internal error", error, command="find")
    assert log.internal_errors == 1
    assert "KeyError: 'nothing'" in stream.getvalue()
    assert len(text_of(stream)) == 1 if form == "json" else len(text_of(stream)) > 3
    recent = log.lines("global")
    assert recent is not None
    assert json.loads(recent[0])["attr"]["command"] == "find"


def test_quiet_leaves_out_what_is_no_warning() -> None:
    stream = io.StringIO()
    log = Log("text", quiet=True, stream=stream)
    log.info("network", "Connection accepted")
    assert stream.getvalue() == ""
    assert log.lines("global") == []
    log.warning("network", "Protocol error")
    log.error("control", "Cannot start")
    assert len(text_of(stream)) == 2


def test_recent_lines_are_bounded() -> None:
    log = Log("json", stream=io.StringIO())
    for n in range(1500):
        log.info("network", "Connection accepted", f"conn{n}")
    recent = log.lines("global")
    assert recent is not None
    assert len(recent) == 1024
    assert json.loads(recent[-1])["ctx"] == "conn1499"
    assert log.lines("startupWarnings") == []
    assert log.lines("nonsense") is None


def test_startup_warnings_are_kept_apart() -> None:
    log = Log("text", stream=io.StringIO())
    log.warning("network", "Protocol error")
    log.startup_warning("control", "Connections are limited", reason="few files")
    warnings = log.lines("startupWarnings")
    assert warnings is not None
    assert [json.loads(line)["attr"] for line in warnings] == [{"reason": "few files"}]


def test_a_reader_that_is_gone_does_no_harm() -> None:
    stream = io.StringIO()
    log = Log("text", stream=stream)
    stream.close()
    log.error("control", "Stopped")


def test_values_that_json_does_not_know() -> None:
    stream = io.StringIO()
    Log("json", stream=stream).info("network", "Connection accepted", remote=b"\xff")
    assert json.loads(stream.getvalue())["attr"] == {"remote": "b'\\xff'"}


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "1970-01-01T00:00:00.000"), (1_700_000_000_007, "2023-11-14T22:13:20.007"), (999, "1970-01-01T00:00:00.999")],
)
def test_dates(ms: int, text: str) -> None:
    assert iso_date(ms) == text


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """The end to read from, and a stream to write to, of a pipe that blocks whoever writes too much."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        yield reader, stream
    os.close(reader)


def read_all(reader: int, log: Log) -> list[str]:
    os.set_blocking(reader, False)
    data = b""
    while True:
        try:
            data += os.read(reader, 1 << 20)
        except BlockingIOError:
            log.drain()
            try:
                data += os.read(reader, 1 << 20)
            except BlockingIOError:
                return data.decode().splitlines()


@pytest.mark.skipif(os.name != "posix", reason="pipes cannot be asked whether they are ready elsewhere")
def test_a_pipe_that_nobody_reads_blocks_nobody(pipe: tuple[int, TextIO]) -> None:
    reader, stream = pipe
    log = Log("text", stream=stream)
    for n in range(20_000):
        log.info("network", "Connection accepted", f"conn{n}", remote="x" * 60)
    dropped = log.dropped_lines
    assert 1000 < dropped < 19_000
    assert not log.drain()
    lines = read_all(reader, log)
    assert len(lines) == 20_000 - dropped
    assert [f"[conn{n}]" in line for n, line in enumerate(lines)] == [True] * len(lines)
    log.info("network", "Connection ended", "conn1")
    told, ended = read_all(reader, log)
    assert f'Log lines were dropped: nobody read the log  {{"lines": {dropped}}}' in told
    assert ended.endswith("[conn1] Connection ended")
    assert log.dropped_lines == 0


@pytest.mark.skipif(os.name != "posix", reason="pipes cannot be asked whether they are ready elsewhere")
def test_long_lines_go_through_a_pipe_in_parts(pipe: tuple[int, TextIO]) -> None:
    reader, stream = pipe
    log = Log("json", stream=stream)
    attributes: dict[str, str] = {f"a{number}": "x" * 15_000 for number in range(20)}
    log.info("network", "Connection accepted", **attributes)
    [line] = read_all(reader, log)
    assert json.loads(line)["attr"] == attributes


@pytest.mark.skipif(os.name != "posix", reason="pipes cannot be asked whether they are ready elsewhere")
def test_a_pipe_whose_reader_has_gone_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        log = Log("text", stream=stream)
        for _ in range(3):
            log.info("network", "Connection accepted")
        assert log.drain()


def test_a_long_text_is_cut_and_the_latest_lines_take_no_more_than_a_reply() -> None:
    log = Log(stream=io.StringIO())
    for number in range(600):
        log.warning("network", "Protocol error", f"conn{number}", error="x" * 3_000_000 if number < 5 else "x" * 16_000)
    lines = log.lines("global")
    assert lines is not None and json.loads(lines[-1])["ctx"] == "conn599"
    assert 7_000_000 < sum(len(line) for line in lines) <= 8 * 1024 * 1024
    log.warning("network", "Protocol error", error="x" * 3_000_000)
    assert json.loads((log.lines("global") or [])[-1])["attr"] == {"error": "x" * 16 * 1024 + "..."}
