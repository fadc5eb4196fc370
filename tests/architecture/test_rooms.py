"""How much is in one room: a folder whose files nobody can take in at a glance is divided by subject."""

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

# Files of Python in one folder of the package.
MOST_MODULES = 37
# And of tests.
MOST_TEST_FILES = 32


def files_by_folder(root: Path) -> Counter[str]:
    return Counter(str(path.parent.relative_to(ROOT)) for path in root.rglob("*.py"))


def test_no_folder_of_the_package_is_too_full() -> None:
    crowded = {folder: n for folder, n in files_by_folder(ROOT / "mongottl").items() if n > MOST_MODULES}
    assert crowded == {}


def test_no_folder_of_tests_is_too_full() -> None:
    crowded = {folder: n for folder, n in files_by_folder(ROOT / "tests").items() if n > MOST_TEST_FILES}
    assert crowded == {}


def test_the_life_of_a_request_fits_on_a_few_pages() -> None:
    lines = (ROOT / "mongottl/server/dispatch.py").read_text(encoding="utf-8").count("\n")
    assert lines <= 300
