"""`mongottl report URI`: what the requests to a server of the dialect `cosmos` have cost in request units."""

import json
from typing import Any, Final

from mongottl.cli.arguments import ArgumentParser
from mongottl.cli.client import add_server_arguments, connect, failure_of
from mongottl.cli.subcommands import fail
from mongottl.errors import ErrorCode

_NAME: Final = "report"
_REFUSALS: Final[dict[int, str]] = {
    ErrorCode.CommandNotSupported: "the server counts no request units",
    ErrorCode.AuthenticationFailed: "the user may not ask",
    ErrorCode.Unauthorized: "the user may not ask",
}


def main(arguments: list[str]) -> int:
    """Exit status 0 if the server has answered, 1 if not, 2 for wrong arguments."""
    parser = ArgumentParser(_NAME)
    add_server_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the reply of getRequestUnits as JSON")
    parser.add_argument("--reset", action="store_true", help="make the server begin again from zero")
    given = parser.parse_args(arguments)
    return report(given.uri, given.timeout, given.json, given.reset)


def report(uri: str, timeout_s: float, as_json: bool, reset: bool) -> int:
    """Prints a table, or on standard error why there is none; the exit status."""
    import pymongo
    import pymongo.errors

    try:
        with pymongo.timeout(timeout_s), connect(uri, timeout_s) as client:
            reply = client.admin.command({"getRequestUnits": 1, "reset": reset})
    except (pymongo.errors.PyMongoError, ValueError) as error:
        return fail(_NAME, failure_of(error, _REFUSALS))
    if as_json:
        shown = {name: reply[name] for name in ("total", "requests", "throttled", "operations")}
        print(json.dumps(shown, indent=2))
    else:
        print("\n".join(_table(reply)))
    return 0


def _table(reply: dict[str, Any]) -> list[str]:
    from mongottl.exec.state.request_units import UnitsReport, UnitsRow
    from mongottl.server.units_table import units_table

    rows = [
        UnitsRow(row["command"], row["ns"], row["requests"], row["charge"], row["throttled"])
        for row in reply["operations"]
    ]
    return units_table(UnitsReport(reply["total"], reply["requests"], reply["throttled"], rows))
