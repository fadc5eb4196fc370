"""Random commands, a little of what `scripts/fuzz` does at length: no InternalError, and the
server and its indexes are intact afterwards.

The seed is fixed, so that a failure comes from the change that is tested; `MONGOTTL_FUZZ_SEED` takes another one.
"""

import os
import socket

import bson
import pytest

import mongottl
from mongottl.commands import COMMANDS
from mongottl.wire.connection import ClientWireConnection
from mongottl.wire.encode import encode_request
from mongottl.wire.messages import NeedData, OpMsg
from tests.fuzz import grammar
from tests.fuzz.cli import Run
from tests.fuzz.values import Node, Random, decode, encode, show
from tests.waiting import PATIENCE_S

SEED = int(os.environ.get("MONGOTTL_FUZZ_SEED", "7"))
_ROUNDS = 25
_SECONDS = 40.0
_MESSAGES = 300
# Left out, since they may wait in real time for something that never happens.
_WAITING = ("hello", "isMaster", "getMore")


@pytest.mark.slow
def test_random_commands_in_process() -> None:
    print(f"seed {SEED}; repeat with: scripts/fuzz --seed {SEED}")
    run = Run(SEED)
    run.go_on(_SECONDS, rounds=_ROUNDS)
    assert not run.failures, "\n\n".join(failure.describe() for failure in run.failures.values())
    assert run.sent > 400


@pytest.mark.slow
def test_random_commands_through_a_socket() -> None:
    """Each is answered on the one connection that is there, and so is a ping on another afterwards."""
    rng = Random(SEED)
    with mongottl.start_server(enable_test_commands=True, quiet=True) as server:
        _send(server.port, [decode(bson.encode({"insert": "c", "documents": [{"a": n, "n": n} for n in range(20)]}))])
        commands: list[Node] = []
        while len(commands) < _MESSAGES:
            command = grammar.command(rng) if rng.random() < 0.3 else grammar.focused_command(rng)
            if command.pairs[0][0] not in _WAITING:
                commands.append(command)
        for command, reply in _send(server.port, commands):
            assert reply.get("code") != 1, show(command)
        assert [reply.get("ok") for _, reply in _send(server.port, [decode(bson.encode({"ping": 1}))])] == [1.0]


def _send(port: int, commands: list[Node]) -> list[tuple[Node, Node]]:
    """The replies to these commands, sent one after the other on a connection of their own."""
    answered: list[tuple[Node, Node]] = []
    wire = ClientWireConnection()
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        for number, command in enumerate(commands, 1):
            spec = COMMANDS[command.pairs[0][0]]
            database = "admin" if spec.admin_only else "test"
            try:
                body = encode(Node([*command.pairs, ["$db", database]]))
            except ValueError:  # a name with NUL
                continue
            connection.sendall(encode_request(number, body))
            while isinstance(message := wire.next_message(), NeedData):
                data = connection.recv(65536)
                assert data, f"the server hung up at {show(command)}"
                wire.receive_data(data)
            assert isinstance(message, OpMsg)
            answered.append((command, decode(message.body)))
    return answered
