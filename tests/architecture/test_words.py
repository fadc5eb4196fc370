"""Words at which a reader stops, as docs/style.md lists them: each has a noun, a unit or a condition instead."""

import ast
import re

from tests.architecture.test_imports import PACKAGE

REPOSITORY = PACKAGE.parent
RIDDLES = re.compile(
    r"\b(told|tells?|telling)\b|\bbehind\b|\bso (many|long|much)\b|\bas far as\b|"
    r"\bwhat there is\b|\bthat there is not\b",
    re.IGNORECASE,
)
# Where such a word is the right one: by file, with the number of lines and the reason.
ALLOWED = {
    "docs/architecture.md": (4, "behind a port, an interface, a network"),
    "docs/dotnet.md": (1, "behind a mapped port"),
    "docs/settings.md": (2, "a client that lags behind; memory that scripts hold"),
    "docs/style.md": (5, "examples of what not to write"),
    "docs/testing.md": (2, "a clock behind another one"),
    "mongottl/cli/run.py": (2, "processes that stay behind"),
    "mongottl/document/interrupt.py": (1, "leaves nothing behind"),
    "mongottl/exec/unit/recovery_unit.py": (1, "behind an interface"),
    "mongottl/query/match/near.py": (3, "texts of replies"),
    "mongottl/server/incoming.py": (4, "a client that lags behind, and the next one behind it in the queue"),
    "mongottl/server/web/page/page.js": (1, "a clock behind another one"),
    "mongottl/storage/interface.py": (1, "behind a network"),
    "mongottl/storage/sqlite/stored_state.py": (2, "lines of `mongottl check`"),
    "mongottl/wire/decode.py": (1, "the text of a protocol error"),
}
# The name of a test says subject, verb and condition; a pronoun at its beginning leaves the subject open.
PRONOUN = "test_(what|who|whose|which|how|it|its|they|their)"
VAGUE = re.compile(rf"{PRONOUN}(_|$)")


def riddles(text: str) -> list[int]:
    """The lines with words that the style guide replaces."""
    return [number for number, line in enumerate(text.splitlines(), 1) if RIDDLES.search(line)]


def vague_names(source: str) -> list[str]:
    """The tests of a module whose names begin with a pronoun."""
    if not re.search(rf"\bdef\s+{PRONOUN}", source):
        return []
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return [node.name for node in functions if VAGUE.match(node.name)]


def test_riddles_are_found() -> None:
    assert riddles("# Waits so long.\n# Seconds to wait.\n# The entry Behind it.\n# As far as known.\n") == [1, 3, 4]
    assert riddles("# intells, foretold, somany\n") == []


def test_vague_names_are_found() -> None:
    source = "def test_what_it_is() -> None: ...\n\n\nclass TestIt:\n    def test_they_end(self) -> None: ...\n"
    assert vague_names(source + "\n\ndef test_item_is_found() -> None: ...\n") == ["test_what_it_is", "test_they_end"]


def test_texts_have_the_noun_the_unit_and_the_condition() -> None:
    files = [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.js"), *(REPOSITORY / "docs").glob("*.md")]
    found = {str(file.relative_to(REPOSITORY)): lines for file in sorted(files) if (lines := riddles(file.read_text()))}
    assert {name: lines for name, lines in found.items() if name not in ALLOWED} == {}
    assert {name: len(lines) for name, lines in found.items()} == {name: count for name, (count, _) in ALLOWED.items()}


def test_no_name_of_a_test_begins_with_a_pronoun() -> None:
    files = sorted((REPOSITORY / "tests").rglob("test_*.py"))
    found = {str(file.relative_to(REPOSITORY)): vague_names(file.read_text()) for file in files}
    assert {file: names for file, names in found.items() if names} == {}
