"""configureCosmos: changes the Cosmos DB account that the server stands for; for tests, with --enable-test-commands."""

from typing import Annotated, NamedTuple

from mongottl.commands.access import on_cluster
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import DOCUMENT_FIELD, Field
from mongottl.dialect.cosmos.account import Account, AccountSettings
from mongottl.dialect.cosmos.dialect import configure_account, cosmos_of
from mongottl.document.bson_field import unknown_field, wrong_type
from mongottl.document.build import encode
from mongottl.document.types import Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext

_NAMES = ("capabilities", "allow", "refuse")


class ConfigureCosmosRequest(NamedTuple):
    settings: Annotated[bytes, Field("configureCosmos", DOCUMENT_FIELD)]


def account_of(op: OperationContext) -> Account:
    """The account that the server stands for. CommandNotSupported (115) in another dialect."""
    return cosmos_of(op.service).account


@command(
    "configureCosmos",
    ConfigureCosmosRequest,
    access=on_cluster("setParameter"),
    help="Changes the Cosmos DB account that the server stands for, and returns what it was before.",
    admin_only=True,
    test_only=True,
)
def configure_cosmos(op: OperationContext, request: ConfigureCosmosRequest) -> Reply:
    """`{configureCosmos: {capabilities: […], allow: […], backup, throughput, refuse: […], batchText}}` → `{was: {…}}`.

    What is absent stays as it is. `was` has all of them, so that a test can restore them by `{configureCosmos: was}`.
    BadValue (2) for an unknown name, 40415 for an unknown field, TypeMismatch (14).
    """
    account = account_of(op)
    was = _described(account)
    wanted: dict[str, Value] = dict(was)
    for name, value in fields(request.settings):
        if name not in was:
            raise unknown_field(f"configureCosmos.{name}")
        if name in _NAMES:
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise wrong_type(f"configureCosmos.{name}", value, "array of strings")
        elif not isinstance(value, str):
            raise wrong_type(f"configureCosmos.{name}", value, "string")
        wanted[name] = value
    try:
        configure_account(
            op.service,
            AccountSettings(
                _strings(wanted["capabilities"]),
                str(wanted["backup"]),
                _strings(wanted["allow"]),
                str(wanted["throughput"]),
                _strings(wanted["refuse"]),
                str(wanted["batchText"]),
            ),
        )
    except ValueError as error:
        raise CommandError(ErrorCode.BadValue, f"configureCosmos: {error}") from None
    return {"was": encode(was)}


def _described(account: Account) -> dict[str, Value]:
    settings = account.settings
    return {
        "capabilities": _sorted(settings.capabilities),
        "backup": settings.backup,
        "allow": _sorted(settings.allow),
        "throughput": settings.throughput,
        "refuse": _sorted(settings.refuse),
        "batchText": settings.batch_text,
    }


def _sorted(names: frozenset[str]) -> list[Value]:
    return [*sorted(names)]


def _strings(value: Value) -> frozenset[str]:
    assert isinstance(value, list)
    return frozenset(str(item) for item in value)
