"""Names that are like a wrong one."""

from collections.abc import Iterable


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`; did you mean --port?`, or nothing if no name is like the wrong one."""
    import difflib

    # All options begin with dashes, and whether letters are capitals says nothing about what was meant.
    by_letters = {known.lstrip("-").lower(): known for known in names}
    similar = difflib.get_close_matches(name.lstrip("-").lower(), by_letters, 1)
    return f"; did you mean {by_letters[similar[0]]}?" if similar else ""
