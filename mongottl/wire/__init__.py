"""MongoDB's wire protocol without I/O: bytes in, messages out, and back.

`connection` splits a byte stream into messages, `decode` and `encode` know the layout of each message, `messages`
holds their classes and constants, `compression` and `crc32c` what OP_COMPRESSED and checksums need. Nothing here knows
sockets, trio, commands, or what a document contains: a document is bytes whose length fits.

Source: the wire protocol page of MongoDB's manual, and the OP_MSG and OP_COMPRESSED pages of the driver specifications.
"""
