"""`mongottl ping URI`: whether a server answers, for health checks. It logs in if the URI names a user."""

from typing import Final

from mongottl.cli.arguments import ArgumentParser
from mongottl.cli.client import add_server_arguments, connect, container_uri, failure_of
from mongottl.cli.subcommands import fail
from mongottl.clock import SystemClock

_NAME: Final = "ping"


def main(arguments: list[str]) -> int:
    """Exit status 0 if the server has answered a ping in time, 1 if not, 2 for wrong arguments."""
    parser = ArgumentParser(_NAME)
    add_server_arguments(parser)
    parser.add_argument("--container", action="store_true", help="ask the server of `mongottl container`, beside it")
    given = parser.parse_args(arguments)
    uri = given.uri
    if given.container:
        uri = container_uri()
        if uri is None:
            return fail(_NAME, "no answer: the server of this container does not accept connections yet")
    return ping(uri, given.timeout)


def ping(uri: str, timeout_s: float) -> int:
    """Prints how long the answer took, or on standard error why there is none; the exit status."""
    import pymongo
    import pymongo.errors

    clock = SystemClock()
    begun_s = clock.monotonic_s()
    try:
        with pymongo.timeout(timeout_s), connect(uri, timeout_s) as client:
            client.admin.command("ping")
            host, port = client.address or ("", 0)
    except (pymongo.errors.PyMongoError, ValueError) as error:
        return fail(_NAME, failure_of(error))
    print(f"{host}:{port} answered in {(clock.monotonic_s() - begun_s) * 1000:.0f} ms")
    return 0
