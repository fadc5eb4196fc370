"""The server's options on the command line, and their help, from the table of settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mongottl.cli.mongod_options import counterpart
from mongottl.cli.subcommands import SUBCOMMANDS, UsageError
from mongottl.config import (
    SETTING_GROUPS,
    SETTINGS,
    ServerConfig,
    Setting,
    SettingError,
    config_from,
    config_from_environment,
    did_you_mean,
)

_FORMS: Final = {
    "number": "N",
    "text": "TEXT",
    "path": "PATH",
    "host": "HOST",
    "address": "HOST:PORT",
    "set": "NAME",
    "store": "URI",
    "names": "NAME",
    "time": "TIME",
}


REMARKS: Final = (
    "--no-NAME switches off what is on. Options that list names may be repeated, of others the last one counts.",
    "Each option can also be given in the environment: MONGOTTL_PORT=27018, MONGOTTL_DATA_DIR=…",
    '--config FILE (MONGOTTL_CONFIG) reads options from a file in TOML: port = 27018, data-dir = "…", quiet = true.',
    "An option counts before its variable, and this before the file.",
)
CONFIG_OPTION: Final = "--config"
CONFIG_VARIABLE: Final = "MONGOTTL_CONFIG"


def configuration(
    arguments: list[str],
    environment: Mapping[str, str],
    others: Mapping[str, list[str]] | None = None,
    for_tests: bool = False,
) -> ServerConfig:
    """The configuration that the options, the environment and the file of `--config` give, which count in this order.

    others: see `parse_arguments`. for_tests: as for `config_from`. UsageError names what is wrong as it was given.
    """
    paths: list[str] = [environment[CONFIG_VARIABLE]] if environment.get(CONFIG_VARIABLE) else []
    options = parse_arguments(arguments, {**(others or {}), CONFIG_OPTION: paths})
    variables = config_from_environment(environment)
    in_file = read_config_file(paths[-1]) if paths else {}
    named = {s.field: s.option if s.on_command_line else s.variable for s in SETTINGS}
    named |= {field: f"{paths[-1]}: {_file_key(field)}" for field in in_file}
    named |= {s.field: s.variable for s in SETTINGS if s.field in variables}
    named |= {s.field: s.option for s in SETTINGS if s.field in options}
    try:
        return config_from({**in_file, **variables, **options}, for_tests)
    except SettingError as error:
        raise UsageError(error.text(named.__getitem__)) from None


def _file_key(field: str) -> str:
    return field.replace("_", "-")


def read_config_file(path: str) -> dict[str, str]:
    """The settings that a file in TOML names, as texts by field: `data-dir = "…"`, as in options, or `data_dir`.

    UsageError for a file that cannot be read, an unknown name, a table, and a secret in a file that others may read.
    """
    import tomllib  # kept out of the start of servers without such a file

    try:
        with open(path, "rb") as file:
            values: dict[str, Any] = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"{CONFIG_OPTION}: cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from None
    by_field = {setting.field: setting for setting in SETTINGS}
    texts: dict[str, str] = {}
    for key, value in values.items():
        setting = by_field.get(key.replace("-", "_"))
        if setting is None:
            advice = counterpart(f"--{key}") or did_you_mean(key, map(_file_key, by_field))
            raise UsageError(f"{path}: there is no setting {key}{advice}")
        if not setting.on_command_line and Path(path).stat().st_mode & 0o077:
            raise UsageError(f"{path}: {key} is a secret, and others may read the file: chmod 600 {path}")
        texts[setting.field] = _text_of(path, key, value)
    return texts


def _text_of(path: str, key: str, value: object) -> str:
    """A value of a file as the text that an option has."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ",".join(value)
    if isinstance(value, (str, int)):
        return str(value)
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    raise UsageError(f"{path}: {key}: a text, a whole number, true, false, a time or a list of texts is needed")


