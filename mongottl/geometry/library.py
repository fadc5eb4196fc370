"""Checks whether the library for spherical geometry, s2rst, is installed."""

from importlib.util import find_spec

from mongottl.errors import CommandError, ErrorCode
from mongottl.extras import to_install


def require_sphere() -> None:
    """Must be called before importing modules that use S2, which happens at the first use of spherical geometry.

    CommandNotSupported (115) if the binding of S2 is not installed.
    """
    if find_spec("s2rst") is None:
        raise CommandError(
            ErrorCode.CommandNotSupported,
            f"Geometry on the sphere needs the Python package 's2rst': {to_install('geo')}",
        )
