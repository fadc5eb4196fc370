"""What all tests share: helper modules under `tests` and `bench` can be imported, and the header says what is tested.

The repository's root comes last on the path, so that an installed (compiled) mongottl is not shadowed by its sources.
"""

import signal
import sys
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is, and nothing of what is tested.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

sys.path.append(str(Path(__file__).parents[1]))


def _stay(number: int, frame: FrameType | None) -> None:
    """Does nothing at a signal."""


def pytest_configure() -> None:
    """Lets processes that tests start take the signals that the suite itself was started to ignore.

    Shells and `nohup` start what runs in the background so, and a program inherits what is ignored, but not a handler.
    """
    for name in ("SIGINT", "SIGHUP", "SIGQUIT"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _stay)
    from tests.on_store import is_wanted, serve_from_store
    from tests.postgres import missing, wanted_version

    if (is_wanted() or wanted_version()) and missing():
        raise pytest.UsageError(missing())
    if is_wanted():
        serve_from_store()
    from tests.balancer import HAPROXY
    from tests.on_nodes import is_balanced, serve_by_nodes, wanted

    if is_balanced() and (wanted() == 1 or HAPROXY is None):
        raise pytest.UsageError("MONGOTTL_TEST_BALANCER needs MONGOTTL_TEST_NODES, and an haproxy that is installed")
    if wanted() > 1:
        if not is_wanted():
            raise pytest.UsageError("MONGOTTL_TEST_NODES needs MONGOTTL_TEST_STORE")
        serve_by_nodes(wanted())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    from tests.on_nodes import begin

    begin(item)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the replies of the scripts in tests/golden")


def pytest_report_header(config: pytest.Config) -> str:
    import mongottl
    from mongottl.build_info import describe_version
    from tests.on_store import is_wanted
    from tests.postgres import chosen, missing

    found = None if missing() else chosen()
    store = f"PostgreSQL {found.major}" if found else "no PostgreSQL"
    return f"{describe_version()} from {Path(mongottl.__file__).parent}; {store}{', for all servers' * is_wanted()}"
