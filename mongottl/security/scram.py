"""SCRAM-SHA-1 and SCRAM-SHA-256: credentials, and the server's side of a conversation.

    client ── n,,n=ann,r=<nonce> ──►                       set_first
    client ◄── r=<both nonces>,s=<salt>,i=<iterations> ──
    client ── c=biws,r=<both nonces>,p=<proof> ──►         set_final
    client ◄── v=<server's signature> ──

A stored credential is MongoDB's: `{iterationCount, salt, storedKey, serverKey}`, the last three in base64. The password
cannot be computed from it. For SCRAM-SHA-1 MongoDB hashes the MD5 digest of user name and password, for SCRAM-SHA-256
the password itself, prepared by SASLprep (by the library scramp).

A login with an unknown user name takes the same steps as one with a wrong password: salt and keys are then derived from
a secret of this run of the server, so the same name always gets the same salt.

The server's side needs no library. It takes names as they are sent: SASLprep, a character at a time in Python, takes
3 µs for each, and names come from clients that have not logged in. A name that SASLprep refuses is no user's
(`check_user_name`). The bytes of a message are only hashed, compared and searched.

scramp is imported for the first name or password that is not ASCII, because that takes 0.1 s.

Source: RFC 5802, RFC 7677; the driver specifications' "Authentication".
"""

import base64
import hashlib
import hmac
import os
from typing import Final, NamedTuple

from mongottl.document.build import encode
from mongottl.document.types import Value
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode

SHA_1: Final = "SCRAM-SHA-1"
SHA_256: Final = "SCRAM-SHA-256"
MECHANISMS: Final = (SHA_1, SHA_256)
# mongod's defaults: its parameters scramIterationCount and scramSHA256IterationCount.
# Of the hashes of new passwords, unless `scramIterationCount` and `scramSHA256IterationCount` say otherwise.
ITERATIONS: Final = {SHA_1: 10_000, SHA_256: 15_000}
MIN_ITERATIONS: Final = 5_000
# Together with a counter of four bytes a salt fills one block of the hash function.
_SALT_BYTES: Final = {SHA_1: 16, SHA_256: 28}
_NONCE_BYTES: Final = 24
_HASHES: Final = {SHA_1: "sha1", SHA_256: "sha256"}
# Bytes of a client's message, after base64: mongod takes no longer ones.
MAX_MESSAGE_BYTES: Final = 128 * 1024
# The longest base64 text of such a message.
MAX_MESSAGE_CHARACTERS: Final = (MAX_MESSAGE_BYTES + 2) // 3 * 4
# Of a text that SASLprep changes or refuses. Its NFKC sorts combining marks in a time that grows with the square of
# their number, and no thread runs meanwhile: 20 ms for this length, an hour for two million.
MAX_PREPARED_CHARACTERS: Final = 4096


def _prepared(text: str, what: str) -> str:
    """A text prepared by SASLprep. BadValue (2) for one that it refuses, or of more than `MAX_PREPARED_CHARACTERS`.

    It leaves visible ASCII as it is, so that a text of megabytes takes no time.
    """
    if text.isascii() and text.isprintable():
        return text
    if len(text) > MAX_PREPARED_CHARACTERS:
        raise CommandError(
            ErrorCode.BadValue,
            f"The {what} cannot be used for SCRAM: more than {MAX_PREPARED_CHARACTERS} characters have to be visible "
            "ASCII",
        )
    from scramp import ScramException
    from scramp.utils import saslprep

    try:
        return str(saslprep(text))
    except ScramException as error:
        raise CommandError(ErrorCode.BadValue, f"The {what} cannot be used for SCRAM: {error}") from None


def check_user_name(name: str) -> None:
    """BadValue (2) for a name that `_prepared` refuses: nobody could log in with it."""
    if not _prepared(name, "user name"):
        raise CommandError(ErrorCode.BadValue, "The user name cannot be used for SCRAM: it has no visible characters")


def password_digest(name: str, password: str) -> str:
    """What takes the place of the password in SCRAM-SHA-1, as 32 hexadecimal digits."""
    return hashlib.md5(encode_text(f"{name}:mongo:{password}"), usedforsecurity=False).hexdigest()


def make_credentials(
    name: str,
    password: str,
    mechanisms: tuple[str, ...],
    iterations: dict[str, int],
    digested: bool = False,
    salts: dict[str, bytes] | None = None,
) -> dict[str, Value]:
    """The credentials of a user, by mechanism. It takes some 10 ms of CPU, so call it in another thread.

    iterations: of the hash, by mechanism. digested: whether `password` is already that of `password_digest`; then only
    SCRAM-SHA-1 is possible. salts: by mechanism, by default new ones.
    BadValue (2) for a password that `_prepared` refuses, or a user name (`check_user_name`).
    """
    check_user_name(name)
    credentials: dict[str, Value] = {}
    for mechanism in mechanisms:
        secret = password_digest(name, password) if mechanism == SHA_1 and not digested else password
        salt = os.urandom(_SALT_BYTES[mechanism]) if salts is None else salts[mechanism]
        hash_name, count = _HASHES[mechanism], iterations[mechanism]
        salted = hashlib.pbkdf2_hmac(hash_name, encode_text(_prepared(secret, "password")), salt, count)
        stored_key = hashlib.new(hash_name, hmac.digest(salted, b"Client Key", hash_name)).digest()
        server_key = hmac.digest(salted, b"Server Key", hash_name)
        credentials[mechanism] = encode(_as_stored(count, salt, stored_key, server_key))
    return credentials


