"""One setting: how its text is parsed, on the command line or in the environment, and how its value is checked."""

import dataclasses
import operator
import os
import re
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple, SupportsIndex, TypeAlias

from mongottl.clock import parse_date


class SettingError(ValueError):
    """A setting has a value that it cannot have.

    field: its name in `ServerConfig`. The text begins with it, and may mention other settings, as `{}` in `reason`.
    """

    def __init__(self, field: str, reason: str, *mentioned: str) -> None:
        self.field = field
        self._reason = reason
        self._mentioned = mentioned
        super().__init__(self.text(str))

    def as_given(self, field: str) -> "SettingError":
        """The same error under another name of the setting."""
        return SettingError(field, self._reason, *self._mentioned)

    def text(self, name: Callable[[str], str]) -> str:
        """The error's text. name: gives the name by which the user knows a field, as that of its option."""
        reason = self._reason.format(*map(name, self._mentioned)) if self._mentioned else self._reason
        return f"{name(self.field)}: {reason}"


SettingValue: TypeAlias = str | int | bool | tuple[str, ...]


class Setting(NamedTuple):
    """What a field of `ServerConfig` may be, and where users find it.

    group: its heading in --help, a key of `SETTING_GROUPS`. value: "text", "path", "number", "host" (a name or an
    address), "address" (of a host, with a port), "set" (the name of a replica set), "store" (a URI), "time" (ISO 8601),
    "switch" (present or absent) or "names" (separated by commas; the option may be given repeatedly). choices: the
    values allowed, or none. parameter: the name that `getParameter` shows ("" for none). minimum, maximum: the smallest
    and largest number allowed. on_command_line: False for a secret, which only the environment gives, and which no
    error shows. field: the attribute of `ServerConfig`. optional: whether its default is None.
    """

    group: str
    value: str
    help: str
    choices: Collection[str] = ()
    parameter: str = ""
    minimum: int = 0
    maximum: int | None = None
    on_command_line: bool = True
    field: str = ""
    optional: bool = False

    @property
    def option(self) -> str:
        """The command-line option: `--data-dir`."""
        return "--" + self.field.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable: `MONGOTTL_DATA_DIR`."""
        return "MONGOTTL_" + self.field.upper()

    def parse(self, text: str) -> SettingValue:
        """The value of an option's or variable's text. SettingError says what would have been right."""
        value: SettingValue = text
        if self.value == "number":
            if not _NUMBER.fullmatch(text):
                raise self._wrong("a whole number", text)
            value = int(text)
        elif self.value == "switch":
            if text.lower() not in SWITCH_TEXTS:
                raise self._wrong("true or false", text)
            value = text.lower() in ("1", "true", "yes")
        elif self.value == "names":
            value = tuple(name for name in text.split(",") if name)
        self.check(value)
        return value

    def check(self, value: object) -> SettingValue | None:
        """The value as a configuration keeps it. SettingError for a bad one; None is one that is not set."""
        if value is None and self.optional:
            return None
        if self.value == "switch":
            if not isinstance(value, bool):
                raise self._wrong("True or False", value)
            return value
        if self.value == "number":
            return self._check_number(value)
        if self.value == "names":
            if not isinstance(value, (tuple, list)):
                raise self._wrong("a tuple of names", value)
            for name in value:
                if name not in self.choices:
                    raise self._wrong(f"one of {', '.join(self.choices)}", name)
            return tuple(str.__str__(name) for name in value)
        return self._check_text(value)

    def _check_number(self, value: object) -> int:
        # Also NumPy's whole numbers, and members of an IntEnum, which are written differently.
        if isinstance(value, bool) or not isinstance(value, SupportsIndex):
            raise self._wrong("a whole number", value)
        number = int(operator.index(value))
        if number < self.minimum:
            raise self._wrong(f"a number from {self.minimum} on", value)
        if self.maximum is not None and number > self.maximum:
            raise self._wrong(f"a number up to {self.maximum}", value)
        return number

    def _check_text(self, value: object) -> str:
        if self.value == "path" and isinstance(value, os.PathLike):
            value = os.fspath(value)
        elif self.value == "time" and not isinstance(value, str):
            value = self._time_text(value)
        if not isinstance(value, str):
            raise self._wrong("a text", value)
        value = str.__str__(value)  # the text of a member of an enumeration, which is written differently
        if self.choices and value not in self.choices:
            raise self._wrong(f"one of {', '.join(self.choices)}", value)
        if self.value == "host" and value and not (_is_host(value) or _is_ipv6(value) or value == _ALL_ADDRESSES):
            raise self._wrong("the name or address of a host, without port and brackets,", value)
        if self.value == "address" and not _is_address(value):
            raise self._wrong("host:port", value)
        if self.value == "store" and not value.startswith(STORES):
            raise SettingError(self.field, f"has to begin with {' or '.join(STORES)}")
        if self.value == "set" and "/" in value:
            raise SettingError(self.field, "may not contain a slash, which ends the name of a set in set/host:port")
        if self.value == "time":
            try:
                parse_date(value)
            except ValueError as error:
                raise SettingError(self.field, str(error)) from None
        if not value:
            raise SettingError(self.field, "may not be empty")
        if not _CONTROL_CHARACTERS.isdisjoint(value):
            raise SettingError(self.field, "may not contain control characters")
        try:
            # A path may have bytes that are no text, which Python keeps as surrogates.
            os.fsencode(value) if self.value == "path" else value.encode()
        except UnicodeEncodeError:
            raise SettingError(self.field, "may not contain surrogates, which cannot be written as UTF-8") from None
        return value

    def _time_text(self, value: object) -> str:
        """A `date` or `datetime` in ISO 8601."""
        from datetime import date

        if not isinstance(value, date):
            raise self._wrong("a datetime, or a text in ISO 8601,", value)
        return value.isoformat()

    def _wrong(self, needed: str, value: object) -> SettingError:
        shown = f", not {value!r}" if self.on_command_line else ""
        return SettingError(self.field, f"{needed} is needed{shown}")


_NUMBER: Final = re.compile(r"-?[0-9]{1,30}")
# What sets a switch, in any case of letters.
SWITCH_TEXTS: Final = ("1", "0", "true", "false", "yes", "no")
_CONTROL_CHARACTERS: Final = frozenset(map(chr, (*range(32), 127)))


# What glibc takes as the name of all addresses, and mongod's --bind_ip too.
_ALL_ADDRESSES: Final = "*"
# How the URI of a database begins that keeps the data.
LOCAL_STORE: Final = "local-postgresql:"
STORES: Final = ("postgresql://", "postgres://", LOCAL_STORE)
# Labels of letters, digits, hyphens and, as Docker makes them, underscores; also an IPv4 address. In a URI only letters
# beyond ASCII have to be escaped.
_HOST: Final = re.compile(r"[\w-]{1,63}(\.[\w-]{1,63})*\.?")
_MAX_HOST_CHARACTERS: Final = 254


def _is_host(text: str) -> bool:
    """Whether it is the name of a host, or an IPv4 address."""
    return len(text) <= _MAX_HOST_CHARACTERS and _HOST.fullmatch(text) is not None


def _is_ipv6(text: str) -> bool:
    """Whether it is an IPv6 address without brackets, perhaps with a zone (`fe80::1%eth0`)."""
    if ":" not in text:
        return False
    import ipaddress  # kept out of the start of the server

    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _is_address(text: str) -> bool:
    """Whether it is `host:port` or `[::1]:port`."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65_536:
        return False
    # A zone means something only on the machine that has it.
    return _is_host(host) or (host[:1] + host[-1:] == "[]" and "%" not in host and _is_ipv6(host[1:-1]))


# The key of a field's `Setting` in its metadata.
_METADATA: Final = "setting"


def setting_field(
    default: object,
    group: str,
    value: str,
    help: str,
    *,
    choices: Collection[str] = (),
    parameter: str = "",
    minimum: int = 0,
    maximum: int | None = None,
    on_command_line: bool = True,
) -> Any:
    """A field of `ServerConfig`: its default, and what else `Setting` says of it."""
    row = Setting(group, value, help, choices, parameter, minimum, maximum, on_command_line)
    # Secrets are shown nowhere.
    return dataclasses.field(default=default, repr=on_command_line, metadata={_METADATA: row})


def settings_of(config: Any) -> tuple[Setting, ...]:
    """The settings that the fields of a class declare, in their order."""
    return tuple(
        field.metadata[_METADATA]._replace(field=field.name, optional=field.default is None)
        for field in dataclasses.fields(config)
    )
