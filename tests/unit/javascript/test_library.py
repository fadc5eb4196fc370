"""What is refused where the package for JavaScript is missing."""

import pytest

from mongottl.errors import ErrorCode
from mongottl.javascript import library


def test_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "find_spec", lambda name: None)
    reason = library.missing_reason()
    assert "pip install '.[javascript]'" in reason
    assert library.refusal("$where", reason).code == ErrorCode.BadValue
    error = library.refusal("mapReduce", reason)
    assert error.code == ErrorCode.CommandNotSupported
    assert error.message == f"mapReduce is not supported: {reason}"
