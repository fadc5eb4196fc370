"""The commands: one module a family, each command declared by a decorator above its body (see `registry`).

Commands turn a typed request into calls of `exec` and a reply. They open no sockets and format no errors.
"""

from mongottl.commands import (
    bulk_write,
    capped,
    clock,
    collections,
    collmod,
    create,
    databases,
    db_hash,
    diagnostics,
    explain,
    handshake,
    indexes,
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
    validate,
    writes,
)
from mongottl.commands.registry import COMMANDS, UNSUPPORTED_COMMANDS, CommandSpec, Reply

FAMILIES = (
    bulk_write,
    capped,
    clock,
    collections,
    collmod,
    create,
    databases,
    db_hash,
    diagnostics,
    explain,
    handshake,
    indexes,
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
    validate,
    writes,
)

__all__ = ["COMMANDS", "FAMILIES", "UNSUPPORTED_COMMANDS", "CommandSpec", "Reply"]
