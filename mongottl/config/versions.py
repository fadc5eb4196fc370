"""The version of this server, and the versions of MongoDB that it can announce."""

from typing import Final

VERSION: Final = "0.1.0"
# The source revision that `buildInfo` and explain report.
GIT_VERSION: Final = f"mongottl-{VERSION}"
# Those that accounts of Cosmos DB can have.
COSMOS_VERSIONS: Final = ("3.6", "4.0", "4.2", "5.0", "6.0", "7.0")
# The MongoDB versions that the server can announce, with the maxWireVersion of each.
WIRE_VERSIONS: Final = {"3.6": 6, "4.0": 7, "4.2": 8, "4.4": 9, "5.0": 13, "6.0": 17, "7.0": 21, "8.0": 25, "8.2": 27}
# The newest patch of each: the tables of `versions` have what came with patches, too. Source: the release notes.
NEWEST_PATCHES: Final = {
    "3.6": 23,
    "4.0": 28,
    "4.2": 25,
    "4.4": 30,
    "5.0": 34,
    "6.0": 27,
    "7.0": 31,
    "8.0": 20,
    "8.2": 6,
}
LATEST_VERSION: Final = "8.2"
