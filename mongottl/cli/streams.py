"""Standard input, output and errors of this process."""

import os
import sys


def open_closed_streams() -> None:
    """Opens those of standard input, output and errors that this process was started without, so that no other file
    takes their place. Processes that this one starts do not get them."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which takes the lowest number
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # open to the end, as the others
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
