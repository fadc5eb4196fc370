"""The list of differences in docs/differences.md and the tests of this folder are the same list, number by number."""

import ast
import re
from pathlib import Path

FOLDER = Path(__file__).parent
LIST = FOLDER.parents[1] / "docs" / "differences.md"


def test_each_difference_has_its_test_and_each_test_its_difference() -> None:
    section = LIST.read_text(encoding="utf-8")
    listed = {
        int(n): " ".join(title.split()) for n, title in re.findall(r"^(\d+)\. \*\*(.+?)\*\*", section, re.M | re.S)
    }
    assert list(listed) == list(range(1, len(listed) + 1))
    tested: dict[int, str] = {}
    for path in sorted(FOLDER.glob("test_diff_*.py")):
        found = re.fullmatch(r"test_diff_(\d\d)_\w+\.py", path.name)
        assert found is not None, path.name
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        assert docstring is not None, path.name
        tested[int(found[1])] = " ".join(docstring.partition("\n\n")[0].split())
    assert tested == listed
