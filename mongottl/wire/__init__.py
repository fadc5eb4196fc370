"""MongoDB's wire protocol without I/O: from received bytes to messages, and from messages to bytes.

    connection   splits a byte stream into messages
    decode       reads the bytes of a message
    long_message decodes a long OP_MSG in steps
    encode       writes the bytes of a message
    messages     the classes and constants of messages
    compression  the compressors of OP_COMPRESSED
    crc32c       the checksum of OP_MSG

Nothing here depends on sockets, trio, commands, or the contents of documents: a document is bytes whose length fits.

Source: the wire protocol page of MongoDB's manual, and the OP_MSG and OP_COMPRESSED pages of the driver specifications.
"""
