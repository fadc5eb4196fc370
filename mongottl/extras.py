"""How what an extra brings gets installed, for the errors that name a missing library.

There is no package of mongottl on an index, so its name alone installs nothing; a checkout does. The image has all
extras.
"""


def to_install(extra: str) -> str:
    """What to do, as the end of an error. extra: a name of `optional-dependencies` in pyproject.toml."""
    return f"pip install '.[{extra}]' in mongottl's checkout, where scripts/setup installs it, too"
