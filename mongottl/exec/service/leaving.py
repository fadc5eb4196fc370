"""Who of several servers with the same store deletes what has expired when one of them moves the clock of all.

    A    moves the clock ── all know it ── deletes what has expired, counts it ── deleted ──► reply
    B                 left to A ················································· goes on

So the reply of the command says how many documents there were. They are seen by nobody meanwhile. If A ends, or does
not say that it has done it, B goes on.
"""

from contextlib import suppress
from typing import Final

from mongottl.document.build import encode
from mongottl.document.types import Int64
from mongottl.document.walk import get_value
from mongottl.exec.service.service import ServiceContext
from mongottl.storage.errors import EngineUnavailable
from mongottl.storage.nodes import StoreNodes

_MESSAGE: Final = "expiredDeletedBy"


def is_left_to_another(service: ServiceContext) -> bool:
    """Whether deletion is left to another server that has moved the clock."""
    expiry = service.expiry
    if not expiry.left_to:
        return False
    nodes = service.engine.shared_nodes
    if nodes is not None and service.clock.monotonic_s() < expiry.left_until_s:
        for node in nodes.latest:
            if node.number == expiry.left_to:
                if node.is_live:
                    return True
                break
    expiry.left_to = 0
    return False


def end_leaving(nodes: StoreNodes) -> None:
    """Says to the others that what had expired is deleted. Does nothing if the store is away: they go on by and by."""
    with suppress(EngineUnavailable):
        nodes.send(encode({_MESSAGE: Int64(nodes.number)}))


def note_end(service: ServiceContext, message: bytes) -> None:
    """Goes on if a message says that of the server to which deletion was left."""
    number = get_value(message, _MESSAGE)
    if isinstance(number, int) and number == service.expiry.left_to:
        service.expiry.left_to = 0
        service.hooks.wake_reaper()
