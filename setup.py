"""Builds mongottl: the hot packages are compiled with mypyc where a C compiler is there, else they stay plain Python.

MONGOTTL_PURE=1 leaves them plain on purpose. Everything else is in pyproject.toml.
"""

import os
import pathlib
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).parent

# What is compiled: where documents are read, matched, changed, stored and sent. The shell around it waits for sockets.
COMPILED = (
    "mongottl/catalog",
    "mongottl/commands/request.py",
    "mongottl/document",
    "mongottl/exec",
    "mongottl/geometry",
    "mongottl/oplog",
    "mongottl/query",
    "mongottl/storage/interface.py",
    "mongottl/storage/memory",
    "mongottl/storage/snapshot",
    "mongottl/storage/unit_of_work.py",
    "mongottl/ttl",
    "mongottl/wire",
)

# Of these, what is run for every document, and is worth what the C compiler takes for its best. The rest is compiled
# with -O1, which takes it 40 % less time.
HOT = (
    "mongottl/catalog/keys.py",
    "mongottl/document",
    "mongottl/exec/stages/index_scan.py",
    "mongottl/exec/stages/key_ranges.py",
    "mongottl/exec/write/modifying.py",
    "mongottl/exec/results/reading.py",
    "mongottl/exec/stages/stage.py",
    "mongottl/exec/write/writes.py",
    "mongottl/query/expr/accumulators.py",
    "mongottl/query/expr/arithmetic.py",
    "mongottl/query/expr/base.py",
    "mongottl/query/expr/exponential.py",
    "mongottl/query/expr/path.py",
    "mongottl/query/match/comparison.py",
    "mongottl/query/match/elements.py",
    "mongottl/query/match/interval.py",
    "mongottl/query/match/regex.py",
    "mongottl/query/match/tree.py",
    "mongottl/query/pipeline/foreign_table.py",
    "mongottl/query/pipeline/graph_lookup.py",
    "mongottl/query/pipeline/group.py",
    "mongottl/query/pipeline/lookup.py",
    "mongottl/query/pipeline/source.py",
    "mongottl/query/pipeline/unwind.py",
    "mongottl/query/projection/nodes.py",
    "mongottl/query/sort.py",
    "mongottl/query/sorter.py",
    "mongottl/query/update/nodes.py",
    "mongottl/storage/memory",
    "mongottl/storage/unit_of_work.py",
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


def python_files(names: tuple[str, ...]) -> list[str]:
    """The modules of these files and folders, by their paths from here."""
    files: list[str] = []
    for name in names:
        found = [ROOT / name] if name.endswith(".py") else (ROOT / name).rglob("*.py")
        files.extend(sorted(str(path.relative_to(ROOT)) for path in found))
    return files


def extensions() -> list[Extension]:
    if os.environ.get("MONGOTTL_PURE") == "1":
        return []
    if sys.platform != "win32" and not c_compiler_works():
        print("mongottl: no working C compiler; the server will be installed interpreted and about ten times slower")
        return []
    from mypyc.build import mypycify

    # Only what is compiled is checked here; what it imports from the rest, and libraries, need not be there. What comes
    # from a library that is missing is of type Any, which is no fault.
    options = [
        "--follow-imports=silent",
        "--ignore-missing-imports",
        "--no-warn-return-any",
        "--no-warn-unused-ignores",
    ]
    opt_level = os.environ.get("MONGOTTL_OPT_LEVEL", "2")
    return mypycify([*options, *python_files(COMPILED)], opt_level=opt_level, debug_level="0", multi_file=True)


def c_file(path: str) -> str:
    """The name that mypyc gives to the C file of a module."""
    parts = pathlib.PurePath(path).with_suffix("").parts
    return f"__native_{'___'.join(part for part in parts if part != '__init__')}.c"


class ParallelBuild(build_ext):
    """Compiles the C files of an extension side by side: mypyc makes one large extension of many files."""

    def build_extensions(self) -> None:
        compile_serially = self.compiler.compile
        hot = {c_file(path) for path in python_files(HOT)}

        def compile_one(source, args, kwargs):  # type: ignore[no-untyped-def]  # distutils' own signature
            flags = list(kwargs.get("extra_postargs") or ())
            if os.path.basename(source) not in hot:
                flags = ["-O1" if flag == "-O2" else flag for flag in flags]
            return compile_serially([source], *args, **{**kwargs, "extra_postargs": flags})

        def compile_parallel(sources, *args, **kwargs):  # type: ignore[no-untyped-def]
            # The largest first, so that none of them is left over for the end.
            by_size = sorted(sources, key=os.path.getsize, reverse=True)
            with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                compiled = pool.map(lambda source: compile_one(source, args, kwargs), by_size)
                return [name for names in compiled for name in names]

        self.compiler.compile = compile_parallel
        super().build_extensions()


setup(ext_modules=extensions(), cmdclass={"build_ext": ParallelBuild})
