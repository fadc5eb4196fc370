"""The one error of this package."""


class DumpError(OSError):
    """A file or folder cannot be loaded. The text names it, the line or the byte offset in it, and what is wrong."""
