"""What a server of a store asks the others to do: to end operations and sessions, which each of them has of its own.

    {killOp: <opid>, node: <number>}      the operation of one of them
    {killSessions: <BinData>}             sessions, as `session_patterns.parts_of` names them, with their operations
    {endSessions: <BinData>}              the same without these
    {abortTransaction: <BinData>, txnNumber: <number>}
                                          the transaction of a session, by its key, that is open with this number, or an
                                          older one

and what it says itself:

    {expiredDeletedBy: <number>}          `service.leaving`

Whoever asks has checked that its client may, and waits until it is done: then what the sessions have written in
transactions is in nobody's way any more. What has ended meanwhile is not missed.
"""

import math
from typing import Final

from mongottl.document.build import encode
from mongottl.document.freeing import LongList
from mongottl.document.types import BinData, Int64
from mongottl.document.walk import get_value
from mongottl.exec.operation.transaction_unit import abort_open
from mongottl.exec.running.steps import Wait
from mongottl.exec.service.leaving import note_end
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.sessions.session_patterns import SessionPatterns, from_part, parts_of
from mongottl.exec.sessions.transactions import Transaction
from mongottl.storage.errors import StoreUnreachable
from mongottl.storage.nodes import LEASE_S, MAX_MESSAGE_BYTES

_KILL: Final = "killSessions"
_END: Final = "endSessions"
_ABORT: Final = "abortTransaction"
# Seconds between two looks whether a statement has ended.
_LOOK_S: Final = 0.01
# Beside the patterns in a message.
_FRAME_BYTES: Final = 100
# Sessions that are compared with patterns in one step.
_MATCHED_AT_ONCE: Final = 1_000


def kill_elsewhere(service: ServiceContext, node: int, opid: int) -> bool:
    """Has another server kill an operation; False if there is none of this number. EngineUnavailable."""
    nodes = service.engine.nodes
    if nodes is None or node not in [each.number for each in nodes.all()]:
        return False
    nodes.send(encode({"killOp": opid, "node": Int64(node)}))
    return True


def end_sessions_elsewhere(service: ServiceContext, sessions: SessionPatterns | list[bytes], kills: bool) -> bool:
    """Has the other servers of the store end sessions, and with `kills` their operations; does nothing where there are
    none. Whether all have said that they have done it. EngineUnavailable.

    sessions: those that match, or the keys of these."""
    nodes = service.engine.shared_nodes
    is_done = True
    if nodes is not None and (kills or len(nodes.latest) > 1):
        most_bytes = MAX_MESSAGE_BYTES - _FRAME_BYTES
        parts = parts_of(sessions, most_bytes) if isinstance(sessions, list) else sessions.in_parts(most_bytes)
        for part in parts:
            is_done &= nodes.send(encode({_KILL if kills else _END: BinData(part, 0)}))
    return is_done


def abort_elsewhere(service: ServiceContext, key: bytes, number: int) -> None:
    """Has the other servers of the store abort the transaction of a session, by its key, with this or a lower number;
    what one of them is committing is committed then. Servers that have lost their places cannot commit it any more.
    Does nothing where there are none. EngineUnavailable; StoreUnreachable if one does not answer."""
    nodes = service.engine.shared_nodes
    service.transactions.note_ended_elsewhere(key, number)
    if nodes is not None and not nodes.send(encode({_ABORT: BinData(key, 0), "txnNumber": Int64(number)})):
        raise StoreUnreachable("another server does not say whether it has ended the transaction")


def obey(service: ServiceContext, message: bytes) -> None:
    """Does what another server asks. It may wait."""
    nodes = service.engine.nodes
    opid = get_value(message, "killOp")
    if isinstance(opid, int) and nodes is not None and get_value(message, "node") == nodes.number:
        service.operations.kill(opid)
    note_end(service, message)
    key = get_value(message, _ABORT)
    number = get_value(message, "txnNumber")
    if isinstance(key, BinData) and isinstance(number, int):
        service.transactions.note_ended_elsewhere(key.data, number)
        latest = service.transactions.latest(key.data)
        if latest is not None and latest.in_progress and latest.number <= number:
            abort_open(service, key.data)
            _await_ends(service, [latest], math.inf)  # who asks counts on its end
    for name in (_KILL, _END):
        part = get_value(message, name)
        if isinstance(part, BinData):
            _end_matching(service, from_part(part.data), kills=name == _KILL)


def _end_matching(service: ServiceContext, patterns: SessionPatterns, kills: bool) -> None:
    ended: list[Transaction] = []
    for key in matching_sessions(service, patterns):
        latest = service.transactions.latest(key)
        if latest is not None and latest.in_progress:
            ended.append(latest)
        end_session(service, key, kills)
    _await_ends(service, ended, LEASE_S)


def _await_ends(service: ServiceContext, ended: list[Transaction], seconds: float) -> None:
    """Waits until nothing that these transactions have written is in anybody's way, or these seconds are over."""
    until_s = service.clock.monotonic_s() + seconds
    for transaction in ended:
        # At the end of its statement, if one is under way.
        while transaction.in_progress and service.clock.monotonic_s() < until_s:
            service.stacks.wait(Wait(_LOOK_S))
        transaction.data.await_end()


def matching_sessions(service: ServiceContext, patterns: SessionPatterns) -> list[bytes]:
    """The keys of the sessions of this server that match."""
    found: list[bytes] = LongList()
    for number, session in enumerate(service.sessions.all(), 1):
        if patterns.matches(session.key):
            found.append(session.key)
        if number % _MATCHED_AT_ONCE == 0:
            service.stacks.give_way()
    return found


def end_session(service: ServiceContext, key: bytes, kills: bool) -> None:
    """Ends a session; with `kills` its operations, too."""
    if kills:
        service.operations.kill_of_session(key)
    abort_open(service, key)
    service.sessions.end(key)
    service.cursors.close_where_session(key)
