"""The commands: one module a family, each command declared by a decorator above its body (see `registry`).

    crud      reading and writing documents
    ddl       databases, collections, views and indexes
    admin     the server itself
    security  users: logging in, and what is stored of them
    registry, request, concerns: how commands are declared, how their fields are read, what replies wait for
    query_context, collection_uuid, time_series, listing: checks and parsing shared by several families

Commands turn a typed request into calls of `exec` and a reply. They open no sockets and format no errors.
"""

from mongottl.commands.admin import (
    clock,
    cluster_parameters,
    cosmos,
    db_hash,
    diagnostic_data,
    diagnostics,
    handshake,
    maintenance,
    operations,
    parameters,
    plan_cache,
    profile,
    replica_set,
    request_statistics,
    rw_concern_defaults,
    server_status,
    session,
    sizes,
    transaction,
    validate,
)
from mongottl.commands.crud import (
    aggregate,
    bulk_write,
    delete,
    explain,
    find_and_modify,
    find_count_distinct,
    get_more,
    insert,
    map_reduce,
    query_settings,
    update,
)
from mongottl.commands.ddl import (
    capped,
    collections,
    collmod,
    create,
    databases,
    encryption_data,
    indexes,
    provisioning,
)
from mongottl.commands.registry import COMMANDS, UNSUPPORTED_COMMANDS, CommandSpec, Reply
from mongottl.commands.security import authentication, roles, users

FAMILIES = (
    aggregate,
    authentication,
    bulk_write,
    capped,
    clock,
    cluster_parameters,
    collections,
    collmod,
    cosmos,
    create,
    databases,
    db_hash,
    delete,
    diagnostic_data,
    diagnostics,
    encryption_data,
    explain,
    find_and_modify,
    find_count_distinct,
    get_more,
    handshake,
    indexes,
    insert,
    maintenance,
    map_reduce,
    operations,
    parameters,
    plan_cache,
    profile,
    provisioning,
    query_settings,
    replica_set,
    request_statistics,
    roles,
    rw_concern_defaults,
    server_status,
    session,
    sizes,
    transaction,
    update,
    users,
    validate,
)

__all__ = ["COMMANDS", "FAMILIES", "UNSUPPORTED_COMMANDS", "CommandSpec", "Reply"]
