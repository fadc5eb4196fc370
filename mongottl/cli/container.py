"""`mongottl container`: the command of the image, in the place of the images that it replaces.

    mongo                            mongod's options, `MONGO_INITDB_ROOT_USERNAME` and `…_PASSWORD`, scripts of
                                     /docker-entrypoint-initdb.d, the line "Waiting for connections"
    azure-cosmos-emulator            variables `AZURE_COSMOS_EMULATOR_…`, the line "Started"
    mongottl                         its own options and variables

So a compose file or a test of Testcontainers that was written for one of these works with this image. `translate` turns
what the others take into our options, by the tables below; what has no effect here is said on standard error. A first
argument that is a program is run in the place of the server, as the entry points of these images do.

Source: the README of the image `mongo`; Microsoft's "Use the emulator on Docker for Linux"; what the modules for
MongoDB and for the emulator of Testcontainers for .NET and Java run and wait for.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mongottl.build_info import describe_version
from mongottl.cli.client import write_container_uri
from mongottl.cli.mongod_options import MONGOD_OPTIONS
from mongottl.cli.options import configuration, option_lines
from mongottl.cli.serve import print_first_line, serve
from mongottl.cli.subcommands import SUBCOMMANDS, UsageError
from mongottl.config import COSMOS_VERSIONS, ServerConfig, config_from
from mongottl.storage.data_folder import has_database

if TYPE_CHECKING:
    from mongottl.server.server import Server

# Where containers have what they start with: scripts to run once, and volumes for data (of mongod's image, and of the
# emulator's).
INIT_FOLDER: Final = Path("/docker-entrypoint-initdb.d")
MONGO_DATA: Final = "/data/db"
EMULATOR_DATA: Final = "/tmp/cosmos/appdata"
# Where the emulator keeps its certificate. Testcontainers for Python copies it from there.
EMULATOR_CERTIFICATE: Final = Path(EMULATOR_DATA, ".system/profiles/Client/AppData/Local/CosmosDBEmulator/emulator.pem")
WAITING: Final = "Waiting for connections"
# Where files may be written, the second also if the root file system is read-only.
_TEMPORARY_FOLDERS: Final = ("/tmp", "/dev/shm")
_EMULATOR: Final = "AZURE_COSMOS_EMULATOR_"
_SERVERS: Final = ("mongod", "mongottl", "mongos")
_REPLICA_SET_VARIABLES: Final = {"MONGOTTL_TOPOLOGY", "MONGOTTL_REPLICA_SET"}
_FALSE: Final = ("", "0", "false", "no")


@dataclass
class Translated:
    """What the server is started with. options: ours. environment: ours, beside that of the process. remarks: what has
    no effect."""

    options: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def ignore(self, name: str, why: str = "has no effect here") -> None:
        self.remarks.append(f"{name} {why}")


def main(arguments: list[str]) -> int:
    """The exit status of the server, or of the program that the arguments name."""
    if os.getpid() == 1:
        # Linux does not end the first process by a signal that it does not handle, and the server's own handlers come
        # with its modules.
        signal.signal(signal.SIGTERM, _end_at_once)
    is_server = not arguments or arguments[0] in _SERVERS or arguments[0].startswith("-")
    if is_server and ("--help" in arguments or "-h" in arguments):
        print(_help_text())
        return 0
    if is_server and "--version" in arguments:
        print(describe_version())
        return 0
    if not is_server:
        if shutil.which(arguments[0]) is None:
            raise UsageError(f"there is no program {arguments[0]!r}; options of the server begin with dashes")
        sys.stdout.flush()
        os.execvp(arguments[0], arguments)
    if arguments and arguments[0] in _SERVERS:
        arguments = arguments[1:]
    use_folders_that_can_be_written(os.environ)
    translated = translate(arguments, os.environ)
    for remark in translated.remarks:
        _say(remark)
    config = configuration(translated.options, {**os.environ, **translated.environment})
    # A volume of its own has a folder lost+found, and Testcontainers puts a key there.
    is_new = config.data_dir is None or not has_database(config.data_dir)

    def announce(server: "Server") -> None:
        print_first_line(server)
        if not write_container_uri(server.uri_with_password):
            _say(f"the health check does not work: none of {', '.join(_TEMPORARY_FOLDERS)} can be written")
        if config.emulator and server.ca_file is not None:
            _keep_certificate(server.ca_file)
        # In a thread, because the scripts are clients of this server.
        start = threading.Thread(target=_finish_start, args=(server.uri_with_password, config, is_new), daemon=True)
        start.start()

    return serve(config, announce, logs_waiting=False)


def _say(text: str) -> None:
    print(f"mongottl container: {text}", file=sys.stderr, flush=True)


def _end_at_once(number: int, frame: object) -> None:
    os._exit(0)


def use_folders_that_can_be_written(environment: MutableMapping[str, str]) -> None:
    """Names other folders for temporary files and for certificates if the usual ones cannot be written: the root file
    system is read-only, or the user has no home."""
    folder = next((folder for folder in _TEMPORARY_FOLDERS if os.access(folder, os.W_OK)), None)
    if folder is None:
        return
    if folder != _TEMPORARY_FOLDERS[0]:
        environment.setdefault("TMPDIR", folder)
    if not os.access(environment.get("XDG_CACHE_HOME") or os.path.expanduser("~"), os.W_OK):
        environment["XDG_CACHE_HOME"] = folder


def _keep_certificate(ca_file: str) -> None:
    """Puts the certificate where the emulator has it, if that can be written."""
    with suppress(OSError):
        EMULATOR_CERTIFICATE.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ca_file, EMULATOR_CERTIFICATE)


def _finish_start(uri: str, config: ServerConfig, is_new: bool) -> None:
    """Runs the scripts of the image, and prints the lines for which others wait."""
    if is_new:
        _run_scripts(uri)
    # mongod serves twice when it makes a user, and what starts the container counts these lines.
    for _ in range(2 if config.user is not None else 1):
        print(WAITING, flush=True)
    if config.emulator:
        print("Started\r", flush=True)


def _run_scripts(uri: str) -> None:
    """Runs the scripts of INIT_FOLDER in the order of their names: *.sh by a shell, *.js by mongosh."""
    if not INIT_FOLDER.is_dir():
        return
    for script in sorted(INIT_FOLDER.iterdir()):
        command = {".sh": ["bash", str(script)], ".js": ["mongosh", uri, str(script)]}.get(script.suffix)
        if command is None:
            continue
        print(f"mongottl container: running {script}", flush=True)
        try:
            status = subprocess.run(command, env={**os.environ, "MONGODB_URI": uri}, check=False).returncode
        except OSError as error:
            _say(f"{script}: {error.strerror}")
        else:
            if status:
                _say(f"{script} ended with status {status}")


def translate(arguments: list[str], environment: Mapping[str, str]) -> Translated:
    """What the arguments and the variables of another image mean here. UsageError for what cannot be meant."""
    result = Translated(["--host=*"])
    _translate_emulator(environment, result)
    _translate_mongo(environment, result)
    rest = list(arguments)
    while rest:
        option, equals, value = rest.pop(0).partition("=")
        if option not in MONGOD_OPTIONS:
            result.options.append(option + equals + value)
            continue
        ours, takes_value = MONGOD_OPTIONS[option]
        if takes_value and not equals:
            if not rest:
                raise UsageError(f"{option} needs a value")
            value = rest.pop(0)
        if option == "--setParameter" and value == "enableTestCommands=1":
            ours, value = "--enable-test-commands", ""
        if ours is None:
            result.ignore(f"{option} {value}".rstrip())
        elif option == "--keyFile":
            result.options.append(ours)
            result.ignore("--keyFile", "means --auth here: there are no other members to check")
        elif option == "--replSet":
            result.options += [f"{ours}={value}", "--topology=replicaSet"]
        else:
            result.options.append(f"{ours}={value}" if takes_value and value else ours)
    names = {option.partition("=")[0] for option in result.options}
    if not names & {"--topology", "--replica-set"} and not environment.keys() & _REPLICA_SET_VARIABLES:
        # Clients reach a container by a port that is mapped to it. Those that find a replica set would follow the
        # address of its member, which only the container has.
        result.options.append("--topology=sharded")
    if "--data-dir" not in names and "MONGOTTL_DATA_DIR" not in environment and os.path.ismount(MONGO_DATA):
        result.options.append(f"--data-dir={MONGO_DATA}")
    return result


def _translate_mongo(environment: Mapping[str, str], result: Translated) -> None:
    """The variables of the image `mongo`."""
    user = _secret(environment, "MONGO_INITDB_ROOT_USERNAME")
    password = _secret(environment, "MONGO_INITDB_ROOT_PASSWORD")
    if bool(user) != bool(password):
        raise UsageError("MONGO_INITDB_ROOT_USERNAME and MONGO_INITDB_ROOT_PASSWORD: both are needed, or neither")
    if user and password:
        result.options += ["--auth", f"--user={user}"]
        result.environment["MONGOTTL_PASSWORD"] = password
    if environment.get("MONGO_INITDB_DATABASE"):
        result.ignore("MONGO_INITDB_DATABASE", "has no effect here: a database is made by its first write")


def _secret(environment: Mapping[str, str], name: str) -> str:
    """A variable, or the first line of the file that `…_FILE` names. UsageError for a file that cannot be read."""
    path = environment.get(f"{name}_FILE")
    if not path:
        return environment.get(name, "")
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()[0]
    except (OSError, UnicodeDecodeError, IndexError) as error:
        raise UsageError(f"{name}_FILE: cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def _translate_emulator(environment: Mapping[str, str], result: Translated) -> None:
    """The variables of the emulator's image, which is meant if one of them asks for its endpoint of MongoDB."""
    endpoint = environment.get(f"{_EMULATOR}ENABLE_MONGODB_ENDPOINT", "")
    flags = dict(_emulator_flags(environment.get(f"{_EMULATOR}ARGS", "")))
    endpoint = flags.pop("enablemongodbendpoint", endpoint)
    if endpoint.lower() in _FALSE:
        others = sorted(
            name for name in environment if name.startswith(_EMULATOR) and not name.endswith("_ENABLE_MONGODB_ENDPOINT")
        )
        if others:
            why = f"no effect without {_EMULATOR}ENABLE_MONGODB_ENDPOINT, whose API is the only one here"
            result.ignore(f"{', '.join(others)}:", why)
        return
    result.options.append("--emulator")
    if endpoint in COSMOS_VERSIONS:
        result.options.append(f"--server-version={endpoint}")
    elif endpoint.lower() not in ("1", "true", "yes"):
        raise UsageError(
            f"{_EMULATOR}ENABLE_MONGODB_ENDPOINT: one of {', '.join(COSMOS_VERSIONS)} is needed, not {endpoint!r}"
        )
    if environment.get(f"{_EMULATOR}ENABLE_DATA_PERSISTENCE", "").lower() not in _FALSE:
        result.options.append(f"--data-dir={EMULATOR_DATA}")
    port = flags.pop("mongoport", None)
    if port is not None:
        result.options.append(f"--port={port}")
    address = environment.get(f"{_EMULATOR}IP_ADDRESS_OVERRIDE")
    if address:
        result.options.append(f"--advertise-host={address}:{port or config_from({'emulator': 'true'}).port}")
    key = flags.pop("key", environment.get(f"{_EMULATOR}KEY"))
    if key:
        result.environment["MONGOTTL_COSMOS_KEY"] = key
    for flag in flags:
        result.ignore(f"{_EMULATOR}ARGS: /{flag}")
    if environment.get(f"{_EMULATOR}PARTITION_COUNT"):
        result.ignore(f"{_EMULATOR}PARTITION_COUNT", "has no effect here: there are as many partitions as needed")


def _emulator_flags(text: str) -> list[tuple[str, str]]:
    """The flags of the emulator's command line, such as `/Key=…`, by their names in lower case."""
    pairs = []
    for word in text.split():
        name, _, value = word.lstrip("/-").partition("=")
        pairs.append((name.lower(), value))
    return pairs


def _help_text() -> str:
    return "\n".join(
        [
            f"usage: mongottl container {SUBCOMMANDS['container'].usage}",
            "",
            SUBCOMMANDS["container"].help,
            "",
            f"Also mongod's {', '.join(MONGOD_OPTIONS)}.",
            "",
            "options, with their defaults here:",
            *option_lines(config_from({"host": "*"})),
            "",
            SUBCOMMANDS["container"].see,
        ]
    )
