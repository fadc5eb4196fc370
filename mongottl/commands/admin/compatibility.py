"""setFeatureCompatibilityVersion: the version whose data format the server keeps.

Here every version has the same format, so the value has no effect but that getParameter shows it.

Source: MongoDB's reference of the command.
"""

from typing import Annotated, Final, NamedTuple

from mongottl.commands.access import on_cluster
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import BOOL_FIELD, TEXT, Field
from mongottl.document.build import encode
from mongottl.document.walk import get_value
from mongottl.errors import CommandError
from mongottl.exec.operation.context import OperationContext
from mongottl.versions import parse_version

# Where the catalog has it.
_ENTRY: Final = "featureCompatibilityVersion"
_INVALID_VERSION: Final = 4926900
_NOT_CONFIRMED: Final = 7369100
_CONFIRMED_SINCE: Final = (7, 0)
# The version before each one, to which it can be set.
_BEFORE: Final[dict[str, str]] = {
    "3.6": "3.4",
    "4.0": "3.6",
    "4.2": "4.0",
    "4.4": "4.2",
    "5.0": "4.4",
    "6.0": "5.0",
    "7.0": "6.0",
    "8.0": "7.0",
    "8.2": "8.0",
}


class SetFeatureCompatibilityVersionRequest(NamedTuple):
    version: Annotated[str, Field("setFeatureCompatibilityVersion", TEXT)]
    confirm: Annotated[bool, Field("confirm", BOOL_FIELD)] = False
    dry_run: Annotated[bool, Field("dryRun", BOOL_FIELD)] = False


@command(
    "setFeatureCompatibilityVersion",
    SetFeatureCompatibilityVersionRequest,
    access=on_cluster("setFeatureCompatibilityVersion"),
    help="Takes the announced version and the one before it, for tools; getParameter shows it.",
    admin_only=True,
    takes_write_concern=True,
)
def set_feature_compatibility_version(op: OperationContext, request: SetFeatureCompatibilityVersionRequest) -> Reply:
    """4926900 for another version than the announced one or the one before it, 7369100 without `confirm: true`, which
    is required since MongoDB 7.0."""
    version = request.version
    announced = op.service.config.announced_version()
    known = [announced, *([_BEFORE[announced]] if announced in _BEFORE else [])]
    if version not in known:
        raise CommandError(
            _INVALID_VERSION,
            f"Invalid feature compatibility version value '{version[:64]}'; expected {' or '.join(reversed(known))}",
        )
    if not request.confirm and parse_version(announced) >= _CONFIRMED_SINCE:
        raise CommandError(
            _NOT_CONFIRMED,
            "Once the feature compatibility version is changed, it may not be possible to go back; run the command"
            " with 'confirm: true'",
        )
    if not request.dry_run and version != compatibility_version(op):
        op.service.catalog.save_server_entry(_ENTRY, encode({"version": version}))
    return {}


def compatibility_version(op: OperationContext) -> str:
    """The version that was set last, if the server that is announced now can have it; else the announced one."""
    announced = op.service.config.announced_version()
    stored = op.service.catalog.server_entry(_ENTRY)
    version = None if stored is None else get_value(stored, "version")
    return version if isinstance(version, str) and version == _BEFORE.get(announced) else announced
