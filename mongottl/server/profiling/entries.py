"""What the documents of `system.profile` have in common, and storing them."""

from collections.abc import Iterable
from typing import Final

from mongottl.document.interrupt import MANY_BYTES
from mongottl.document.render import render_document, render_logged
from mongottl.document.splice import frame
from mongottl.document.types import ARRAY, BINARY, CODE, DOCUMENT, STRING, SYMBOL, Value
from mongottl.document.walk import ElementCursor, get_value
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.state.profiler import OFF
from mongottl.exec.unit.written import WrittenCounts
from mongottl.storage.errors import WriteConflict

# Commands that are longer are stored and logged as text, which is cut off.
_MAX_COMMAND_BYTES: Final = 50 * 1024
MAX_LOGGED_BYTES: Final = 10 * 1024
# How often an entry is inserted before it is given up.
_TRIES: Final = 20
# Types of texts, which are cut off.
_TEXTS: Final = (STRING, SYMBOL, CODE)
# The only field of a command that is stored as text.
TRUNCATED: Final = "$truncated"


def store(service: ServiceContext, op: OperationContext, database: str, documents: Iterable[bytes]) -> None:
    """Stores documents in the `system.profile` of a database, while it is profiled. StorageError."""
    # Kept out of the start of the server: what writes documents.
    from mongottl.commands.admin.profile import profile_collection
    from mongottl.exec.write.waiting import await_transaction
    from mongottl.exec.write.writes import insert_document, with_new_id

    own = OperationContext(service, op.client, database)
    for document in documents:
        # Others run in between, and may drop the collection, or turn profiling off.
        if service.profiler.of(database).level == OFF:
            return
        identified = with_new_id(own, document)
        for tries in range(_TRIES):
            try:
                insert_document(own, profile_collection(own), identified)
                break
            except WriteConflict as conflict:  # other servers profile the database, too
                if tries == _TRIES - 1:
                    raise
                await_transaction(own, conflict)


def described_client(op: OperationContext) -> dict[str, Value]:
    """The application and the user of an operation."""
    login = op.client.login
    users: list[Value] = [] if login is None else [{"user": login.user.name, "db": login.user.database}]
    return {
        **({"appName": op.client.app_name} if op.client.app_name else {}),
        "allUsers": users,
        "user": "" if login is None else str(login.user),
    }


def described_reads(keys: int, documents: int) -> dict[str, Value]:
    """How many keys and documents were examined; nothing if that is not known, -1."""
    return {"keysExamined": keys, "docsExamined": documents} if keys >= 0 else {}


def described_writes(kind: str, written: WrittenCounts) -> dict[str, Value]:
    """The numbers of documents that a write has changed. kind: insert, update or delete."""
    if kind == "insert":
        return {"ninserted": written.inserted}
    if kind == "delete":
        return {"ndeleted": written.deleted}
    described: dict[str, Value] = {"nMatched": written.matched, "nModified": written.modified}
    if written.inserted:
        described["nUpserted"] = written.inserted
    return described


def described_time(micros: int, summary: str) -> dict[str, Value]:
    """How long it has taken, and its plans unless there are none."""
    return {"millis": micros // 1000, "planSummary": summary} if summary else {"millis": micros // 1000}


def sent_documents(op: OperationContext, name: str) -> list[bytes]:
    """The documents of a field of the command, in its body or as a document sequence."""
    for identifier, documents in op.command.sequences:
        if identifier == name:
            return documents
    given = get_value(op.command.body, name)
    return [statement for statement in given if isinstance(statement, bytes)] if isinstance(given, list) else []


def shortened_command(command: bytes) -> Value:
    """The command, or the beginning of its text if it is long. Only what may be shown is decoded and rendered."""
    if len(command) <= _MAX_COMMAND_BYTES:
        return command
    return {TRUNCATED: render_logged(_beginning(command, 0, _MAX_COMMAND_BYTES))[:MAX_LOGGED_BYTES]}


def shortened_text(document: bytes) -> str:
    """A document as text, which is cut off if it is long. Only what is shown is decoded and rendered."""
    is_long = len(document) > _MAX_COMMAND_BYTES
    text = render_document(_beginning(document, 0, _MAX_COMMAND_BYTES) if is_long else document)
    return f"{text[:MAX_LOGGED_BYTES]}..." if is_long or len(text) > MAX_LOGGED_BYTES else text


def _beginning(buf: bytes, start: int, most: int) -> bytes:
    """The document or array at `start` without what follows its first `most` bytes, about; a long text is cut off, and
    a long name ends it."""
    shown: list[bytes] = []
    size = 0
    cursor = ElementCursor(buf, start)
    while size < most and cursor.next():
        length = int(cursor.end - cursor.element)
        if int(cursor.value - cursor.element) > most - size:
            break
        head = buf[cursor.element : cursor.value]
        room = most - size
        if length <= room:
            shown.append(cursor.raw_element())
        elif cursor.type_code == DOCUMENT or cursor.type_code == ARRAY:
            shown.append(head + _beginning(buf, int(cursor.value), room))
        elif cursor.type_code in _TEXTS:
            end = int(cursor.value) + 4 + room
            if end < int(cursor.end) - 1:
                while buf[end] & 0xC0 == 0x80:  # within a character
                    end -= 1
                text = buf[cursor.value + 4 : end] + b"\0"
                shown.append(head + len(text).to_bytes(4, "little") + text)
            else:
                shown.append(cursor.raw_element())
        elif cursor.type_code == BINARY:
            data = buf[cursor.value + 4 : cursor.value + 5 + room]
            shown.append(head + (len(data) - 1).to_bytes(4, "little") + data)
        elif length < MANY_BYTES:
            shown.append(cursor.raw_element())
        size += length
    return frame(b"".join(shown))
