"""The server's URI with a database in it."""

from typing import Final
from urllib.parse import quote

from mongottl.catalog.namespace import check_database_name
from mongottl.errors import CommandError

_SCHEME: Final = "mongodb://"


def uri_for_database(uri: str, database: str) -> str:
    """A server's URI with the database that drivers then use by default. ValueError for what is no database's name."""
    if not isinstance(database, str):
        raise ValueError(f"the name of a database is needed, not {database!r}")
    try:
        check_database_name(database)
    except CommandError as error:
        raise ValueError(error.message) from None
    head, _, tail = uri.removeprefix(_SCHEME).partition("/")
    options = [option for option in tail.partition("?")[2].split("&") if option]
    if "@" in head:
        options.append("authSource=admin")  # by default drivers look for the user in the database that is named
    return f"{_SCHEME}{head}/{quote(database, safe='')}" + ("?" + "&".join(options) if options else "")
