"""The warning that the system allows too few open files."""

import pytest

from mongottl.server.limits import raise_file_limit

resource = pytest.importorskip("resource")


@pytest.mark.parametrize(
    ("limits", "connections", "told", "raised"),
    [
        ((256, resource.RLIM_INFINITY), 1000, "", 1064),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 1000, "", None),
        ((2000, 4000), 1000, "", None),
        ((100, 1064), 1000, "", 1064),
        (
            (50, 100),
            1000,
            "the system allows 100 open files, so at most 36 connections are accepted: 1000 connections"
            " (--max-connections) and the server's own files need 1064 (ulimit -n 1064)",
            100,
        ),
        (
            (64, 64),
            10,
            "the system allows 64 open files, so perhaps no connection is accepted: 10 connections"
            " (--max-connections) and the server's own files need 74 (ulimit -n 74)",
            64,
        ),
    ],
)
def test_file_limit_is_raised_to_need_or_the_lack_reported(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], connections: int, told: str, raised: int | None
) -> None:
    wanted: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: wanted.append(pair))
    assert (raise_file_limit(connections) or "") == told
    assert wanted == ([] if raised is None else [(raised, limits[1])])
