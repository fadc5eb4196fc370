"""Builds mongottl: the hot packages are compiled with mypyc where a C compiler is there, else they stay plain Python.

MONGOTTL_PURE=1 leaves them plain on purpose. What pip needs for it is in build_backend.py, the rest in pyproject.toml.
"""

import gc
import os
import pathlib
import re
import shutil
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# pip looks at `requires-python` only after it has run this file, which fails in less clear ways.
if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit("mongottl needs Python 3.11 or later; this is {}.{}.{}".format(*sys.version_info[:3]))

ROOT = pathlib.Path(__file__).parent
sys.path.insert(0, str(ROOT))

from build_backend import compiles  # noqa: E402

# pip runs this file twice: to write the metadata, and to build. Only these commands build.
BUILDING = {"bdist_wheel", "build", "build_ext", "develop", "editable_wheel", "install"}

# What is compiled: where documents are read, matched, changed, stored and sent. The shell around it waits for sockets.
COMPILED = (
    "mongottl/catalog",
    "mongottl/commands/collection_uuid.py",
    "mongottl/commands/concerns.py",
    "mongottl/commands/crud/delete.py",
    "mongottl/commands/crud/insert.py",
    "mongottl/commands/crud/statement_batch.py",
    "mongottl/commands/crud/update.py",
    "mongottl/commands/crud/write_batch.py",
    "mongottl/commands/query_context.py",
    "mongottl/commands/request.py",
    "mongottl/dialect/cosmos/budgets.py",
    "mongottl/dialect/cosmos/fail_points.py",
    "mongottl/dialect/cosmos/feed_stream.py",
    "mongottl/dialect/cosmos/metering.py",
    "mongottl/dialect/cosmos/request_meter.py",
    "mongottl/dialect/cosmos/served_sorts.py",
    "mongottl/dialect/cosmos/statement_gate.py",
    "mongottl/dialect/cosmos/targeting.py",
    "mongottl/dialect/cosmos/throughput.py",
    "mongottl/dialect/interface.py",
    "mongottl/document",
    "mongottl/exec",
    "mongottl/geometry",
    "mongottl/oplog",
    "mongottl/query",
    "mongottl/regex/compiled.py",
    "mongottl/regex/library.py",
    "mongottl/server/admission.py",
    "mongottl/server/command_log.py",
    "mongottl/server/command_lookup.py",
    "mongottl/server/connection/at_once.py",
    "mongottl/server/connection/channel.py",
    "mongottl/server/connection/exchange.py",
    "mongottl/server/dispatch.py",
    "mongottl/server/fail_command.py",
    "mongottl/server/message_body.py",
    "mongottl/server/message_traits.py",
    "mongottl/server/node_dispatch.py",
    "mongottl/server/replies.py",
    "mongottl/server/session_use.py",
    "mongottl/server/transactions.py",
    "mongottl/server/waits.py",
    "mongottl/storage/checksums.py",
    "mongottl/storage/errors.py",
    "mongottl/storage/forwarding.py",
    "mongottl/storage/interface.py",
    "mongottl/storage/memory",
    "mongottl/storage/snapshot",
    "mongottl/storage/sqlite/bounded_rows.py",
    "mongottl/storage/sqlite/record_cache.py",
    "mongottl/storage/stores.py",
    "mongottl/storage/unit_of_work.py",
    "mongottl/ttl",
    "mongottl/wire",
)

# The C compiler takes most of the time of an installation, so each module gets the optimisation that it is worth: HOT,
# which is run for every document, -O2; AGGREGATION, of which most is run once for each pipeline, -Og, which takes 40 %
# of its time; the rest -O1 without two passes that find little in such code. docs/building.md has the figures.
HOT = (
    "mongottl/catalog/keys.py",
    "mongottl/document",
    "mongottl/exec/stages/index_scan.py",
    "mongottl/exec/stages/key_ranges.py",
    "mongottl/exec/write/index_build.py",
    "mongottl/exec/write/keys_ahead.py",
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
    "mongottl/storage/checksums.py",
    "mongottl/storage/memory",
    "mongottl/storage/sqlite/bounded_rows.py",
    "mongottl/storage/sqlite/record_cache.py",
    "mongottl/storage/unit_of_work.py",
    "mongottl/wire",
)

AGGREGATION = ("mongottl/geometry", "mongottl/query/expr", "mongottl/query/fulltext", "mongottl/query/pipeline")
OPTIMISATIONS = {"hot": ["-O2"], "aggregation": ["-Og"], "cold": ["-O1", "-fno-tree-pta", "-fno-tree-dominator-opts"]}

