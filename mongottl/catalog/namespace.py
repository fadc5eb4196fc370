"""The rules for names of databases and collections.

Source: MongoDB's "Limits and Thresholds", naming restrictions.
"""

from collections.abc import Collection
from typing import Final

from mypy_extensions import mypyc_attr

from mongottl.document.utf8 import encode_text, is_valid_text
from mongottl.errors import CommandError, ErrorCode

MAX_DATABASE_NAME_BYTES: Final = 63
MAX_NAMESPACE_BYTES: Final = 255
_FORBIDDEN_IN_DATABASE: Final = '/\\. "$\0'
# Names with mongod's own prefix that clients may use.
_SYSTEM_COLLECTIONS: Final = ("system.js", "system.profile", "system.users", "system.views")
SYSTEM_DATABASES: Final = ("admin", "config", "local")


@mypyc_attr(allow_interpreted_subclasses=True)
class Naming:
    """Where a server's rules for names may differ from MongoDB's, as these here do not.

    max_characters: of the name of a database and of that of a collection, in place of MongoDB's limits in bytes; 0 for
    those.
    """

    def __init__(self, max_characters: int = 0) -> None:
        self.max_characters = max_characters

    def check_new(self, collection: str) -> None:
        """An error for a name that no new collection may have, although MongoDB allows it."""


MONGODB_NAMING: Final = Naming()


def check_database_name(name: str, naming: Naming = MONGODB_NAMING) -> None:
    """InvalidNamespace (73) unless `name` may name a database. It must be UTF-8, as drivers decode lists of names."""
    limit = naming.max_characters
    too_long = len(name) > limit if limit else len(encode_text(name)) > MAX_DATABASE_NAME_BYTES
    if name == "" or too_long or not is_valid_text(name):
        raise CommandError(ErrorCode.InvalidNamespace, f"Invalid database name: '{name}'")
    for character in _FORBIDDEN_IN_DATABASE:
        if character in name:
            raise CommandError(ErrorCode.InvalidNamespace, f"Invalid database name: '{name}'")


def spelled_otherwise(database: str, existing: Collection[str]) -> str | None:
    """The one of the existing databases whose name differs from `database` in case only, or None."""
    if database in existing:
        return None
    folded = database.lower()
    return next((name for name in existing if name.lower() == folded), None)


def check_collection_name(database: str, collection: str) -> None:
    """InvalidNamespace (73) unless `collection` may name a collection that a command reads or writes."""
    full = f"{database}.{collection}"
    if collection == "" or not is_valid_text(collection) or "\0" in collection or collection.startswith("."):
        raise CommandError(ErrorCode.InvalidNamespace, f"Invalid namespace specified '{full}'")


def check_new_collection_name(database: str, collection: str, naming: Naming = MONGODB_NAMING) -> None:
    """InvalidNamespace (73) unless `collection` may name a new collection: stricter than for an existing one."""
    check_collection_name(database, collection)
    full = f"{database}.{collection}"
    if "$" in collection:
        raise CommandError(ErrorCode.InvalidNamespace, f"Invalid collection name: {collection}")
    limit = naming.max_characters
    if limit:
        if len(collection) > limit:
            raise CommandError(
                ErrorCode.InvalidNamespace, f"Collection name is longer than {limit} characters: {collection}"
            )
    elif len(encode_text(full)) > MAX_NAMESPACE_BYTES:
        raise CommandError(
            ErrorCode.InvalidNamespace,
            f"Fully qualified namespace is too long. Namespace: {full} Max: {MAX_NAMESPACE_BYTES}",
        )
    if collection.startswith("system.") and collection not in _SYSTEM_COLLECTIONS:
        raise CommandError(ErrorCode.InvalidNamespace, f"Invalid system namespace: {full}")


def split_namespace(full: str, naming: Naming = MONGODB_NAMING) -> tuple[str, str]:
    """("db", "a.b") of "db.a.b". InvalidNamespace (73) where one part is missing."""
    database, dot, collection = full.partition(".")
    if dot == "" or database == "" or collection == "":
        raise CommandError(ErrorCode.InvalidNamespace, f"Invalid namespace specified '{full}'")
    check_database_name(database, naming)
    return database, collection
