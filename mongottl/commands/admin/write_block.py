"""setUserWriteBlockMode: blocks the writes of users in the whole server, or allows them again.

Source: MongoDB's reference of the command.
"""

from typing import Annotated, NamedTuple

from mongottl.commands.access import on_cluster
from mongottl.commands.registry import Reply, command
from mongottl.commands.request import ONE, STRICT_BOOL, TEXT, Field
from mongottl.document.bson_field import checked_word
from mongottl.document.types import Value
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.state.write_block import REASONS


class SetUserWriteBlockModeRequest(NamedTuple):
    command: Annotated[Value, Field("setUserWriteBlockMode", ONE)]
    blocks: Annotated[bool, Field("global", STRICT_BOOL)]
    reason: Annotated[str, Field("reason", TEXT)] = REASONS[0]


@command(
    "setUserWriteBlockMode",
    SetUserWriteBlockModeRequest,
    access=on_cluster("setUserWriteBlockMode"),
    help="Blocks writes of users outside of admin, config and local, or allows them again.",
    admin_only=True,
    takes_write_concern=True,
)
def set_user_write_block_mode(op: OperationContext, request: SetUserWriteBlockModeRequest) -> Reply:
    """Blocked writes fail with UserWritesBlocked (371), but for users with the action `bypassWriteBlockingMode`.

    BadValue (2) for an unknown reason, IllegalOperation (20) for another one than that of the block.
    """
    op.service.write_block.set(request.blocks, checked_word("setUserWriteBlockMode.reason", request.reason, REASONS))
    return {}
