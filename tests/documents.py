"""README.md, CHANGELOG.md and the pages of docs, and the code blocks in them: tells which test runs which language.

A fence names its language. `text` is for what is not run: output, trees of files. A block of any other language has to
be run by the test module that `RUN_BY` names for it, so that nothing stands in the documents that no test has tried.
The blocks of a page in `FILES_RUN_BY` are files instead, which the page's own test module takes by their names.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
CHANGELOG = ROOT / "CHANGELOG.md"
DOCS = ROOT / "docs"

# From the language of a block to the test module that runs it.
RUN_BY = {
    "python": "tests/drivers/process/test_document_blocks.py",
    "js": "tests/drivers/process/test_document_blocks.py",  # mongosh
    "sh": "tests/drivers/process/test_document_blocks.py",
    "toml": "tests/drivers/process/test_document_blocks.py",
    "javascript": "tests/clients/test_recipes.py",
    "java": "tests/clients/test_recipes.py",
    "go": "tests/clients/test_recipes.py",
    "rust": "tests/clients/test_recipes.py",
}
NOT_RUN = "text"
# From a page whose blocks are files to the test module that takes them. A comment in the first line names each file.
FILES_RUN_BY = {"docs/containers.md": "tests/clients/test_container_recipes.py"}


@dataclass(frozen=True)
class Block:
    """One fenced block. `where` is the document's path and the line of the fence; `language` may be empty."""

    where: str
    language: str
    code: str

    @property
    def page(self) -> str:
        return self.where.partition(":")[0]


def documents() -> dict[str, str]:
    """The text of each document, by its path from the top folder, README first, then CHANGELOG."""
    paths = [README, CHANGELOG, *sorted(DOCS.glob("*.md"))]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def all_blocks() -> list[Block]:
    """Every fenced block of every document. ValueError if a fence is not closed."""
    found = []
    for name, text in documents().items():
        opened: tuple[int, str] | None = None
        lines: list[str] = []
        for number, line in enumerate(text.splitlines(keepends=True), 1):
            fence = re.match(r" *```(.*)", line)
            if fence is None:
                lines.append(line)
            elif opened is None:
                opened, lines = (number, fence[1].strip()), []
            else:
                found.append(Block(f"{name}:{opened[0]}", opened[1], "".join(lines)))
                opened = None
        if opened is not None:
            raise ValueError(f"{name}:{opened[0]}: the block has no end")
    return found


def blocks(language: str) -> list[Block]:
    """The blocks of one language, but for those that are files. ValueError if `RUN_BY` does not have it."""
    if language not in RUN_BY:
        raise ValueError(f"no test runs blocks of {language!r}")
    return [block for block in all_blocks() if block.language == language and block.page not in FILES_RUN_BY]


def files(page: str) -> dict[str, str]:
    """The blocks of a page in `FILES_RUN_BY` by the names in their first lines. ValueError for one without a name."""
    found = {}
    for block in all_blocks():
        if block.page != page or block.language == NOT_RUN:
            continue
        named = re.match(r"(?:#|//) (\S+)\n", block.code)
        if named is None or named[1] in found:
            raise ValueError(f"{block.where}: the first line names no file, or one that was there before")
        found[named[1]] = block.code
    return found
