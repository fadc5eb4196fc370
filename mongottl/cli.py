"""The command line: `mongottl [serve] [options]`.

The first line on standard output, printed once connections are accepted, ends with the URI to paste; the log goes to
standard error. After SIGINT or SIGTERM running requests are answered, and the exit status is 0.
"""

import gc
import os
import sys
from typing import TYPE_CHECKING, Final

from mongottl.config import SETTINGS, ServerConfig, Setting, config_from, config_from_environment

if TYPE_CHECKING:
    import trio

    from mongottl.server.log import Log
    from mongottl.server.server import Server

_COMMANDS: Final = ("serve",)
# How long to wait for the last lines of the log to be written.
LOG_WAIT_S: Final = 0.1
_FORMS: Final = {"number": "N", "text": "TEXT", "address": "HOST:PORT", "names": "NAME"}
_USAGE_ERROR: Final = 2
# Thresholds of the garbage collector: objects allocated, and collections of the younger generation, before a
# collection.
_GC_THRESHOLDS: Final = (5_000, 200, 100)
_FAILURE: Final = 1


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; the process's exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in _COMMANDS:
        arguments = arguments[1:]
    if "--help" in arguments or "-h" in arguments:
        print(help_text())
        return 0
    if "--version" in arguments:
        from mongottl.build_info import describe_version

        print(describe_version())
        return 0
    try:
        texts = config_from_environment(os.environ)
        texts.update(parse_arguments(arguments))
        config = config_from(texts)
    except ValueError as error:
        print(f"mongottl: {error}\nTry 'mongottl --help'.", file=sys.stderr)
        return _USAGE_ERROR
    return serve(config)


def parse_arguments(arguments: list[str]) -> dict[str, str]:
    """The settings that the arguments name, as texts by field. ValueError for an unknown option."""
    by_option = {setting.option: setting for setting in SETTINGS if setting.on_command_line}
    texts: dict[str, str] = {}
    place = 0
    while place < len(arguments):
        option, equals, value = arguments[place].partition("=")
        place += 1
        negated = option.startswith("--no-")
        setting = by_option.get("--" + option[5:] if negated else option)
        if setting is None or (negated and setting.value != "switch"):
            raise ValueError(f"unknown option {option}")
        if setting.value == "switch":
            texts[setting.field] = "false" if negated else value or "true"
            continue
        if not equals:
            if place == len(arguments):
                raise ValueError(f"{option} needs a value")
            value = arguments[place]
            place += 1
        if setting.value == "names" and setting.field in texts:
            value = f"{texts[setting.field]},{value}"
        texts[setting.field] = value
    return texts


def help_text() -> str:
    """The text of --help, from the table of settings."""
    lines = [
        "usage: mongottl [serve] [options]",
        "",
        "A MongoDB server whose documents expire as in Azure Cosmos DB.",
        "",
        "options:",
    ]
    defaults = ServerConfig()
    for setting in SETTINGS:
        if not setting.on_command_line:
            lines += [f"  {setting.variable}=TEXT (environment)", f"        {setting.help}"]
            continue
        lines.append(f"  {_option_form(setting, getattr(defaults, setting.field))}")
        lines.append(f"        {setting.help}{_default_note(getattr(defaults, setting.field))}")
        if setting.value == "names":
            lines += [f"          {name}" for name in setting.choices]
    lines += ["  --version", "        Show the version, and whether it is compiled.", "  --help", ""]
    lines.append("Each option can also be given in the environment: MONGOTTL_PORT=27018, MONGOTTL_DATA_DIR=…")
    return "\n".join(lines)


def _option_form(setting: Setting, default: object) -> str:
    if setting.value == "switch":
        return f"--no-{setting.option[2:]}" if default is True else setting.option
    if setting.choices and setting.value != "names":
        return f"{setting.option} {{{','.join(setting.choices)}}}"
    return f"{setting.option} {_FORMS[setting.value]}"


def _default_note(default: object) -> str:
    if default is None or isinstance(default, (bool, tuple)):
        return ""
    return f" Default: {default}."


def serve(config: ServerConfig) -> int:
    """Serves until SIGINT or SIGTERM; the process's exit status."""
    import trio

    from mongottl.server.limits import raise_file_limit
    from mongottl.server.log import Log
    from mongottl.storage.interface import DataDirectoryError

    log = Log(config.log_format, config.quiet)
    limited = raise_file_limit(config.max_connections)
    if limited is not None:
        log.startup_warning("control", "Connections are limited", reason=limited)
    status = 0
    try:
        trio.run(_serve, config, log)
    except* (OSError, DataDirectoryError) as group:
        for error in _leaves(group):
            log.error("control", "Cannot start", error=getattr(error, "strerror", None) or str(error))
        status = _FAILURE
    except* KeyboardInterrupt:
        pass
    return status


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found


async def _stop_on_command(server: "Server", log: "Log", scope: "trio.CancelScope") -> None:
    """Ends what waits in `scope` when the command shutdown has been run."""
    await server.stop_requested.wait()
    log.info("control", "Stopping", command="shutdown")
    scope.cancel()


async def _serve(config: ServerConfig, log: "Log") -> None:
    import signal

    import trio

    from mongottl.build_info import is_compiled
    from mongottl.server.server import open_server

    # Imported modules are never freed, so the collector need not examine them. With fewer collections a `$group` over
    # 400,000 documents takes half the CPU, and other clients wait 20 ms instead of 135. Only the server runs in this
    # process, so its collector may be configured.
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with open_server(config, log=log) as server:
            where = f"data in {config.data_dir}" if config.data_dir else "data in memory"
            clock = ", clock can be moved" if config.enable_test_commands else ""
            speed = "" if is_compiled() else ", interpreted: about ten times slower than compiled"
            print(f"mongottl accepts connections ({where}{clock}{speed}): {server.uri}", flush=True)
            log.info("network", "Waiting for connections", address=server.config.host, port=server.port)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_stop_on_command, server, log, nursery.cancel_scope)
                async for number in signals:
                    log.info("control", "Stopping", signal=signal.Signals(number).name)
                    nursery.cancel_scope.cancel()
                    break
    log.info("control", "Stopped")
    log.drain(LOG_WAIT_S)
