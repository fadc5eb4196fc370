"""What the server logs."""

import dataclasses
from dataclasses import dataclass


@dataclass
class LogSettings:
    """What is logged: with `quiet` only warnings and errors; from verbosity 1 on (mongod's logLevel) commands as
    well."""

    quiet: bool = False
    verbosity: int = 0
    # Levels of single components, by name; those that are not set, or -1, follow `verbosity`.
    components: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def command_verbosity(self) -> int:
        """The level of the lines about commands."""
        own = self.components.get("command", -1)
        return self.verbosity if own < 0 else own
