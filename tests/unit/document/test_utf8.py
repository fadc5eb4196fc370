from hypothesis import given
from hypothesis import strategies as st

from mongottl.document.compare import compare_values
from mongottl.document.keystring import encode_value
from mongottl.document.path import FieldPath
from mongottl.document.types import JavaScript, Regex, Symbol
from mongottl.document.utf8 import compare_texts, decode_text, encode_text, is_valid_text, is_valid_utf8
from mongottl.query.match.comparison import InExpression
from mongottl.query.update.nodes import compare_components

ANY_BYTES = (
    st.binary(max_size=8)
    | st.text(max_size=6).map(lambda text: text.encode())
    | st.tuples(st.text(max_size=3), st.binary(max_size=2)).map(lambda parts: parts[0].encode() + parts[1])
)


@given(ANY_BYTES)
def test_every_text_keeps_its_bytes(data: bytes) -> None:
    assert encode_text(decode_text(data)) == data


@given(ANY_BYTES, ANY_BYTES)
def test_texts_compare_as_their_bytes_do(a: bytes, b: bytes) -> None:
    left, right = decode_text(a), decode_text(b)
    assert compare_texts(left, right) == (a > b) - (a < b)
    assert (left == right) == (a == b)


def test_escaped_bytes_sort_after_characters_that_have_greater_code_points() -> None:
    assert decode_text(b"\xff") < "\ue000"
    assert compare_texts(decode_text(b"\xff"), "\ue000") == 1
    assert compare_texts("\U0001f600", decode_text(b"\xff")) == -1


@given(ANY_BYTES | st.binary(max_size=40) | st.sampled_from([b"x" * 99, b"x" * 99 + b"\xff", b"x" * 99 + b"\xc3\xa9"]))
def test_valid_bytes_are_told_from_others(data: bytes) -> None:
    assert is_valid_utf8(data) == is_valid_text(decode_text(data)) == (data.decode(errors="ignore").encode() == data)


def test_valid_text_is_told_from_other_bytes() -> None:
    assert is_valid_text("abc") and is_valid_text("\U0001f600")
    assert not is_valid_text(decode_text(b"a\xff"))


@given(ANY_BYTES, ANY_BYTES)
def test_values_and_their_keys_are_ordered_by_the_bytes_of_texts(a: bytes, b: bytes) -> None:
    order = (a > b) - (a < b)
    left, right = decode_text(a), decode_text(b)
    for x, y in (
        (left, right),
        (Symbol(left), right),
        ([left], [right]),
        (JavaScript(left), JavaScript(right)),
        (Regex(left, ""), Regex(right, "")),
    ):
        assert compare_values(x, y) == order
        x_key, y_key = encode_value(x), encode_value(y)
        assert (x_key > y_key) - (x_key < y_key) == order


@given(ANY_BYTES, ANY_BYTES)
def test_components_of_updated_paths_are_ordered_by_their_bytes(a: bytes, b: bytes) -> None:
    left, right = decode_text(b"a" + a), decode_text(b"a" + b)
    assert compare_components(left, right) == (a > b) - (a < b)


@given(st.lists(ANY_BYTES, max_size=5))
def test_the_values_of_in_are_ordered_by_their_bytes(data: list[bytes]) -> None:
    expression = InExpression(FieldPath("a"), [decode_text(text) for text in data], [])
    assert [encode_text(str(value)) for value in expression.values] == sorted(set(data))
