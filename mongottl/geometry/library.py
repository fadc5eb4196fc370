"""The one place that knows whether spherical geometry is installed."""

from importlib.util import find_spec

from mongottl.errors import CommandError, ErrorCode


def require_sphere() -> None:
    """To be called before modules over S2 are imported, which is at the first use of spherical geometry.

    CommandNotSupported (115) where its binding is not installed.
    """
    if find_spec("s2rst") is None:
        raise CommandError(
            ErrorCode.CommandNotSupported,
            "Geometry on the sphere needs the Python package 's2rst': pip install 'mongottl[geo]'",
        )
