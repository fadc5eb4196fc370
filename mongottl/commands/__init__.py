"""The commands: one module a family, each command declared by a decorator above its body (see `registry`).

    crud      reading and writing documents
    ddl       databases, collections, views and indexes
    admin     the server itself
    security  users: logging in, and what is stored of them
    families  which module has which commands; modules are imported when one of their commands is first used
    registry, request, concerns: how commands are declared, how their fields are read, what replies wait for
    access, pipeline_access: what a client must be allowed to do
    query_context, collection_uuid, time_series, listing: checks and parsing shared by several families

Commands turn a typed request into calls of `exec` and a reply. They open no sockets and format no errors.
"""

from mongottl.commands.families import FAMILIES
from mongottl.commands.registry import COMMANDS, UNSUPPORTED_COMMANDS, CommandSpec, Reply

__all__ = ["COMMANDS", "FAMILIES", "UNSUPPORTED_COMMANDS", "CommandSpec", "Reply"]
