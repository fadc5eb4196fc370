"""What is refused where the packages for JavaScript are missing."""

import pytest

from mongottl.errors import ErrorCode
from mongottl.javascript import library


@pytest.mark.parametrize("missing", ["quickjs", "greenlet"])
def test_missing_packages(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setattr(library, "find_spec", lambda name: None if name == missing else object())
    reason = library.missing_reason()
    assert "pip install '.[javascript]'" in reason
    assert library.refusal("$where", reason).code == ErrorCode.BadValue
    error = library.refusal("mapReduce", reason)
    assert error.code == ErrorCode.CommandNotSupported
    assert error.message == f"mapReduce is not supported: {reason}"
