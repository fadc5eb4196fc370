"""The messages of the wire protocol and their constants.

Every message starts with a header of four little-endian int32: messageLength (including the header), requestID,
responseTo, opCode. Documents in messages are raw BSON. `decode` and `encode` have the layout of messages in bytes.
"""

from typing import Final, TypeAlias

HEADER_SIZE: Final = 16
# mongod's maxMessageSizeBytes, header included: the longest message that either side may send.
MAX_MESSAGE_SIZE: Final = 48_000_000
# The longest message that a server takes of the opcodes before OP_MSG: drivers fill a document of 16 MB and 16 KB, and
# what is a little longer is a command that is refused.
MAX_LEGACY_SIZE: Final = 17 * 1024 * 1024
# The longest name in a message: of a document sequence, which is a field of a command, or of a collection, which has
# 255 bytes at most.
MAX_NAME_BYTES: Final = 1024
# Commands take one or two document sequences, and each takes memory and time even if it is empty.
MAX_SEQUENCES: Final = 64

OP_REPLY: Final = 1
OP_QUERY: Final = 2004
OP_GET_MORE: Final = 2005
OP_KILL_CURSORS: Final = 2007
OP_COMPRESSED: Final = 2012
OP_MSG: Final = 2013

OPCODE_NAMES: Final[dict[int, str]] = {
    1: "OP_REPLY",
    1000: "OP_MSG (legacy)",
    2001: "OP_UPDATE",
    2002: "OP_INSERT",
    2003: "RESERVED",
    2004: "OP_QUERY",
    2005: "OP_GET_MORE",
    2006: "OP_DELETE",
    2007: "OP_KILL_CURSORS",
    2010: "OP_COMMAND",
    2011: "OP_COMMANDREPLY",
    2012: "OP_COMPRESSED",
    2013: "OP_MSG",
}

# Flag bits of OP_MSG. Bits 0 to 15 are required: a receiver that does not know one must refuse the message.
CHECKSUM_PRESENT: Final = 1 << 0
MORE_TO_COME: Final = 1 << 1
EXHAUST_ALLOWED: Final = 1 << 16
# Bytes of the CRC-32C at the end of a message with the flag CHECKSUM_PRESENT.
CHECKSUM_SIZE: Final = 4
# The required bits that are not defined.
UNKNOWN_REQUIRED_FLAGS: Final = 0xFFFF & ~(CHECKSUM_PRESENT | MORE_TO_COME)

# The messages with which drivers wrote and read documents before there were commands for it: `insert`, `update` and
# `delete` came with MongoDB 2.6, `find` and `getMore` with 3.2, OP_MSG with 3.6, and MongoDB 5.1 has removed them.
LEGACY_OPCODES: Final = frozenset((2001, 2002, OP_GET_MORE, 2006, OP_KILL_CURSORS))
OLD_DRIVER: Final = (
    "MongoDB has removed it in version 5.1, and only drivers of before MongoDB 3.6 (2017) send it: use a newer driver"
)

# Flag bits of OP_REPLY. mongod has set AwaitCapable in every reply since 1.6. QueryFailure: the one document is an
# error, with its text in `$err`.
REPLY_QUERY_FAILURE: Final = 1 << 1
REPLY_AWAIT_CAPABLE: Final = 1 << 3

# Compressor ids of OP_COMPRESSED; NOT_COMPRESSED is ours, for a message that came without that wrapper.
NOT_COMPRESSED: Final = -1
COMPRESSOR_NOOP: Final = 0
COMPRESSOR_SNAPPY: Final = 1
COMPRESSOR_ZLIB: Final = 2
COMPRESSOR_ZSTD: Final = 3


def opcode_name(opcode: int) -> str:
    """`OP_INSERT (2002)` for a number that the protocol knows, else `unknown opcode 42`."""
    name = OPCODE_NAMES.get(opcode)
    return f"unknown opcode {opcode}" if name is None else f"{name} ({opcode})"


class NeedData:
    """The type of NEED_DATA."""

    def __repr__(self) -> str:
        return "NEED_DATA"


# What `next_message` returns while the bytes received so far are not a whole message.
NEED_DATA: Final = NeedData()