def parse_arguments(arguments: list[str], others: Mapping[str, list[str]] | None = None) -> dict[str, str]:
    """The settings that the arguments name, as texts by field. UsageError for an unknown option.

    others: options that are no settings, as `--env`; the texts that are given for each are appended to its list.
    """
    others = others or {}
    by_option = {setting.option: setting for setting in SETTINGS if setting.on_command_line}
    texts: dict[str, str] = {}
    place = 0
    while place < len(arguments):
        option, equals, value = arguments[place].partition("=")
        place += 1
        negated = option.startswith("--no-")
        setting = by_option.get("--" + option[5:] if negated else option)
        if option not in others and (setting is None or (negated and setting.value != "switch")):
            if not option.startswith("-"):
                raise UsageError(f"an option is needed, not {arguments[place - 1]!r}")
            advice = counterpart(option) or did_you_mean(option, [*by_option, *others])
            raise UsageError(f"unknown option {option}{advice}")
        if negated and equals:
            raise UsageError(f"{option} takes no value")
        if setting is not None and setting.value == "switch":
            texts[setting.field] = value if equals else "false" if negated else "true"
            continue
        if not equals:
            if place == len(arguments):
                raise UsageError(f"{option} needs a value")
            value = arguments[place]
            name = value.partition("=")[0]
            positive = "--" + name[5:] if name.startswith("--no-") else name
            if name in others or name in by_option or positive in by_option:
                raise UsageError(f"{option} needs a value; {option}={value} if {value} is meant")
            place += 1
        if setting is None:
            others[option].append(value)
            continue
        if setting.value == "names" and setting.field in texts:
            value = f"{texts[setting.field]},{value}"
        texts[setting.field] = value
    return texts


def help_text() -> str:
    """The text of --help, from the table of settings."""
    lines = [
        "usage: mongottl [serve] [options]",
        "       mongottl COMMAND …",
        "",
        "A MongoDB server whose documents expire as in Azure Cosmos DB.",
        "",
        "commands (each has its --help):",
        *[f"{f'  {row.name} {row.usage}'.rstrip()}\n        {row.help}" for row in SUBCOMMANDS.values()],
        "",
        "options of the server:",
        *option_lines(ServerConfig()),
        "  --version",
        "        Show the version, and whether it is compiled.",
        "",
        *REMARKS,
        "",
        "`mongottl help COMMAND` shows the options of a command, `mongottl help PAGE` a page: README, expiring (when",
        "documents expire), testing (test suites), cosmos (the dialect cosmos), operating (how to run a server), ….",
    ]
    return "\n".join(lines)


def option_lines(defaults: ServerConfig) -> list[str]:
    """The part of a help text that describes the server's options, group by group."""
    lines: list[str] = []
    for group, title in SETTING_GROUPS.items():
        lines.append(f" {title}:")
        for setting in SETTINGS:
            if setting.group == group:
                lines += option_help(setting, getattr(defaults, setting.field))
    return lines


def option_help(setting: Setting, default: object) -> list[str]:
    """The lines of a help text about one setting, the option's form first."""
    if not setting.on_command_line:
        return [f"  {setting.variable}=TEXT (environment)", f"        {setting.help}"]
    lines = [f"  {_option_form(setting, default)}", f"        {setting.help}{_default_note(default)}"]
    if setting.value == "names":
        lines += [f"          {name}" for name in setting.choices]
    return lines


def _option_form(setting: Setting, default: object) -> str:
    if setting.value == "switch":
        return f"--[no-]{setting.option[2:]}" if default is True else setting.option
    if setting.choices and setting.value != "names":
        return f"{setting.option} {{{','.join(setting.choices)}}}"
    return f"{setting.option} {_FORMS[setting.value]}"


def _default_note(default: object) -> str:
    if default is True:
        return " Default: on."
    if default is None or isinstance(default, (bool, tuple)):
        return ""
    return f" Default: {default}."
