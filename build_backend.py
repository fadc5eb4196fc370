"""setuptools' build backend, which asks for mypyc only where something will be compiled.

    MONGOTTL_PURE=1, or no C compiler   setuptools alone, and a wheel of plain Python
    otherwise                           mypyc, whose packages take pip several seconds to install

A backend of our own can tell the two apart; the list `build-system.requires` cannot.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import sysconfig
import tempfile

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

# librt is mypyc's runtime, so the two go together. The types of `bson` are needed to compile against it.
COMPILER = ["mypy==2.4.1", "librt==0.16.0", "mypy_extensions>=1.1", "pymongo>=4.10"]


def get_requires_for_build_wheel(config_settings: build_meta._ConfigSettings = None) -> list[str]:
    return COMPILER if compiles() else []


get_requires_for_build_editable = get_requires_for_build_wheel


def compiles() -> bool:
    """Whether modules are compiled here: unless MONGOTTL_PURE=1 is set, or there is no C compiler.

    Nor are they for a Python that is too old, which pip refuses when it has the metadata.
    """
    if sys.version_info < (3, 11):  # noqa: UP036  (pip runs this on every Python)
        return False
    return os.environ.get("MONGOTTL_PURE") != "1" and (sys.platform == "win32" or c_compiler_works())


def c_compiler_works() -> bool:
    """Whether a small extension module compiles here."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    include = sysconfig.get_paths()["include"]
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "probe.c")
        source.write_text("#include <Python.h>\nint probe(void) { return PY_MAJOR_VERSION; }\n")
        try:
            command = [*compiler, "-fPIC", f"-I{include}", "-c", str(source), "-o", str(source.with_suffix(".o"))]
            return subprocess.run(command, capture_output=True, check=False).returncode == 0
        except OSError:
            return False
