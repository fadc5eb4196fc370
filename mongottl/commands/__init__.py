"""The commands: one module a family, each command declared by a decorator above its body (see `registry`).

Commands turn a typed request into calls of `exec` and a reply. They open no sockets and format no errors.
"""

from mongottl.commands import (
    aggregate,
    bulk_write,
    capped,
    clock,
    collections,
    collmod,
    create,
    cursors,
    databases,
    db_hash,
    delete,
    diagnostics,
    explain,
    handshake,
    indexes,
    insert,
    modify,
    operations,
    parameters,
    plan_cache,
    profile,
    query_settings,
    reads,
    rw_concern_defaults,
    session,
    sizes,
    update,
    validate,
)
from mongottl.commands.registry import COMMANDS, UNSUPPORTED_COMMANDS, CommandSpec, Reply

FAMILIES = (
    aggregate,
    bulk_write,
    capped,
    clock,
    collections,
    collmod,
    create,
    cursors,
    databases,
    db_hash,
    delete,
    diagnostics,
    explain,
    handshake,
    indexes,
    insert,
    modify,
    operations,
    parameters,
    plan_cache,
    profile,
    query_settings,
    reads,
    rw_concern_defaults,
    session,
    sizes,
    update,
    validate,
)

__all__ = ["COMMANDS", "FAMILIES", "UNSUPPORTED_COMMANDS", "CommandSpec", "Reply"]
