"""SCRAM-SHA-1 and SCRAM-SHA-256, by the library scramp: credentials, and the server's side of a conversation.

    client ── n,,n=ann,r=<nonce> ──►                       set_first
    client ◄── r=<both nonces>,s=<salt>,i=<iterations> ──
    client ── c=biws,r=<both nonces>,p=<proof> ──►         set_final
    client ◄── v=<server's signature> ──

A stored credential is MongoDB's: `{iterationCount, salt, storedKey, serverKey}`, the last three in base64. The password
cannot be computed from it. For SCRAM-SHA-1 MongoDB hashes the MD5 digest of user name and password, for SCRAM-SHA-256
the password itself, prepared by SASLprep.

A login with an unknown user name takes the same steps as one with a wrong password: salt and keys are then derived from
a secret of this run of the server, so the same name always gets the same salt.

scramp is imported when it is first needed, because that takes 0.1 s.

Source: RFC 5802, RFC 7677; the driver specifications' "Authentication".
"""

import base64
import hashlib
import hmac
import os
from typing import TYPE_CHECKING, Final

from mongottl.document.build import encode
from mongottl.document.types import Value
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode

if TYPE_CHECKING:
    from scramp import ScramMechanism
    from scramp.core import ScramServer

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

_loaded: Final[dict[str, "ScramMechanism"]] = {}


def is_loaded() -> bool:
    """Whether scramp has been imported."""
    return bool(_loaded)


def load() -> None:
    """Imports scramp; may be called in any thread."""
    from scramp import ScramMechanism

    for name in MECHANISMS:
        _loaded.setdefault(name, ScramMechanism(name))


def _mechanism(name: str) -> "ScramMechanism":
    if not _loaded:
        load()
    return _loaded[name]


def check_user_name(name: str) -> None:
    """BadValue (2) for a name that SASLprep refuses: nobody could log in with it."""
    load()
    from scramp import ScramException
    from scramp.utils import saslprep

    try:
        prepared = saslprep(name)
    except ScramException as error:
        raise CommandError(ErrorCode.BadValue, f"The user name cannot be used for SCRAM: {error}") from None
    if not prepared:
        raise CommandError(ErrorCode.BadValue, "The user name cannot be used for SCRAM: it has no visible characters")


def password_digest(name: str, password: str) -> str:
    """What takes the place of the password in SCRAM-SHA-1, as 32 hexadecimal digits."""
    return hashlib.md5(f"{name}:mongo:{password}".encode(), usedforsecurity=False).hexdigest()


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
    BadValue (2) for a password that SASLprep refuses, or a user name (`check_user_name`).
    """
    load()
    from scramp import ScramException

    check_user_name(name)
    credentials: dict[str, Value] = {}
    for mechanism in mechanisms:
        secret = password_digest(name, password) if mechanism == SHA_1 and not digested else password
        salt = os.urandom(_SALT_BYTES[mechanism]) if salts is None else salts[mechanism]
        try:
            made = _mechanism(mechanism).make_auth_info(secret, iteration_count=iterations[mechanism], salt=salt)
        except ScramException as error:
            raise CommandError(ErrorCode.BadValue, f"The password cannot be used for SCRAM: {error}") from None
        _, stored_key, server_key, count = made
        credentials[mechanism] = encode(_as_stored(count, salt, stored_key, server_key))
    return credentials


def _as_stored(iterations: int, salt: bytes, stored_key: bytes, server_key: bytes) -> dict[str, Value]:
    return {
        "iterationCount": iterations,
        "salt": base64.b64encode(salt).decode(),
        "storedKey": base64.b64encode(stored_key).decode(),
        "serverKey": base64.b64encode(server_key).decode(),
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
        return encode(
            _as_stored(
                self._iterations[mechanism],
                self._derived(user_id, mechanism, "salt")[: _SALT_BYTES[mechanism]],
                self._derived(user_id, mechanism, "stored"),
                self._derived(user_id, mechanism, "server"),
            )
        )

    def _derived(self, user_id: str, mechanism: str, purpose: str) -> bytes:
        seed = hmac.digest(self._secret, f"{purpose}:{mechanism}:{user_id}".encode(), "sha256")
        return hmac.digest(seed, b"", _HASHES[mechanism]).ljust(_SALT_BYTES[mechanism], b"\0")


def salt_of(credential: bytes) -> bytes:
    """The salt of a stored credential."""
    return _keys(credential)[0]


class ScramConversation:
    """The server's side of one login. Every failure is AuthenticationFailed (18) with the same text.

    user: the name that the client has given in its first message, unescaped. by_second: whether the client has proved
    that it knows the second password.
    """

    def __init__(self, mechanism: str, first: bytes) -> None:
        self.mechanism = mechanism
        self._first = _text(first)
        self.user = _user_in(self._first)
        self.by_second = False
        self._nonce = base64.b64encode(os.urandom(_NONCE_BYTES)).decode()
        self._servers: list[ScramServer] = []

    def set_first(self, credential: bytes, second: bytes | None = None) -> bytes:
        """Takes the user's stored credential for this mechanism; the server's first message.

        second: of another password of the same user, with the same salt and iterations, so that the message holds for
        both.
        """
        from scramp import ScramException

        mechanism = _mechanism(self.mechanism)
        message = ""
        try:
            for one in (credential,) if second is None else (credential, second):
                server = mechanism.make_server(lambda _, one=one: _keys(one), s_nonce=self._nonce)
                server.set_client_first(self._first)
                message = str(server.get_server_first())
                self._servers.append(server)
        except ScramException:
            raise authentication_failed() from None
        return message.encode()

    def set_final(self, final: bytes) -> bytes:
        """Checks the client's proof; the server's last message, which proves to the client that it knows the user."""
        from scramp import ScramException

        text = _text(final)
        for place, server in enumerate(self._servers):
            try:
                server.set_client_final(text)
                self.by_second = place > 0
                return str(server.get_server_final()).encode()
            except ScramException:
                continue
        raise authentication_failed()


def _keys(credential: bytes) -> tuple[bytes, bytes, bytes, int]:
    """(salt, stored key, server key, iterations) of a stored credential, as scramp wants them."""
    keys: list[bytes] = []
    for name in ("salt", "storedKey", "serverKey"):
        text = get_value(credential, name)
        assert isinstance(text, str)
        keys.append(base64.b64decode(text))
    iterations = get_value(credential, "iterationCount")
    assert isinstance(iterations, int)
    return keys[0], keys[1], keys[2], int(iterations)


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise authentication_failed() from None


def _user_in(first: str) -> str:
    """The user name of a client's first message, not prepared: to MongoDB, different spellings are different users."""
    parts = first.split(",")
    if len(parts) < 4 or not parts[2].startswith("n="):
        raise authentication_failed()
    return parts[2][2:].replace("=2C", ",").replace("=3D", "=")


def authentication_failed() -> CommandError:
    return CommandError(ErrorCode.AuthenticationFailed, "Authentication failed.")
