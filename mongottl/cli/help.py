"""`mongottl help [COMMAND|PAGE]`: the help of a command, or a page of the documentation as it is written.

The pages are in the folder `docs` of a checkout; where mongottl is installed, in `share/doc/mongottl`.
"""

import sys
import sysconfig
from importlib import import_module
from pathlib import Path
from typing import Final

from mongottl.cli.options import help_text
from mongottl.cli.subcommands import SUBCOMMANDS, UsageError
from mongottl.config import did_you_mean

_ROOT: Final = Path(__file__).resolve().parents[2]


def main(arguments: list[str]) -> int:
    """Exit status 0, or 2 for a word without help."""
    if not arguments:
        print(help_text())
        return 0
    if arguments[0] in ("--help", "-h", "help"):
        row = SUBCOMMANDS["help"]
        print(f"usage: mongottl help {row.usage}\n\n{row.help}\n\nThe pages are {', '.join(find_pages())}.")
        return 0
    name = arguments[0]
    if name in SUBCOMMANDS:
        return int(import_module(SUBCOMMANDS[name].module).main(["--help"]))
    pages = find_pages()
    page = pages.get(name.removesuffix(".md").lower())
    if page is None:
        advice = did_you_mean(name, [*SUBCOMMANDS, *pages])
        shown = ", ".join(pages) or "none, since the documentation is not installed"
        raise UsageError(f"there is no command and no page {name!r}{advice}; the pages are {shown}")
    sys.stdout.write(page.read_text(encoding="utf-8"))
    return 0


def find_pages() -> dict[str, Path]:
    """The pages by name, without `.md` and in small letters."""
    for root in (_ROOT, Path(sysconfig.get_path("data")) / "share" / "doc" / "mongottl"):
        if (root / "README.md").is_file() and ((root / "docs").is_dir() or (root / "settings.md").is_file()):
            folder = root / "docs" if (root / "docs").is_dir() else root
            return {path.stem.lower(): path for path in (root / "README.md", *sorted(folder.glob("*.md")))}
    return {}
