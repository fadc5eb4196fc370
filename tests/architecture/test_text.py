"""Text that may come from documents is decoded and encoded by `document.utf8` alone.

A string of BSON may hold bytes that are no UTF-8. A bare `text.encode("utf-8")` fails on it with an InternalError.
"""

import ast

from tests.architecture.test_imports import PACKAGE

# The packages that read and write documents.
PACKAGES = (
    "catalog",
    "commands",
    "dialect",
    "document",
    "exec",
    "geometry",
    "javascript",
    "oplog",
    "processes",
    "query",
    "regex",
    "security",
    "storage",
    "ttl",
    "wire",
)
# Where other text is meant, or invalid UTF-8 is to be noticed; by file, with the number of calls and the reason.
OTHERS = {
    "commands/security/login.py": (1, "user names of X.509 logins, shown in a log"),
    "dialect/cosmos/account_user.py": (3, "keys, of settings and of chance"),
    "document/utf8.py": (8, "the functions themselves"),
    "javascript/answers.py": (2, "messages of QuickJS, shown to people"),
    "javascript/worker.py": (1, "messages of QuickJS, shown to people"),
    "processes/conversation.py": (1, "the last words of a process that has ended"),
    "query/expr/conversion.py": (1, "$convert of binary data refuses what is no UTF-8"),
    "query/icu.py": (1, "ICU replaces bytes that are no text"),
    "security/scram.py": (1, "user names in SCRAM's messages must be UTF-8"),
    "storage/postgresql/failures.py": (2, "messages of PostgreSQL, shown to people"),
    "storage/postgresql/local_cluster.py": (2, "messages of PostgreSQL, shown to people"),
    "wire/decode.py": (1, "names of collections in OP_QUERY must be UTF-8"),
}


def bare_conversions(source: str) -> list[int]:
    """The lines that convert between text and UTF-8 by themselves."""
    lines: list[int] = []
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("encode", "decode")
        ):
            encodings = [*node.args, *[keyword.value for keyword in node.keywords if keyword.arg == "encoding"]]
            named = [value.value for value in encodings[:1] if isinstance(value, ast.Constant)]
            if not encodings or any(str(name).lower() in ("utf-8", "utf8") for name in named):
                lines.append(node.lineno)
    return sorted(lines)


def test_bare_conversions_are_found() -> None:
    source = 'a.encode()\nb.decode("UTF-8", "replace")\nc.encode(encoding="utf8")\nd.encode("ascii")\nencode(e)\n'
    assert bare_conversions(source) == [1, 2, 3]


def test_text_of_documents_is_converted_by_functions_that_take_any_bytes() -> None:
    found = {
        str(file.relative_to(PACKAGE)): lines
        for package in PACKAGES
        for file in sorted((PACKAGE / package).rglob("*.py"))
        if (lines := bare_conversions(file.read_text()))
    }
    assert {name: lines for name, lines in found.items() if name not in OTHERS} == {}
    assert {name: len(lines) for name, lines in found.items()} == {name: count for name, (count, _) in OTHERS.items()}
