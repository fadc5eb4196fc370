"""Commands that the page runs: through the dispatcher, as those of every client, so that the same is checked, counted
and logged."""

from mongottl.exec.running.client import ClientInfo
from mongottl.server.driving import drive
from mongottl.server.shell import Shell
from mongottl.wire.messages import OpMsg


async def run_command(shell: Shell, client: ClientInfo, body: bytes) -> bytes:
    """The reply to a command, as a document. It lets other tasks run in between."""
    outcome = shell.dispatcher.handle(OpMsg(0, 0, 0, body, [], size_bytes=len(body)), client)
    return await drive(outcome, shell.clock, shell.durability)