# Functions that are worth less than the rest of their module: what a module runs once, when it is imported; and those
# by which interpreted code calls compiled functions and takes attributes, and by which generators are ended early.
# Together they are two fifths of the C code. Either kind also has its own part of the library: between them there were
# few pages that no import touched, and so that were not in the memory of every server.
RUN_ONCE = re.compile(
    r"^(?=char CPyDef_\w+_____top_level__\(void\) \{$"
    r"|PyObject \*CPyInit(?:Only)?_\w+\(void\)\n\{$"
    r"|(?:static )?int CPyExec_\w+\(PyObject \*module\)\n\{$"
    r"|static bool\nCPyDef_\w+_setup(?:_shadow)?\([^;\n]*\)\n\{$)",
    re.MULTILINE,
)
CALLED_BY_PYTHON = re.compile(
    r"^ *(?=PyObject \*CPyPy_\w+\([^;]*\) \{$"
    r"|PyObject \*CPyDef_\w+_gen___(?:throw|close)\([^;]*\) \{$"
    r"|static (?:int|PyObject \*)\n\w+_(?:init|[gs]et_\w+)\([^;\n]*\)\n\{$)",
    re.MULTILINE,
)
MARKS = {RUN_ONCE: "LESS_OPTIMISED PLACED(startup) ", CALLED_BY_PYTHON: "LESS_OPTIMISED PLACED(unlikely) "}

DEFINED_MARKS = """
#if defined(__GNUC__) && !defined(__clang__)
#define LESS_OPTIMISED __attribute__((optimize("Og")))
#else
#define LESS_OPTIMISED
#endif
#ifdef __ELF__
#define PLACED(part) __attribute__((section(".text." #part)))
#else
#define PLACED(part)
#endif
"""

# Of this size in bytes a C file is compiled at a time; a hundred times that is compiled in all. It takes the compiler
# about 300 MB of memory.
BATCH_BYTES = 1_500_000

# Python finds an extension module by its file, and there the function `PyInit_` with the last part of its name. For
# each module mypyc writes a C file, which makes an extension that only calls the large library. This one serves every
# module: it reads the whole name from the module's specification. So it is compiled once, and copied.
SHIM = """
#include <Python.h>

static PyObject *create(PyObject *spec, PyModuleDef *definition) {
    PyObject *name = PyObject_GetAttrString(spec, "name");
    PyObject *part = name ? PyObject_CallMethod(name, "replace", "ss", ".", "___") : NULL;
    PyObject *attribute = part ? PyUnicode_FromFormat("init_%U", part) : NULL;
    PyObject *library = attribute ? PyImport_ImportModule(LIBRARY) : NULL;
    PyObject *capsule = library ? PyObject_GetAttr(library, attribute) : NULL;
    PyObject *(*init)(void) =
        capsule ? (PyObject *(*)(void))PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)) : NULL;
    Py_XDECREF(name);
    Py_XDECREF(part);
    Py_XDECREF(attribute);
    Py_XDECREF(library);
    Py_XDECREF(capsule);
    return init ? init() : NULL;
}

static PyModuleDef_Slot slots[] = {{Py_mod_create, (void *)create}, {0, NULL}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = LIBRARY, .m_slots = slots};
#define MODULE(name) PyMODINIT_FUNC PyInit_##name(void) { return PyModuleDef_Init(&definition); }
"""


def python_files(names: tuple[str, ...]) -> list[str]:
    """The modules of these files and folders, by their paths from here."""
    files: list[str] = []
    for name in names:
        found = [ROOT / name] if name.endswith(".py") else (ROOT / name).rglob("*.py")
        files.extend(sorted(str(path.relative_to(ROOT)) for path in found))
    return files


def extensions() -> list[Extension]:
    if not BUILDING.intersection(sys.argv):
        return []
    if not compiles():
        print("mongottl: not compiled; the server will be about ten times slower")
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
    # To search mypyc's millions of objects for garbage, meanwhile and when Python ends, takes 5 s and finds little.
    gc.disable()
    try:
        return mypycify([*options, *python_files(COMPILED)], opt_level=opt_level, debug_level="0", multi_file=True)
    finally:
        gc.freeze()
        gc.enable()


def c_file(path: str) -> str:
    """The name that mypyc gives to the C file of a module."""
    parts = pathlib.PurePath(path).with_suffix("").parts
    return f"__native_{'___'.join(part for part in parts if part != '__init__')}.c"


