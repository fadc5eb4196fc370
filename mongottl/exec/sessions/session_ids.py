"""What identifies a logical session: the UUID that its client has chosen, and a digest of its user.

    lsid: {id: UUID("…")}  as clients send it            lsid: {id: UUID("…"), uid: BinData(0, "…")}  as it is shown
                  │                                                     ▲
                  └──► key: the 16 bytes of the UUID, then the 32 of ───┘
                       the user's SHA-256, or of nobody's

So two users cannot use each other's sessions, whatever UUIDs they send.

Source: the driver specification "Driver Sessions"; MongoDB's manual, "Server Sessions" and `$listSessions`.
"""

import struct
from typing import Final

from mongottl.document.bson_field import SESSION_USER, missing_field, read_known, read_options, wrong_type
from mongottl.document.build import encode
from mongottl.document.types import BinData, Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.security.accounts import Login
from mongottl.security.names import NOBODY, UserName

_UUID_SUBTYPE: Final = 4
_UUID_BYTES: Final = 16
DIGEST_BYTES: Final = 32
_NOBODY: Final = NOBODY.digest
# The last two are those of the sessions that mongod's members use among themselves.
_FIELDS: Final = ("id", "uid", "txnNumber", "txnUUID")

# What drivers send: {id: UUID} and nothing else.
_PLAIN_HEAD: Final = b"\x05id\0" + struct.pack("<i", _UUID_BYTES) + b"\x04"
_PLAIN_BYTES: Final = 4 + len(_PLAIN_HEAD) + _UUID_BYTES + 1
_UUID_AT: Final = 4 + len(_PLAIN_HEAD)


def session_key(lsid: bytes, login: Login | None, name: str = "lsid") -> bytes:
    """The key of the session that a client means.

    name: of the field, for errors: TypeMismatch (14), 40414 without `id`, 40415 for an unknown field, 40413 for a
    duplicate, InvalidOptions (72) for the sessions that mongod's members use among themselves, Unauthorized (13) for
    the `uid` of another user.
    """
    digest = _NOBODY if login is None else login.digest
    if len(lsid) == _PLAIN_BYTES and lsid[4:_UUID_AT] == _PLAIN_HEAD:
        return lsid[_UUID_AT:-1] + digest
    return _parsed_key(lsid, digest, name, login is not None)


def _parsed_key(lsid: bytes, digest: bytes, name: str, has_login: bool) -> bytes:
    identifier = b""
    for field, value in read_known(name, lsid, _FIELDS).items():
        if field == "id":
            identifier = read_uuid(f"{name}.id", value)
        elif field == "uid":
            uid = read_digest(f"{name}.uid", value)
            if has_login and uid != digest:
                raise CommandError(ErrorCode.Unauthorized, "Unauthorized to set user digest in LogicalSessionId")
            digest = uid
        else:
            raise CommandError(ErrorCode.InvalidOptions, "Internal sessions are only allowed for internal clients")
    if not identifier:
        raise missing_field(f"{name}.id")
    return identifier + digest


def read_uuid(name: str, value: Value) -> bytes:
    """The bytes of a UUID. TypeMismatch (14)."""
    if not isinstance(value, BinData):
        raise wrong_type(name, value, "binData")
    if value.subtype != _UUID_SUBTYPE or len(value.data) != _UUID_BYTES:
        raise CommandError(ErrorCode.TypeMismatch, f"BSON field '{name}' must be binary data with the subtype UUID (4)")
    return value.data


def read_digest(name: str, value: Value) -> bytes:
    """The bytes of a SHA-256 digest. TypeMismatch (14)."""
    if not isinstance(value, BinData):
        raise wrong_type(name, value, "binData")
    if len(value.data) != DIGEST_BYTES:
        raise CommandError(ErrorCode.TypeMismatch, f"BSON field '{name}' must have {DIGEST_BYTES} bytes")
    return value.data


def shown_id(key: bytes) -> bytes:
    """`{id, uid}` of a session's key."""
    return encode({"id": BinData(key[:_UUID_BYTES], _UUID_SUBTYPE), "uid": BinData(key[_UUID_BYTES:], 0)})


def digest_of(key: bytes) -> bytes:
    """The digest of the user whose session has this key."""
    return key[_UUID_BYTES:]


def read_user(name: str, value: Value) -> UserName:
    """A user as `{user, db}`. TypeMismatch (14), 40414 for a missing field, 40415 for an unknown one."""
    if not isinstance(value, bytes):
        raise wrong_type(name, value, "object")
    given = read_options(name, value, SESSION_USER)
    for field in ("user", "db"):
        if field not in given:
            raise missing_field(f"{name}.{field}")
    return UserName(str(given["user"]), str(given["db"]))
