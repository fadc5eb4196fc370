"""How many records the scans of an operation examine in one step, so that a step takes about STEP_S.

Made with the first scan. Scans count what they examine, and after each step `OperationContext.give_way` adapts the
number to the time that the step has taken.
"""

from typing import Final

# Records (or index entries) that a scan examines in one step at most: a fraction of a millisecond's work.
MAX_STEP_RECORDS: Final = 256
# Target duration of a step; the number of records that scans examine in a step is set by it.
STEP_S: Final = 0.002


class Pace:
    """The pace of one operation."""

    def __init__(self, step_records: int = MAX_STEP_RECORDS) -> None:
        # How many records a scan may examine in one step. Less than MAX_STEP_RECORDS if the filter or the stages take
        # long for each.
        self.step_records: int = step_records
        # By scans, in the present step.
        self.records_examined: int = 0

    def adapt(self, elapsed_s: float) -> None:
        """Called after each step, with its duration in seconds: sets how many records the next one may examine."""
        examined = self.records_examined
        if examined == 0:
            return
        self.records_examined = 0
        if elapsed_s > STEP_S:
            self.step_records = max(1, min(self.step_records, int(examined * STEP_S / elapsed_s)))
        elif self.step_records < MAX_STEP_RECORDS:
            self.step_records *= 2
