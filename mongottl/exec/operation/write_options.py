"""How a command that writes documents treats them: set by the commands that have such fields, before they write."""

from typing import Final


class WriteOptions:
    """It is never changed, and there are four of them, which `write_options` returns."""

    def __init__(self, bypass_validation: bool, keeps_empty_timestamps: bool) -> None:
        # Whether documents that the collection's validator refuses may be written (`bypassDocumentValidation`).
        self.bypass_validation: Final[bool] = bypass_validation
        # Whether empty timestamps in inserts and replacements are stored as they are
        # (`bypassEmptyTsReplacement`).
        self.keeps_empty_timestamps: Final[bool] = keeps_empty_timestamps


ORDINARY: Final = WriteOptions(False, False)
_BYPASSING: Final = WriteOptions(True, False)
_KEEPING: Final = WriteOptions(False, True)
UNCHECKED: Final = WriteOptions(True, True)


def write_options(bypass_validation: bool, keeps_empty_timestamps: bool = False) -> WriteOptions:
    if bypass_validation:
        return UNCHECKED if keeps_empty_timestamps else _BYPASSING
    return _KEEPING if keeps_empty_timestamps else ORDINARY
