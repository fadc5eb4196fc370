"""The BSON validator: what any encoder writes passes, what passes can be read by everything, the rest is refused."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import bson
import pytest
from bson.codec_options import CodecOptions, DatetimeConversion
from hypothesis import event, given, settings
from hypothesis import strategies as st

from mongottl.document.types import Value
from mongottl.document.validate import SlicedValidation, validate_document, validate_document_at
from mongottl.document.walk import fields
from mongottl.errors import CommandError

pytestmark = pytest.mark.slow


def load_check() -> Callable[[bytes], bool]:
    """The invariant that the fuzzer states, so that it is stated once."""
    path = Path(__file__).parents[1] / "fuzz" / "fuzz_validate.py"
    spec = importlib.util.spec_from_file_location("fuzz_validate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    check: Callable[[bytes], bool] = module.check
    return check


check = load_check()
OPTIONS: CodecOptions[dict[str, object]] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
NAMES = TEXT.map(lambda text: text.replace("\0", ""))
SCALARS: st.SearchStrategy[object] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    TEXT,
    st.text("aé", min_size=120, max_size=140),
    st.binary(max_size=10),
    st.builds(bson.Binary, st.binary(max_size=5), st.sampled_from([1, 5, 128])),
    st.binary(min_size=12, max_size=12).map(bson.ObjectId),
    st.binary(min_size=16, max_size=16).map(bson.Decimal128.from_bid),
    st.datetimes(),
    st.builds(bson.Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    st.builds(bson.Regex, NAMES, st.sampled_from([0, 2, 10])),
    TEXT.map(bson.Code),
    st.builds(bson.MinKey),
    st.builds(bson.MaxKey),
)
VALUES = st.recursive(
    SCALARS,
    lambda values: st.one_of(
        st.lists(values, max_size=3),
        st.dictionaries(NAMES, values, max_size=3),
        st.builds(bson.Code, TEXT, st.dictionaries(NAMES, values, max_size=2)),
    ),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=5).map(bson.encode)
# Bytes that mean something: type codes, lengths, terminators, the parts of UTF-8.
TELLING = st.sampled_from([*range(32), 127, 128, 0xC3, 0xED, 0xF0, 0xFF])


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    buf = bytearray(draw(DOCUMENTS))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(buf) - 1))
        kind = draw(st.sampled_from([0, 0, 0, 1, 2]))
        if kind == 0:
            buf[at] = draw(st.one_of(TELLING, st.integers(0, 255)))
        elif kind == 1:
            buf[at:at] = draw(st.binary(min_size=1, max_size=4))
        elif len(buf) > 6:
            del buf[at : at + draw(st.integers(1, 4))]
    if draw(st.booleans()):
        buf[:4] = len(buf).to_bytes(4, "little")  # so that the mutations inside are reached
    return bytes(buf)


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS)
def test_documents_of_pymongo_are_valid_and_fields_reads_the_same_names(document: bytes) -> None:
    assert check(document)
    names: list[tuple[str, Value]] = fields(document)
    assert [name for name, _ in names] == list(bson.decode(document, OPTIONS))


@settings(max_examples=500, deadline=None)
@given(mutated())
def test_mutated_documents_are_refused_or_readable(buf: bytes) -> None:
    event(f"passed: {check(buf)}")


@settings(max_examples=300, deadline=None)
@given(st.lists(TELLING, max_size=40), st.booleans())
def test_random_bytes_are_refused_or_readable(telling: list[int], with_length: bool) -> None:
    body = bytes(telling)
    if with_length:
        body = (len(body) + 5).to_bytes(4, "little") + body + b"\0"
    event(f"passed: {check(body)}")


def verdict(buf: bytes, max_depth: int) -> tuple[int, str]:
    try:
        validate_document(buf, max_depth)
    except CommandError as error:
        return error.code, error.message
    return 0, ""


@settings(max_examples=500, deadline=None)
@given(st.one_of(DOCUMENTS, mutated()), st.integers(1, 40), st.integers(1, 6))
def test_checking_in_slices_is_checking_at_once(buf: bytes, slice_bytes: int, max_depth: int) -> None:
    check = SlicedValidation(buf, max_depth, slice_bytes)
    found = (0, "")
    try:
        for _ in range(len(buf) + 1):
            if check.advance():
                break
        else:
            raise AssertionError("it goes on for ever")
    except CommandError as error:
        found = (error.code, error.message)
    assert found == verdict(buf, max_depth)


@settings(deadline=None)
@given(DOCUMENTS, st.binary(max_size=20), st.binary(max_size=20))
def test_checking_in_place_is_checking_a_copy(document: bytes, before: bytes, behind: bytes) -> None:
    buf = before + document + behind
    assert validate_document_at(buf, len(before), len(buf)) == len(before) + len(document)


@settings(deadline=None)
@given(mutated(), st.binary(max_size=8))
def test_checking_in_place_never_looks_behind_the_limit(buf: bytes, behind: bytes) -> None:
    def end_of(data: bytes) -> int:
        try:
            return int(validate_document_at(data, 0, len(buf)))
        except CommandError:
            return -1

    end = end_of(buf)
    assert end == end_of(buf + behind)
    try:
        validate_document(buf)
    except CommandError:
        assert end != len(buf)
    else:
        assert end == len(buf)
