"""Builds mongottl: the hot packages are compiled with mypyc where a C compiler is there, else they stay plain Python.

MONGOTTL_PURE=1 leaves them plain on purpose. Everything else is in pyproject.toml.
"""

import os
import pathlib
import subprocess
import sys
import sysconfig
import tempfile

from setuptools import Extension, setup

ROOT = pathlib.Path(__file__).parent

# What is compiled: where documents are read, matched, changed, stored and sent. The shell around it waits for sockets.
COMPILED = (
    "mongottl/document",
    "mongottl/query",
    "mongottl/ttl",
    "mongottl/wire",
)


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


def extensions() -> list[Extension]:
    if os.environ.get("MONGOTTL_PURE") == "1":
        return []
    if sys.platform != "win32" and not c_compiler_works():
        print("mongottl: no working C compiler; the server will be installed interpreted and about ten times slower")
        return []
    from mypyc.build import mypycify

    files = sorted(str(path.relative_to(ROOT)) for folder in COMPILED for path in (ROOT / folder).rglob("*.py"))
    return mypycify(files, opt_level=os.environ.get("MONGOTTL_OPT_LEVEL", "2"), debug_level="0", multi_file=True)


setup(ext_modules=extensions())
