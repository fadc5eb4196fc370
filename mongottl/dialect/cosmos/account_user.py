"""The user of a Cosmos DB account (`--cosmos-account`): the account's name, with its keys as two passwords.

    primary key     may do everything
    read-only key   may read

The keys come from the environment (MONGOTTL_COSMOS_KEY), from `--cosmos-key-file`, or are made at the first start and
kept in the data directory; without one, each start makes new ones. The read-only one is the file's second line; without
such a line it is derived from the primary one.

Source: Microsoft's "Connect a MongoDB application to Azure Cosmos DB": user and password of the connection string.
"""

import base64
import hashlib
import hmac
import os
from pathlib import Path
from typing import Final
from urllib.parse import quote

from mongottl.commands.dialect_hooks import FirstUsers
from mongottl.config import ServerConfig
from mongottl.document.walk import get_value
from mongottl.errors import CommandError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.service.service import ServiceContext
from mongottl.security.names import UserName
from mongottl.security.scram import MECHANISMS, make_credentials, salt_of
from mongottl.server.first_user import FirstUserError

_DATABASE: Final = "admin"
_KEY_BYTES: Final = 64
_KEYS_NAME: Final = "cosmos-keys"
_READ_ONLY_SUFFIX: Final = " (read-only key)"


class AccountKeys:
    """The keys of an account, in base64. The read-only one is derived from the primary one if it is empty."""

    def __init__(self, primary: str, read_only: str = "") -> None:
        self.primary = primary
        derived = hmac.digest(primary.encode(), b"read-only key", hashlib.sha512)
        self.read_only: str = read_only or base64.b64encode(derived).decode()


class AccountUsers(FirstUsers):
    """The account with its two keys."""

    def uri_options(self, replica_set: str | None, is_encrypted: bool) -> list[str]:
        """As the portal shows them."""
        options = ["ssl=true"] if is_encrypted else []
        if replica_set is not None:
            options.append(f"replicaSet={quote(replica_set, safe='')}")
        return [*options, "retrywrites=false", "maxIdleTimeMS=120000", f"appName=@{quote(self.name, safe='')}@"]


def make_account_users(service: ServiceContext) -> AccountUsers | None:
    """Makes the user of the account, or gives it the keys; None without an account. FirstUserError for a bad file of
    keys, or if no login can have such a name or key."""
    name = service.config.cosmos_account
    if name is None:
        return None
    keys = _keys(service.config, service.engine.folder)
    try:
        _make(service, name, keys)
    except CommandError as error:
        raise FirstUserError(f"cannot make the account {name}: {error.message}") from error
    return AccountUsers(name, keys.primary, keys.read_only)


def _keys(config: ServerConfig, folder: str | None) -> AccountKeys:
    """folder: that of the data, where keys that were made are kept; None if they are lost with the data."""
    if config.cosmos_key_file is not None:
        return _read(Path(config.cosmos_key_file))
    if config.cosmos_key is not None:
        return AccountKeys(config.cosmos_key)
    made = base64.b64encode(os.urandom(_KEY_BYTES)).decode()
    if folder is None:
        return AccountKeys(made)
    path = Path(folder) / _KEYS_NAME
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(f"{made}\n{AccountKeys(made).read_only}\n")
    return _read(path)


def _read(path: Path) -> AccountKeys:
    """The keys of a file: the primary one in its first line, the read-only one in its second, if it has one."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise FirstUserError(f"cannot read the key file {path}: {why}") from error
    keys = [line.strip() for line in lines if line.strip()]
    if not keys:
        raise FirstUserError(f"the key file {path} is empty")
    return AccountKeys(*keys[:2])


def _make(service: ServiceContext, name: str, keys: AccountKeys) -> None:
    reader = name + _READ_ONLY_SUFFIX
    _put_user(service, name, keys.primary, "root")
    _put_user(service, reader, keys.read_only, "readAnyDatabase")
    accounts = service.accounts
    user = UserName(name, _DATABASE)
    for mechanism, credential in _credentials(service, user, keys.read_only).items():
        accounts.second_credentials[user, mechanism] = credential
    accounts.second_users[user] = UserName(reader, _DATABASE)
    # A key is the account's, not a database's: Microsoft's samples for Mongoose, for instance, name the database of the
    # application in the connection string, and with it that of the login.
    accounts.users_of_any_database[name] = user


def _credentials(service: ServiceContext, user: UserName, key: str) -> dict[str, bytes]:
    """What the user would have for this key, by mechanism, with the salts that the user has."""
    has = {mechanism: service.accounts.credential(user, mechanism) for mechanism in MECHANISMS}
    salts = {mechanism: salt_of(credential) for mechanism, credential in has.items()}
    iterations = {mechanism: _iterations(credential) for mechanism, credential in has.items()}
    made = make_credentials(user.name, key, MECHANISMS, iterations, salts=salts)
    return {mechanism: credential for mechanism, credential in made.items() if isinstance(credential, bytes)}


def _iterations(credential: bytes) -> int:
    iterations = get_value(credential, "iterationCount")
    assert isinstance(iterations, int)
    return int(iterations)


def _put_user(service: ServiceContext, name: str, key: str, role: str) -> None:
    """Makes a user, or gives it this key if it has another one.

    The key that it has is not given again: other servers of its store have made the credentials of the read-only key
    with its salts.
    """
    from mongottl.commands.security.users import CreateUserRequest, UpdateUserRequest, create_user, update_user

    op = OperationContext(service, ClientInfo(0, "", ""), _DATABASE)
    accounts = service.accounts
    user = UserName(name, _DATABASE)
    if accounts.user_record(user) is None:
        try:
            create_user(op, CreateUserRequest(name, [role], key))
            return
        except CommandError:
            if accounts.user_record(user) is None:
                raise
            # Else another server of the store has made it meanwhile.
    if any(accounts.credential(user, each) != made for each, made in _credentials(service, user, key).items()):
        update_user(op, UpdateUserRequest(name, key))
