"""The store of a run of tests: PostgreSQL, in which each engine has a schema of its own.

With MONGOTTL_TEST_STORE servers that tests start without a folder keep their data there, too:

    postgresql://…  the one of this URI, as `--store` takes it
    private         a cluster of the run's own, of the newest version that is here
    15, 16, 18, …   the same, of this version
"""

import atexit
import os
import uuid
from functools import cache
from typing import Final
from urllib.parse import quote

import pytest

from mongottl.config import ServerConfig

PREFIX = f"run_{os.getpid()}_"
_PRIVATE = "private"


def is_wanted() -> bool:
    """Whether servers of tests keep their data in the store."""
    return bool(os.environ.get("MONGOTTL_TEST_STORE"))


# For tests of `saveState`, `restoreState`, `resetState` and what needs them.
needs_states: Final = pytest.mark.skipif(is_wanted(), reason="a store saves no states")


@cache
def store() -> str:
    """The URI of the store; a private cluster is started, and stopped at the end of the run."""
    given = os.environ.get("MONGOTTL_TEST_STORE", "")
    if given not in ("", _PRIVATE) and not given.isdigit():
        atexit.register(drop_schemas)
        return given
    from mongottl.storage.postgresql.local_cluster import DATABASE, USER
    from tests.postgres import Folder, start_cluster

    folder = Folder()
    cluster = start_cluster(folder.path)
    atexit.register(folder.remove)
    atexit.register(cluster.stop, "immediate")
    return f"postgresql://{USER}@/{DATABASE}?host={quote(cluster.run_folder)}"


@cache
def is_citus() -> bool:
    """Whether the run was given a coordinator of Citus."""
    if not os.environ.get("MONGOTTL_TEST_STORE", "").startswith("postgres"):
        return False
    import psycopg

    with psycopg.connect(store(), autocommit=True) as connection:
        found = connection.execute("SELECT count(*) FROM pg_extension WHERE extname = 'citus'").fetchone()
    return bool(found and found[0])


def with_schema(schema: str) -> str:
    """The URI of a schema of the store."""
    return f"{store()}{'&' if '?' in store() else '?'}schema={schema}"


def serve_from_store() -> None:
    """Has servers without a folder keep their data in the store."""
    original = ServerConfig.store_uri

    def store_uri(self: ServerConfig) -> str:
        uri = original(self)
        return with_schema(PREFIX + uuid.uuid4().hex[:12]) if uri in ("memory:", "sqlite:") else uri

    ServerConfig.store_uri = store_uri  # type: ignore[method-assign]


def drop_schemas() -> None:
    """Drops what the run has made."""
    import psycopg

    with psycopg.connect(store(), autocommit=True) as connection:
        names = connection.execute("SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s)", (PREFIX,))
        for (name,) in names.fetchall():
            connection.execute(f'DROP SCHEMA "{name}" CASCADE')


# For tests of shard keys that are allowed to change.
stays_in_its_place: Final = pytest.mark.skipif(is_citus(), reason="a shard key value does not change over Citus")
# For tests of unique indexes that do not contain the shard key.
has_all_keys: Final = pytest.mark.skipif(is_citus(), reason="a unique index contains the shard key over Citus")
# For tests of transactions with several collections.
needs_one_machine: Final = pytest.mark.skipif(is_citus(), reason="a transaction reaches one collection over Citus")
# For tests of several servers with one store, and of one that was started as one of these.
takes_several_servers: Final = pytest.mark.skipif(is_citus(), reason="a store has one server over Citus")
