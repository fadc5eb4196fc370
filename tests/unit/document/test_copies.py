"""Others may run after a long value was copied, whatever its type; not after each short one."""

from collections.abc import Callable

import pytest

from mongottl.document.build import ArrayBuilder, DocumentBuilder, encode
from mongottl.document.interrupt import begin_evaluation, check_often, clear_check, end_evaluation, set_check
from mongottl.document.types import ARRAY, BinData, RawArray, Value
from mongottl.document.walk import find_field, get_value, read_embedded
from tests.running import HurriedClock

LONG = 4 << 20
SHORT = 1000


def document_of(size: int) -> bytes:
    return encode({"b": BinData(bytes(size), 0)})


def array_of(size: int) -> RawArray:
    array = ArrayBuilder()
    array.append(document_of(size))
    return array.finish()


def written(value: Value) -> Callable[[], object]:
    return lambda: encode({"v": value})


def read(value: Value) -> Callable[[], object]:
    document = encode({"v": value})
    return lambda: get_value(document, "v")


def embedded(value: RawArray) -> Callable[[], object]:
    document = encode({"v": value})
    kind, place = find_field(document, b"v")
    assert kind == ARRAY
    return lambda: read_embedded(document, place)


def finished(builder: ArrayBuilder | DocumentBuilder) -> Callable[[], object]:
    return builder.finish


def filled_array(size: int) -> ArrayBuilder:
    array = ArrayBuilder()
    array.append(document_of(size))
    return array


def filled_document(size: int) -> DocumentBuilder:
    document = DocumentBuilder()
    document.append_raw_element(document_of(size)[4:-1])
    return document


COPIES: dict[str, Callable[[int], Callable[[], object]]] = {
    "a document is written": lambda size: written(document_of(size)),
    "an array is written": lambda size: written(array_of(size)),
    "binary data is written": lambda size: written(BinData(bytes(size), 0)),
    "a text is written": lambda size: written("x" * size),
    "a document is read": lambda size: read(document_of(size)),
    "an array is read whole": lambda size: embedded(array_of(size)),
    "binary data is read": lambda size: read(BinData(bytes(size), 0)),
    "a text is read": lambda size: read("x" * size),
    "an array is ended": lambda size: finished(filled_array(size)),
    "a document is ended": lambda size: finished(filled_document(size)),
}


def checks_of(work: Callable[[], object]) -> int:
    """How often others may run meanwhile, if each step is due to let them."""
    checks: list[None] = []
    check_often(False)
    set_check(lambda: checks.append(None), HurriedClock(1.0).monotonic_s)
    begin_evaluation()
    try:
        work()
    finally:
        end_evaluation()
        clear_check()
    return len(checks)


@pytest.mark.parametrize("name", COPIES)
def test_others_may_run_after_a_long_copy(name: str) -> None:
    assert checks_of(COPIES[name](LONG)) > 0
    assert checks_of(COPIES[name](SHORT)) == 0
