"""`mongottl shell`: evaluates JavaScript with `db` and `rs`, for what is run in a container that has no mongosh.

It stands in for mongosh in health checks, in start-up scripts, and in what the modules of Testcontainers execute:

    mongosh --quiet --eval 'quit(db.runCommand({hello: 1}).isWritablePrimary ? 0 : 1)'
    mongosh admin --username root --password secret --eval 'rs.status()'
    mongosh mongodb://127.0.0.1/shop init.js

It knows what these use: commands, the helpers of collections that send one command, and reading cursors to their end.
It is no interactive shell.

Source: MongoDB's "mongosh Methods" and "mongosh Options".
"""

import argparse
import json
import sys
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from mongottl.cli.arguments import ArgumentParser
from mongottl.cli.client import connect, container_uri, failure_of
from mongottl.cli.subcommands import UsageError, fail
from mongottl.extras import to_install

if TYPE_CHECKING:
    import pymongo

_NAME: Final = "shell"
_DEFAULT_HOST: Final = "127.0.0.1:27017"
_TIMEOUT_S: Final = 30.0
# The exit status of mongosh after an exception.
_FAILED: Final = 1
# What a script throws to end: the status follows.
_QUIT: Final = "quit:"


def main(arguments: list[str]) -> int:
    """The status that `quit` was given, 0 at the end, 1 after an exception."""
    parser = ArgumentParser(_NAME)
    parser.add_argument("target", metavar="URI|DATABASE|FILE", nargs="*")
    parser.add_argument("--eval", action="append", default=[], metavar="JAVASCRIPT")
    parser.add_argument("--file", "-f", action="append", default=[], metavar="FILE")
    parser.add_argument("--host", metavar="HOST[:PORT]")
    parser.add_argument("--port", type=int, metavar="N")
    parser.add_argument("--username", "-u")
    parser.add_argument("--password", "-p")
    parser.add_argument("--authenticationDatabase", default="admin", metavar="NAME")
    parser.add_argument("--tls", "--ssl", action="store_true")
    parser.add_argument("--tlsCAFile", "--sslCAFile", metavar="FILE")
    parser.add_argument("--tlsAllowInvalidCertificates", action="store_true")
    for switch in ("--quiet", "--norc", "--nodb", "--tlsAllowInvalidHostnames", "--verbose"):
        parser.add_argument(switch, action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if find_spec("quickjs") is None:
        return fail(_NAME, f"needs the extra `javascript`: {to_install('javascript')}")
    scripts = [word for word in given.target if word.endswith(".js")]
    targets = [word for word in given.target if not word.endswith(".js")]
    if len(targets) > 1:
        raise UsageError(f"one URI or database is needed, not {' '.join(targets)}")
    try:
        texts = [*given.eval, *[Path(name).read_text(encoding="utf-8") for name in [*given.file, *scripts]]]
    except (OSError, UnicodeDecodeError) as error:
        return fail(_NAME, f"cannot read a script: {error}")
    if not texts:
        raise UsageError("needs --eval or a file: it is no interactive shell")
    uri, database = _address(given, targets[0] if targets else "")
    return run(uri, database, texts, connects=not given.nodb)


def _address(given: argparse.Namespace, target: str) -> tuple[str, str]:
    """The URI to connect to, and the database that `db` is."""
    if target.startswith("mongodb"):
        return target, target.partition("://")[2].partition("/")[2].partition("?")[0] or "test"
    database = target or "test"
    known = container_uri() if given.host is None and given.port is None else None
    if known is not None:
        uri = known
        if given.username is not None:
            uri = uri.partition("://")[2].rpartition("@")[2]
            uri = f"mongodb://{_login(given)}{uri}"
        return uri, database
    host = given.host or _DEFAULT_HOST
    if given.port is not None:
        host = f"{host.partition(':')[0]}:{given.port}"
    options = [f"authSource={quote(given.authenticationDatabase, safe='')}"] if given.username is not None else []
    if given.tls or given.tlsCAFile:
        options.append("tls=true")
    if given.tlsCAFile:
        options.append(f"tlsCAFile={quote(given.tlsCAFile, safe='/')}")
    if given.tlsAllowInvalidCertificates:
        options.append("tlsInsecure=true")
    return f"mongodb://{_login(given)}{host}/?{'&'.join(options)}", database


def _login(given: argparse.Namespace) -> str:
    if not given.username:
        return ""
    return f"{quote(given.username, safe='')}:{quote(given.password or '', safe='')}@"


def run(uri: str, database: str, texts: list[str], connects: bool = True) -> int:
    """Evaluates the scripts one after the other; the exit status.

    connects: whether a script is evaluated only once the server has answered and taken the login, if any.
    """
    import quickjs
    from pymongo.errors import PyMongoError

    try:
        with connect(uri, _TIMEOUT_S, is_long=True) as client:
            if connects:
                client.admin.command("ping")
            context = quickjs.Context()
            commands = _Commands(client)
            context.add_callable("__run", commands.run)
            context.add_callable("__list", commands.list)
            context.add_callable("__print", _print)
            context.add_callable("__read", _read)
            context.add_callable("__sleep", _sleep)
            context.eval(files("mongottl.cli").joinpath("shell.js").read_text(encoding="utf-8"))
            context.set("__database", database)
            for text in texts:
                shown = context.eval(f"__evaluate({json.dumps(text)})")
                if shown is not None and str(shown).startswith(_QUIT):
                    return int(str(shown).removeprefix(_QUIT))
                if shown is not None and len(texts) == 1:
                    print(shown)
    except quickjs.JSException as error:
        print(str(error).partition("\n")[0], file=sys.stderr)
        return _FAILED
    except (PyMongoError, ValueError) as error:
        return fail(_NAME, failure_of(error))
    return 0


class _Commands:
    """Sends the commands of scripts; commands and replies are Extended JSON."""

    def __init__(self, client: "pymongo.MongoClient[dict[str, Any]]") -> None:
        self._client = client

    def run(self, database: str, command: str) -> str:
        """The reply, also one that is an error; `{thrown: …}` if there is none."""
        from pymongo.errors import PyMongoError

        try:
            return _dumped(self._client[database].command(_loaded(command), check=False))
        except (PyMongoError, ValueError, TypeError) as error:
            return json.dumps({"thrown": failure_of(error)})

    def list(self, database: str, command: str) -> str:
        """All documents of a command that answers with a cursor, or the reply that is an error."""
        from pymongo.errors import OperationFailure, PyMongoError

        try:
            with self._client[database].cursor_command(_loaded(command)) as cursor:
                return _dumped(list(cursor))
        except OperationFailure as error:
            return _dumped(error.details)
        except (PyMongoError, ValueError, TypeError) as error:
            return json.dumps({"errmsg": failure_of(error)})


def _loaded(text: str) -> Any:
    from bson import json_util

    return json_util.loads(text)


def _dumped(value: Any) -> str:
    from bson import json_util

    return json_util.dumps(value, json_options=json_util.RELAXED_JSON_OPTIONS)


def _print(line: str) -> None:
    print(line, flush=True)


def _read(path: str) -> str:
    """`{text: …}` of a file, or `{failure: …}`."""
    try:
        return json.dumps({"text": Path(path).read_text(encoding="utf-8")})
    except (OSError, UnicodeDecodeError) as error:
        return json.dumps({"failure": f"cannot load {path}: {getattr(error, 'strerror', None) or error}"})


def _sleep(milliseconds: float) -> None:
    Event().wait(milliseconds / 1000.0)
