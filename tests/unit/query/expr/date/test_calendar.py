"""Time zones."""

import os
import subprocess
import sys


def test_named_time_zones_need_no_files_of_the_system() -> None:
    program = "from mongottl.query.expr.date.calendar import time_zone; print(time_zone('Asia/Tokyo').name)"
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONTZPATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "Asia/Tokyo\n"