class OpMsg:
    """One OP_MSG, request or reply.

    flags: all 32 flag bits as received (signed, as every int32 of the protocol); the properties name the known ones.
    body: the document of the one kind 0 section.
    sequences: (identifier, documents) of each kind 1 section, in order, with distinct identifiers; usually empty.
    compressor: id of the compressor around the message, or NOT_COMPRESSED. A reply uses its request's.
    size_bytes: of the whole message before compression, where it was received; else 0.
    """

    def __init__(
        self,
        request_id: int,
        response_to: int,
        flags: int,
        body: bytes,
        sequences: list[tuple[str, list[bytes]]],
        compressor: int = NOT_COMPRESSED,
        size_bytes: int = 0,
    ) -> None:
        self.request_id = request_id
        self.response_to = response_to
        self.flags = flags
        self.body = body
        self.sequences = sequences
        self.compressor = compressor
        self.size_bytes = size_bytes

    @property
    def checksum_present(self) -> bool:
        """The message carried a CRC-32C, which was right; the reply to it should carry one too."""
        return self.flags & CHECKSUM_PRESENT != 0

    @property
    def more_to_come(self) -> bool:
        """Request: the client wants no reply. Reply: another reply follows without another request."""
        return self.flags & MORE_TO_COME != 0

    @property
    def expects_reply(self) -> bool:
        return self.flags & MORE_TO_COME == 0

    @property
    def exhaust_allowed(self) -> bool:
        """Request: the client accepts several replies, all but the last with MORE_TO_COME."""
        return self.flags & EXHAUST_ALLOWED != 0

    def __repr__(self) -> str:
        return (
            f"OpMsg(request_id={self.request_id}, response_to={self.response_to}, flags={self.flags:#x}, "
            f"body={len(self.body)} bytes, sequences={[(name, len(docs)) for name, docs in self.sequences]})"
        )


class OpQuery:
    """One OP_QUERY; since MongoDB 5.1 it is used only for the commands with which a connection begins.

    namespace: `<database>.$cmd` for a command.
    fields: the optional returnFieldsSelector document, or None.
    size_bytes: of the whole message before compression, where it was received; else 0.
    """

    expects_reply = True

    def __init__(
        self,
        request_id: int,
        response_to: int,
        flags: int,
        namespace: str,
        skip: int,
        limit: int,
        query: bytes,
        fields: bytes | None,
        compressor: int = NOT_COMPRESSED,
        size_bytes: int = 0,
    ) -> None:
        self.request_id = request_id
        self.response_to = response_to
        self.flags = flags
        self.namespace = namespace
        self.skip = skip
        self.limit = limit  # numberToReturn: -1 or 1 for a command
        self.query = query
        self.fields = fields
        self.compressor = compressor
        self.size_bytes = size_bytes

    @property
    def is_command(self) -> bool:
        """Whether it runs a command. Else it reads a collection, and was replaced by the command `find`."""
        return self.namespace.partition(".")[2] == "$cmd"

    def __repr__(self) -> str:
        return f"OpQuery(request_id={self.request_id}, namespace={self.namespace!r}, query={len(self.query)} bytes)"


class OpGetMore:
    """One OP_GET_MORE, which the command `getMore` replaced; its reply is an OP_REPLY."""

    expects_reply = True

    def __init__(self, request_id: int, response_to: int, compressor: int = NOT_COMPRESSED) -> None:
        self.request_id = request_id
        self.response_to = response_to
        self.compressor = compressor

    def __repr__(self) -> str:
        return f"OpGetMore(request_id={self.request_id})"


class OpKillCursors:
    """One OP_KILL_CURSORS, which has no reply. cursor_ids: of the cursors to close."""

    expects_reply = False

    def __init__(
        self, request_id: int, response_to: int, cursor_ids: list[int], compressor: int = NOT_COMPRESSED
    ) -> None:
        self.request_id = request_id
        self.response_to = response_to
        self.cursor_ids = cursor_ids
        self.compressor = compressor

    def __repr__(self) -> str:
        return f"OpKillCursors(request_id={self.request_id}, {len(self.cursor_ids)} cursors)"


LegacyRequest: TypeAlias = OpQuery | OpGetMore | OpKillCursors
# What a server receives.
Request: TypeAlias = OpMsg | LegacyRequest


class OpReply:
    """One OP_REPLY, which only clients receive: the answer to an OP_QUERY."""

    def __init__(
        self,
        request_id: int,
        response_to: int,
        flags: int,
        cursor_id: int,
        starting_from: int,
        documents: list[bytes],
        compressor: int = NOT_COMPRESSED,
    ) -> None:
        self.request_id = request_id
        self.response_to = response_to
        self.flags = flags
        self.cursor_id = cursor_id
        self.starting_from = starting_from
        self.documents = documents
        self.compressor = compressor

    def __repr__(self) -> str:
        return f"OpReply(request_id={self.request_id}, response_to={self.response_to}, {len(self.documents)} documents)"
