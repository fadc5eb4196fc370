"""The user that `--user` names: made at start with the role `root`, to log in with and to make the others."""

from mongottl.config import ServerConfig
from mongottl.errors import CommandError
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.service.service import ServiceContext
from mongottl.security.names import UserName
from mongottl.server.log import Log

_DATABASE = "admin"


class FirstUserError(OSError):
    """The user cannot be made. The text says why."""


def create_first_user(service: ServiceContext, log: Log) -> None:
    """Makes the user, unless it exists. FirstUserError for settings that cannot be used."""
    config = service.config
    if config.user is None:
        return
    password = first_password(config)
    if service.accounts.user_record(UserName(config.user, _DATABASE)) is not None:
        log.info("access", "The user exists already; its password is not changed", user=config.user)
        return
    if password is None:
        raise FirstUserError(f"the user {config.user} does not exist yet, and no password is given to make it with")
    from mongottl.commands.security.users import CreateUserRequest, create_user

    op = OperationContext(service, ClientInfo(0, "", ""), _DATABASE)
    try:
        create_user(op, CreateUserRequest(config.user, ["root"], password))
    except CommandError as error:
        if service.accounts.user_record(UserName(config.user, _DATABASE)) is not None:
            return  # another server has made it meanwhile
        raise FirstUserError(f"cannot make the user {config.user}: {error.message}") from error


def first_password(config: ServerConfig) -> str | None:
    """The password of the user that `--user` names, or None. FirstUserError if its file cannot be read."""
    if config.password_file is None:
        return config.password
    try:
        with open(config.password_file, encoding="utf-8") as file:
            return file.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise FirstUserError(f"cannot read the password file {config.password_file}: {why}") from error
