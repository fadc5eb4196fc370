"""The table of an exchange's moves: complete, every state can be reached and left, and nothing else is permitted."""

import ast
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from mongottl.clock import SystemClock
from mongottl.exec.running.signal import Signal
from mongottl.exec.running.stack import Stacks, Steps, StepTimes
from mongottl.exec.running.steps import Wait
from mongottl.server.connection import exchange as module
from mongottl.server.connection.exchange import (
    CLOSE,
    CLOSED,
    EVENTS,
    FAIL,
    HANDSHAKE,
    HTTP,
    IDLE,
    LEAVE,
    MESSAGE,
    MOVES,
    QUEUED,
    RECEIVING,
    STATES,
    STREAMING,
    UNPACKING,
    WAIT,
    Answered,
    AtOnce,
    Closed,
    Driven,
    Event,
    Exchange,
    Failed,
    Handshake,
    Held,
    Idle,
    ImpossibleMoveError,
    Paused,
    Sending,
    State,
)
from mongottl.server.poller import Pause, Poller
from mongottl.wire.messages import OpMsg

REQUEST = OpMsg(1, 0, 0, b"\x05\0\0\0\0", [])
CLOCK = SystemClock()


def begun() -> tuple[Steps[bytes], list[str]]:
    """A command that waits, and what becomes of it."""
    stacks = Stacks(CLOCK.monotonic_s, StepTimes())
    signs: list[str] = []

    def work() -> bytes:
        try:
            stacks.wait(Wait(3600.0))
        finally:
            signs.append("ended")
        return b""

    outcome = stacks.begin(work)
    assert isinstance(outcome, Steps)
    return outcome, signs


def unpaused() -> Pause:
    poller = Poller(CLOCK, Stacks(CLOCK.monotonic_s, StepTimes()))
    poller.pauses = 1
    return Pause(poller, -1, Signal(), lambda: True)


def examples() -> list[State]:
    """One of each state."""
    return [
        HANDSHAKE,
        IDLE,
        RECEIVING,
        QUEUED,
        UNPACKING,
        AtOnce(REQUEST, False),
        Held(REQUEST),
        Paused(REQUEST, begun()[0], unpaused(), False),
        Driven(REQUEST, begun()[0], None),
        Answered(REQUEST, b""),
        STREAMING,
        Sending(b"rest"),
        HTTP,
        Failed(ValueError()),
        CLOSED,
    ]


def test_numbers_are_places() -> None:
    assert [type(state) for state in examples()] == list(STATES)
    assert [state.number for state in examples()] == [*range(len(STATES))]
    assert [event.number for event in EVENTS] == [*range(len(EVENTS))]


def test_the_table_is_complete() -> None:
    declared = {kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, State)}
    assert declared - {State} == set(STATES) == set(MOVES)
    assert {event for event in vars(module).values() if isinstance(event, Event)} == set(EVENTS)
    used = {event for row in MOVES.values() for event in row}
    assert used == set(EVENTS)


def reached_from(first: type[State], leaving_out: tuple[Event, ...] = ()) -> set[type[State]]:
    found = {first}
    waiting = [first]
    while waiting:
        for event, target in MOVES[waiting.pop()].items():
            if target not in found and event not in leaving_out:
                found.add(target)
                waiting.append(target)
    return found


def test_every_state_is_reached() -> None:
    assert reached_from(Handshake) == set(STATES)
    assert reached_from(Idle) == set(STATES) - {Handshake}


def test_every_exchange_can_end_with_a_reply_or_the_connection() -> None:
    """From each state there is a way back to Idle, other than from those that only end the connection."""
    for state in STATES:
        if state.__name__ not in ("Http", "Failed", "Closed"):
            assert Idle in reached_from(state, (FAIL, CLOSE))
        if state is not Closed:
            assert MOVES[state][CLOSE] is Closed
            assert MOVES[state][FAIL] is Failed
    assert MOVES[Closed] == {}


@pytest.mark.parametrize("before", range(len(STATES)), ids=[state.__name__ for state in STATES])
def test_only_what_the_table_has_is_permitted(before: int) -> None:
    permitted = set()
    for event, after in product(EVENTS, range(len(STATES))):
        first, second = examples()[before], examples()[after]
        exchange = Exchange(first)
        try:
            exchange.move(event, second)
        except ImpossibleMoveError as error:
            assert exchange.state is first
            assert event.name in str(error)
            assert type(first).__name__ in str(error)
        else:
            assert exchange.state is second
            permitted.add((event, type(second)))
    assert permitted == set(MOVES[STATES[before]].items())


def test_the_drawing_has_every_state() -> None:
    source = Path(__file__).parents[4] / "mongottl/server/connection/exchange.py"  # compiled, it has no docstring
    docstring = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8")))
    assert docstring is not None
    drawn = set(docstring.replace("►", " ").replace(",", " ").split())
    assert {state.__name__ for state in STATES} <= drawn


END: list[Callable[[Exchange], None]] = [lambda exchange: exchange.close(), lambda exchange: exchange.fail(OSError())]


@pytest.mark.parametrize("end", END, ids=["close", "fail"])
def test_the_end_of_a_connection_ends_its_command(end: Callable[[Exchange], None]) -> None:
    steps, signs = begun()
    exchange = Exchange(AtOnce(REQUEST, False))
    exchange.move(LEAVE, Driven(REQUEST, steps, None))
    end(exchange)
    assert signs == ["ended"]


@pytest.mark.skipif(sys.platform != "linux", reason="pauses need epoll, which is Linux's")
@pytest.mark.parametrize("end", END, ids=["close", "fail"])
def test_the_end_of_a_connection_ends_its_pause(end: Callable[[Exchange], None]) -> None:
    steps, signs = begun()
    pause = unpaused()
    exchange = Exchange(IDLE)
    exchange.move(MESSAGE, AtOnce(REQUEST, False))
    exchange.move(WAIT, Paused(REQUEST, steps, pause, False))
    end(exchange)
    assert signs == ["ended"]
    assert pause.ended


def test_an_error_is_left_to_the_task_once() -> None:
    exchange = Exchange(IDLE)
    error = ValueError()
    exchange.fail(error)
    state = exchange.state
    assert isinstance(state, Failed)
    assert state.error is error
    exchange.close()
    with pytest.raises(ImpossibleMoveError):
        exchange.close()