def batched(sources: list[str], name: str) -> list[str]:
    """C files that include these, of about BATCH_BYTES each.

    mypyc writes a C file for each module, and in each the compiler would read the same 2 MB of headers again: for 380
    modules longer than it takes it to compile the half of them. mypyc can also write all of it as one file, so no two
    names are the same. The modules of a package stay together, so that they are together in the library: a server that
    does not need the package does not have its pages in memory.
    """
    sources = sorted(sources, key=lambda source: source.rpartition("___")[::2])
    for source in sources:
        path = pathlib.Path(source)
        text = path.read_text()
        for functions, marks in MARKS.items():
            text = functions.sub(marks, text)
        path.write_text(text)
    sizes = [os.path.getsize(source) for source in sources]
    count = max(1, round(sum(sizes) / BATCH_BYTES))
    batches: dict[int, list[str]] = {}
    before = 0
    for source, size in zip(sources, sizes, strict=True):
        batches.setdefault((before + size // 2) * count // sum(sizes), []).append(source)
        before += size
    files = []
    for number, batch in batches.items():
        file = os.path.join(os.path.dirname(batch[0]), f"{name}_{number}.c")
        included = "".join(f'#include "{os.path.basename(source)}"\n' for source in batch)
        pathlib.Path(file).write_text(DEFINED_MARKS + included)
        files.append(file)
    return files


def shim(library: Extension, modules: list[Extension]) -> str:
    """The C file from which the extension of each of these modules is made."""
    # The name of a package ends in `__init__` here, but not when Python imports it.
    names = {part for module in modules for part in module.name.split(".")}
    functions = "".join(f"MODULE({name})\n" for name in sorted(names))
    file = pathlib.Path(modules[0].sources[0]).with_name("shim.c")
    file.write_text(f'#define LIBRARY "{library.name}"\n{SHIM}{functions}')
    return str(file)


class ParallelBuild(build_ext):
    """Compiles on all cores: the one large extension, which has the code of all modules, and then the small ones, by
    which Python finds each of them."""

    def build_extensions(self) -> None:
        self.check_extensions_list(self.extensions)
        compile_serially = self.compiler.compile
        kinds = {c_file(path): "aggregation" for path in python_files(AGGREGATION)}
        kinds |= {c_file(path): "hot" for path in python_files(HOT)}

        def compile_one(source, args, kwargs):  # type: ignore[no-untyped-def]  # distutils' own signature
            flags = list(kwargs.get("extra_postargs") or ())
            if self.compiler.compiler_type == "unix":
                # Only Python calls functions of the library from outside; hidden, they are called directly inside.
                flags.append("-fvisibility=hidden")
                # Python's own flags ask for warnings, which take the compiler a tenth of its time.
                flags.append("-Wno-all")
                kind = os.path.basename(source).partition("_")[0]
                flags.extend(OPTIMISATIONS.get(kind, OPTIMISATIONS["cold"]))
            return compile_serially([source], *args, **{**kwargs, "extra_postargs": flags})

        def compile_parallel(sources, *args, **kwargs):  # type: ignore[no-untyped-def]
            modules = [source for source in sources if os.path.basename(source).startswith("__native_")]
            if modules:
                runtime = [source for source in sources if source not in modules]
                sources = []
                for kind in OPTIMISATIONS:
                    chosen = [source for source in modules if kinds.get(os.path.basename(source), "cold") == kind]
                    sources.extend(batched(chosen, kind))
                sources.extend(runtime)
            compiled = pool.map(lambda source: compile_one(source, args, kwargs), sources)
            return [name for names in compiled for name in names]

        [large] = [extension for extension in self.extensions if len(extension.sources) > 1]
        small = [extension for extension in self.extensions if len(extension.sources) == 1]
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            self.compiler.compile = compile_parallel
            self.build_extension(large)
            self.compiler.compile = compile_serially
            if sysconfig.get_config_var("Py_GIL_DISABLED"):
                # For Python without the GIL, mypyc's library has other functions.
                list(pool.map(self.build_extension, small))
                return
        first, *others = small
        first.sources = [shim(large, small)]
        if sys.platform == "linux":
            # There will be hundreds of this file: without symbols and tables for unwinding it is half the size.
            first.extra_compile_args = [*first.extra_compile_args, "-fno-asynchronous-unwind-tables"]
            first.extra_link_args = ["-s"]
        self.build_extension(first)
        for extension in others:
            path = self.get_ext_fullpath(extension.name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            shutil.copyfile(self.get_ext_fullpath(first.name), path)


setup(ext_modules=extensions(), cmdclass={"build_ext": ParallelBuild})
