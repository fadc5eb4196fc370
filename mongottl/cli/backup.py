"""`mongottl backup URI|FOLDER TARGET`: a copy of a server's data as of one moment, to start a server with.

A running server makes the copy and sends it, so that it can be on another machine; this process writes it.
"""

import hashlib
import os
from typing import Any, Final

from mongottl.cli.arguments import ArgumentParser
from mongottl.cli.client import connect, failure_of
from mongottl.cli.signals import ending_by_exception
from mongottl.cli.subcommands import fail
from mongottl.clock import SystemClock
from mongottl.offline.backup import BackupError, BackupTarget, back_up_folder
from mongottl.storage.data_folder import create_private_file
from mongottl.storage.errors import DataDirectoryError, EngineUnavailable

_NAME: Final = "backup"
# The exit status if a backup was written without commits that are lost.
_INCOMPLETE: Final = 3
# How long to look for the server. Making the copy may take any time.
_CONNECT_S: Final = 5.0


def main(arguments: list[str]) -> int:
    """Exit status 0 if the backup was written, 1 if not, 2 for wrong arguments, 3 if it was written, but lacks commits
    that a damaged log of the folder cuts off."""
    parser = ArgumentParser(_NAME)
    parser.add_argument("source", metavar="URI|FOLDER", help="a running server, or the data folder of a stopped one")
    parser.add_argument("target", metavar="TARGET", help="the new folder; start a server with --data-dir TARGET")
    given = parser.parse_args(arguments)
    with ending_by_exception():
        return backup(given.source, given.target)


def backup(source: str, target: str) -> int:
    """Backs up a server or a folder; the exit status."""
    import pymongo.errors

    clock = SystemClock()
    begun_s = clock.monotonic_s()
    lost: list[str] = []
    try:
        if "://" in source:
            size = back_up_server(source, target)
        else:
            size, lost = back_up_folder(source, target)
    except (pymongo.errors.PyMongoError, ValueError) as error:
        return fail(_NAME, failure_of(error))
    except (DataDirectoryError, EngineUnavailable, BackupError) as error:
        return fail(_NAME, str(error))
    except OSError as error:
        return fail(_NAME, f"{target} cannot be written: {error.strerror}")
    except KeyboardInterrupt:
        return fail(_NAME, "interrupted")
    print(f"{target}: {_shown(size)} in {clock.monotonic_s() - begun_s:.1f} s")
    for reason in lost:
        fail(_NAME, f"{target} is incomplete, as a server started with {source} would be: {reason}")
    return _INCOMPLETE if lost else 0


def _shown(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:.0f} kB"


def back_up_server(uri: str, target: str) -> int:
    """Writes the copy that a server sends; its bytes. PyMongoError, BackupError or OSError if it cannot be done."""
    with BackupTarget(target) as place, connect(uri, _CONNECT_S, is_long=True) as client:
        digest = hashlib.sha256()
        written = 0
        with client.admin.cursor_command("mongottlBackup") as pieces:
            described: dict[str, Any] = next(pieces)
            create_private_file(place.path)
            with open(place.path, "wb") as file:
                for piece in pieces:
                    file.write(piece["data"])
                    digest.update(piece["data"])
                    written += len(piece["data"])
                file.flush()
                os.fsync(file.fileno())
        if written != described["bytes"] or digest.hexdigest() != described["sha256"]:
            raise BackupError(f"the copy has not arrived as it was sent: {written} of {described['bytes']} bytes")
        return written
