"""The environment of the processes that tests start."""

import os


def without_settings(**variables: str) -> dict[str, str]:
    """The environment of this process, with these variables, and without those that say how the tests run.

    Such as MONGOTTL_DATABASE_TOOLS: a server warns of variables that look like its settings and are none.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MONGOTTL_")}
    return {**inherited, **variables}
