"""mongottl: a MongoDB server whose documents expire as in Azure Cosmos DB.

with mongottl.start_server() as server:          # in a thread, for tests and scripts in any style
    client = pymongo.MongoClient(server.uri)
    server.clock.advance(30 * 24 * 3600)         # thirty days later; what expired is gone

async with mongottl.open_server() as server:     # inside a trio program
    ...
"""

from typing import TYPE_CHECKING, Any

from mongottl.config import VERSION as __version__
from mongottl.config import ServerConfig, SettingError

if TYPE_CHECKING:
    from mongottl.clock import VirtualClock
    from mongottl.server.server import open_server
    from mongottl.server.thread import RunningServer, ServerClock, start_server

__all__ = [
    "RunningServer",
    "ServerClock",
    "ServerConfig",
    "SettingError",
    "VirtualClock",
    "__version__",
    "open_server",
    "start_server",
]

_HOMES = {
    "RunningServer": "mongottl.server.thread",
    "ServerClock": "mongottl.server.thread",
    "VirtualClock": "mongottl.clock",
    "open_server": "mongottl.server.server",
    "start_server": "mongottl.server.thread",
}


def __getattr__(name: str) -> Any:
    # Imported on first use, so that a pytest run that does not use the fixtures does not import the server.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'mongottl' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(home), name)
