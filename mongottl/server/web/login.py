"""Users of the page: HTTP's Basic authentication against the server's users, by the same conversation as a driver's.

    Authorization: Basic …  ──►  saslStart, saslContinue of a client of its own  ──►  ClientInfo with its login

So what counts and what is logged is that of every login: restrictions by address, metrics, the second keys of a Cosmos
DB account. Computing the proof takes some 10 ms of CPU and is done in a thread, at most for two clients at once; a
login is then kept for a minute, or until a user or role is changed. Users are those of the database `admin`.

Source: RFC 7617.
"""

import base64
import binascii
import hmac
import os
from typing import Final

import trio

from mongottl.document.build import encode
from mongottl.document.types import BinData, Value
from mongottl.document.walk import get_value
from mongottl.exec.running.client import ClientInfo
from mongottl.security import scram
from mongottl.security.accounts import Generation
from mongottl.security.names import UserName
from mongottl.server.shell import Shell
from mongottl.server.web.command import run_command
from mongottl.versions import MECHANISM

_DATABASE: Final = "admin"
# Seconds for which a login is valid without checking the password again; the number of logins that are kept.
KEPT_S: Final = 60.0
_MAX_KEPT: Final = 64
_MAX_AT_ONCE: Final = 2
_MAX_CHARACTERS: Final = 2048


class _Proof:
    """The client's side of a conversation, for use in threads. ValueError for what SCRAM cannot express."""

    def __init__(self, mechanism: str, name: str, password: str) -> None:
        from scramp import ScramClient, ScramException

        secret = scram.password_digest(name, password) if mechanism == scram.SHA_1 else password
        try:
            self._client = ScramClient([mechanism], name, secret)
            self.first: str = self._client.get_client_first()
        except ScramException as error:
            raise ValueError(str(error)) from None

    def final(self, challenge: str) -> str:
        """The last message of the client, which proves that it knows the password."""
        from scramp import ScramException

        try:
            self._client.set_server_first(challenge)
            return str(self._client.get_client_final())
        except ScramException as error:
            raise ValueError(str(error)) from None


class Logins:
    """The logins of the page's clients."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._secret = os.urandom(32)
        # By a digest of what the client has sent and of its address: the client, monotonic time of its login, and the
        # generation of users and roles before it.
        self._kept: dict[bytes, tuple[ClientInfo, float, Generation]] = {}
        self._limiter = trio.CapacityLimiter(_MAX_AT_ONCE)

    async def client(self, authorization: str, local: str, remote: str) -> ClientInfo | None:
        """The client that has logged in with these credentials; None if they are none, or wrong.

        authorization: the value of the header. local, remote: "host:port" of the connection's ends.
        """
        given = _credentials(authorization)
        if given is None:
            return None
        now_s = self._shell.clock.monotonic_s()
        address = remote.rpartition(":")[0]
        key = hmac.digest(self._secret, f"{address} {authorization}".encode("utf-8", "surrogatepass"), "sha256")
        known = self._kept.get(key)
        generation = self._shell.service.accounts.generation()
        if known is not None:
            if now_s - known[1] < KEPT_S and known[2] == generation:
                return known[0]
            del self._kept[key]
        client = ClientInfo(0, local, remote)
        client.app_name = "mongottl page"
        async with self._limiter:
            if not await self._log_in(client, *given):
                return None
        if len(self._kept) >= _MAX_KEPT:
            self._kept = {k: kept for k, kept in self._kept.items() if now_s - kept[1] < KEPT_S}
        if len(self._kept) < _MAX_KEPT:
            self._kept[key] = (client, self._shell.clock.monotonic_s(), generation)
        return client

    async def _log_in(self, client: ClientInfo, name: str, password: str) -> bool:
        """Logs a client in; whether that has succeeded."""
        service = self._shell.service
        known = service.accounts.mechanisms(UserName(name, _DATABASE)) or [scram.SHA_256]
        if service.features is not None:
            known = service.features.known(MECHANISM, known)
        mechanism = scram.SHA_256 if scram.SHA_256 in known else scram.SHA_1
        try:
            proof = await trio.to_thread.run_sync(_Proof, mechanism, name, password)
            start: dict[str, Value] = {"saslStart": 1, "mechanism": mechanism, "options": {"skipEmptyExchange": True}}
            challenge = await self._say(client, start, proof.first)
            if challenge is None:
                return False
            final = await trio.to_thread.run_sync(proof.final, challenge)
        except ValueError:
            return False
        return await self._say(client, {"saslContinue": 1, "conversationId": 1}, final) is not None

    async def _say(self, client: ClientInfo, command: dict[str, Value], message: str) -> str | None:
        """What the server answers to a message of the conversation; None if it refuses."""
        body = encode({**command, "payload": BinData(message.encode()), "$db": _DATABASE})
        reply = await run_command(self._shell, client, body)
        payload = get_value(reply, "payload")
        return payload.data.decode() if isinstance(payload, BinData) and get_value(reply, "ok") == 1.0 else None


def _credentials(authorization: str) -> tuple[str, str] | None:
    """Name and password of the header's value."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic" or len(encoded) > _MAX_CHARACTERS:
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (name, password) if name and colon else None