def _as_stored(iterations: int, salt: bytes, stored_key: bytes, server_key: bytes) -> dict[str, Value]:
    return {
        "iterationCount": iterations,
        "salt": base64.b64encode(salt).decode("ascii"),
        "storedKey": base64.b64encode(stored_key).decode("ascii"),
        "serverKey": base64.b64encode(server_key).decode("ascii"),
    }


class UnknownUsers:
    """Credentials for user names that do not exist: the same for the same name, and nobody knows a password for it.

    iterations: of the hashes of new passwords, by mechanism.
    """

    def __init__(self, iterations: dict[str, int]) -> None:
        self._secret = os.urandom(32)
        self._iterations = iterations

    def credential(self, user_id: str, mechanism: str) -> bytes:
        """A credential in the form of stored ones."""
        user = hashlib.sha256(encode_text(user_id)).digest()  # once, since a name may be long
        return encode(
            _as_stored(
                self._iterations[mechanism],
                self._derived(user, mechanism, "salt")[: _SALT_BYTES[mechanism]],
                self._derived(user, mechanism, "stored"),
                self._derived(user, mechanism, "server"),
            )
        )

    def _derived(self, user: bytes, mechanism: str, purpose: str) -> bytes:
        """user: a digest of the user's id."""
        seed = hmac.digest(self._secret, f"{purpose}:{mechanism}:".encode("ascii") + user, "sha256")
        return hmac.digest(seed, b"", _HASHES[mechanism]).ljust(_SALT_BYTES[mechanism], b"\0")


def salt_of(credential: bytes) -> bytes:
    """The salt of a stored credential."""
    return _keys(credential).salt


class _Keys(NamedTuple):
    """A stored credential."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class ScramConversation:
    """The server's side of one login. Every failure is AuthenticationFailed (18) with the same text.

    user: the name that the client has given in its first message, unescaped. by_second: whether the client has proved
    that it knows the second password.
    """

    def __init__(self, mechanism: str, first: bytes) -> None:
        self.mechanism = mechanism
        self._header, self._bare, name, self._nonce = _parsed_first(first)
        # To MongoDB, different spellings of a name, which SASLprep would make one, are different users.
        self.user = name.replace("=2C", ",").replace("=3D", "=")
        self.by_second = False
        # What the client signs, without its last message: its first one and the server's.
        self._signed = b""
        self._keys: list[_Keys] = []

    def set_first(self, credential: bytes, second: bytes | None = None) -> bytes:
        """Takes the user's stored credential for this mechanism; the server's first message.

        second: of another password of the same user, with the same salt and iterations, so that the message holds for
        both.
        """
        self._keys = [_keys(one) for one in (credential, second) if one is not None]
        keys = self._keys[0]
        self._nonce += base64.b64encode(os.urandom(_NONCE_BYTES))
        message = b"r=%b,s=%b,i=%d" % (self._nonce, base64.b64encode(keys.salt), keys.iterations)
        self._signed = self._bare + b"," + message
        return message

    def set_final(self, final: bytes) -> bytes:
        """Checks the client's proof; the server's last message, which proves to the client that it knows the user."""
        if len(final) > MAX_MESSAGE_BYTES:
            raise authentication_failed()
        unproved, comma, proof_text = final.rpartition(b",p=")
        channel = b"c=" + base64.b64encode(self._header)
        if not comma or unproved != channel + b",r=" + self._nonce:
            raise authentication_failed()
        try:
            proof = base64.b64decode(proof_text, validate=True)
        except ValueError:
            raise authentication_failed() from None
        name = _HASHES[self.mechanism]
        signed = self._signed + b"," + unproved
        for place, keys in enumerate(self._keys):
            signature = hmac.digest(keys.stored_key, signed, name)
            if len(proof) != len(signature):
                continue
            client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=True))
            if hmac.compare_digest(hashlib.new(name, client_key).digest(), keys.stored_key):
                self.by_second = place > 0
                return b"v=" + base64.b64encode(hmac.digest(keys.server_key, signed, name))
        raise authentication_failed()


def _keys(credential: bytes) -> _Keys:
    keys: list[bytes] = []
    for name in ("salt", "storedKey", "serverKey"):
        text = get_value(credential, name)
        assert isinstance(text, str)
        keys.append(base64.b64decode(text))
    iterations = get_value(credential, "iterationCount")
    assert isinstance(iterations, int)
    return _Keys(keys[0], keys[1], keys[2], int(iterations))


def _parsed_first(first: bytes) -> tuple[bytes, bytes, str, bytes]:
    """(header, message without its header, user name as it is escaped, nonce) of a client's first message.

    The header is `n,,` or `y,,`, since this server binds no channel; between its commas may be `a=`, the user to log in
    as, who must be the same. Extensions after the nonce are signed and have no other effect.
    """
    parts = first.split(b",", 4) if len(first) <= MAX_MESSAGE_BYTES else []
    if len(parts) < 4 or parts[0] not in (b"n", b"y"):
        raise authentication_failed()
    name, nonce = parts[2], parts[3]
    if not name.startswith(b"n=") or not nonce.startswith(b"r=") or len(nonce) < 3 or not _is_visible(nonce):
        raise authentication_failed()
    if parts[1] not in (b"", b"a" + name[1:]):
        raise authentication_failed()
    header = len(parts[1]) + 3
    try:
        return first[:header], first[header:], name[2:].decode(), nonce[2:]
    except UnicodeDecodeError:
        raise authentication_failed() from None


def _is_visible(text: bytes) -> bool:
    """Whether all are characters of ASCII that can be seen."""
    return text.isascii() and text.decode("ascii").isprintable() and b" " not in text


def authentication_failed() -> CommandError:
    return CommandError(ErrorCode.AuthenticationFailed, "Authentication failed.")
