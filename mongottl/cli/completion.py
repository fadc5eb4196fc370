"""`mongottl completion SHELL`: what makes bash, zsh or fish complete commands, options and their values.

    bash    eval "$(mongottl completion bash)"      in ~/.bashrc
    zsh     eval "$(mongottl completion zsh)"       in ~/.zshrc, after compinit
    fish    mongottl completion fish | source       in ~/.config/fish/config.fish

All is generated from the tables of commands and settings.
"""

import re
import shlex
from typing import Final

from mongottl.cli.arguments import ArgumentParser
from mongottl.cli.subcommands import SUBCOMMANDS
from mongottl.cli.trust import RECIPES
from mongottl.config import SETTINGS, Setting

_NAME: Final = "completion"
# The commands that take the server's options.
_SERVERS: Final = ("serve", "run", "emulator", "container")
_SHELLS: Final = ("bash", "zsh", "fish")
# What the first word after a command can be.
_WORDS: Final = {"help": tuple(SUBCOMMANDS), "completion": _SHELLS, "trust": tuple(RECIPES)}


def main(arguments: list[str]) -> int:
    """Exit status 0, or 2 for an unknown shell."""
    parser = ArgumentParser(_NAME)
    parser.add_argument("shell", choices=_SHELLS)
    shell = parser.parse_args(arguments).shell
    print(_fish() if shell == "fish" else _bash() if shell == "bash" else _zsh())
    return 0


def _settings() -> list[Setting]:
    return [setting for setting in SETTINGS if setting.on_command_line]


def _own_options() -> dict[str, list[str]]:
    """The options of commands that are no settings, by command."""
    found = {row.name: re.findall(r"--[a-z][a-z-]*", row.usage) for row in SUBCOMMANDS.values()}
    return {name: options for name, options in found.items() if options}


def _bash() -> str:
    """A function that looks at the word before, for values, and else offers commands or options."""
    values = "\n".join(
        f'        {s.option}) COMPREPLY=($(compgen -W {shlex.quote(" ".join(s.choices))} -- "$word")); return ;;'
        for s in _settings()
        if s.choices
    )
    paths = "|".join(["--config", *(s.option for s in _settings() if s.value == "path")])
    others = "|".join(s.option for s in _settings() if not s.choices and s.value not in ("path", "switch"))
    options = " ".join(["--config", "--help", *(s.option for s in _settings())])
    own = _own_options()
    more = "\n".join(
        f'            {name}) COMPREPLY+=($(compgen -W {shlex.quote(" ".join(given))} -- "$word")) ;;'
        for name, given in own.items()
    )
    words = "\n".join(
        f'            {name}) COMPREPLY=($(compgen -W {shlex.quote(" ".join(given))} -- "$word")) ;;'
        for name, given in _WORDS.items()
    )
    return f"""_mongottl() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
    COMPREPLY=()
    case $before in
{values}
        {paths}) COMPREPLY=($(compgen -f -- "$word")); return ;;
        {others}) return ;;
    esac
    if [ "$COMP_CWORD" = 1 ] && [ "${{word#-}}" = "$word" ]; then
        COMPREPLY=($(compgen -W {shlex.quote(" ".join(SUBCOMMANDS))} -- "$word"))
    elif [ "${{word#-}}" != "$word" ]; then
        case ${{COMP_WORDS[1]}} in
            {"|".join(_SERVERS)}|-*) COMPREPLY=($(compgen -W {shlex.quote(options)} -- "$word")) ;;
        esac
        case ${{COMP_WORDS[1]}} in
{more}
        esac
    elif [ "$COMP_CWORD" = 2 ] && [[ $before =~ ^({"|".join(_WORDS)})$ ]]; then
        case $before in
{words}
        esac
    else
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}}
complete -F _mongottl mongottl"""


def _zsh() -> str:
    """The function of bash, which zsh takes by its own means."""
    return f"autoload -Uz bashcompinit && bashcompinit\n{_bash()}"


def _fish() -> str:
    """A line for each command, option and choice."""
    commands = " ".join(SUBCOMMANDS)
    lines = ["complete -c mongottl -f"]
    for row in SUBCOMMANDS.values():
        description = shlex.quote(row.help)
        lines.append(
            f"complete -c mongottl -n 'not __fish_seen_subcommand_from {commands}' -a {row.name} -d {description}"
        )
    server = f"__fish_seen_subcommand_from {' '.join(_SERVERS)}; or not __fish_seen_subcommand_from {commands}"
    for setting in _settings():
        line = f"complete -c mongottl -n {shlex.quote(server)} -l {setting.option[2:]} -d {shlex.quote(setting.help)}"
        if setting.choices:
            line += f" -x -a {shlex.quote(' '.join(setting.choices))}"
        elif setting.value == "path":
            line += " -r -F"
        elif setting.value != "switch":
            line += " -x"
        lines.append(line)
    for name, words in _WORDS.items():
        lines.append(f"complete -c mongottl -n '__fish_seen_subcommand_from {name}' -a {shlex.quote(' '.join(words))}")
    for name, options in _own_options().items():
        for option in options:
            lines.append(f"complete -c mongottl -n '__fish_seen_subcommand_from {name}' -l {option[2:]}")
    return "\n".join(lines)
