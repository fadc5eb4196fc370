"""Work on texts of 16 MB is divided where that is possible, and others may run between the parts that are not."""

import time
from collections.abc import Callable

import pytest

from mongottl.document.build import encode_fields
from mongottl.document.collation import Collation, with_keys
from mongottl.document.keystring import encode_raw, encode_value
from mongottl.document.types import STRING
from mongottl.document.walk import get_value
from tests.gaps import longest_stall_s

TEXT = "añb漢" * 2_000_000
DOCUMENT = encode_fields([("t", TEXT)])
# Where the value is in it: after the size, the type and the name.
VALUE = 7
# Half of it has a key of 16 MB. Encoding it is one call, copying the key several: of the whole text that call
# would be four fifths of the work.
HALF = TEXT[: len(TEXT) // 2]
KEY = bytes([45, 200, 47, 201]) * 4_000_000
# Without the library, which makes keys of long texts in another thread.
COLLATION = Collation(encode_fields([("locale", "en")]), lambda text: KEY)

WORK: dict[str, Callable[[], object]] = {
    "encoding": lambda: encode_fields([("t", TEXT), ("u", TEXT[:-1])]),
    "decoding": lambda: (get_value(DOCUMENT, "t"), get_value(DOCUMENT, "t")),
    "a key": lambda: encode_raw(DOCUMENT, STRING, VALUE),
    "a key in descending order": lambda: encode_value(TEXT, descending=True),
    "a collated key": lambda: encode_value(HALF, collation=COLLATION),
    "a collated value": lambda: with_keys(HALF, COLLATION),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORK)
def test_no_part_of_the_work_on_a_long_text_is_most_of_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.gaps.STALL_S", 0.0)  # the best of all runs counts
    whole_s = float("inf")
    for _ in range(3):
        began_s = time.thread_time()
        WORK[name]()
        whole_s = min(whole_s, time.thread_time() - began_s)
    assert longest_stall_s(WORK[name]) < 0.85 * whole_s
