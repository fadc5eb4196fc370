"""Long texts are searched for words a window at a time, and every part of the work can be interrupted."""

import pytest

from mongottl.errors import CommandError, ErrorCode
from mongottl.query.fulltext.languages import ENGLISH
from mongottl.query.fulltext.tokenizer import WINDOW, Tokenizer
from tests.gaps import MAX_GAP_S, measured

TOKENIZER = Tokenizer(3, case_sensitive=True, diacritic_sensitive=True)


@pytest.mark.parametrize("before", [0, 1, 5, 6, 7, 8, 9, 30])
@pytest.mark.parametrize("length", [1, 7, WINDOW - 1, WINDOW, WINDOW + 1, 3 * WINDOW])
def test_words_across_windows_are_found_whole(before: int, length: int) -> None:
    word = "q" * length
    text = "zz" + " " * (WINDOW - 2 - before) + word + " zz" + "," * WINDOW + "zz"
    assert list(TOKENIZER.terms(text, ENGLISH)) == ["zz", word, "zz", "zz"]


def test_many_short_words_are_found() -> None:
    words = ["q" * (1 + i % 11) for i in range(WINDOW)]
    assert list(TOKENIZER.terms(" ".join(words), ENGLISH)) == words


@pytest.mark.parametrize("text", ["é" * 2_000_000, "a" * 5_000_000, " " * 10_000_000], ids=["é", "a", "blanks"])
def test_a_text_of_one_word_is_interrupted(text: str) -> None:
    tokenizer = Tokenizer(3)
    with measured() as gaps:
        list(tokenizer.terms(text, ENGLISH))
    assert gaps.longest_s <= MAX_GAP_S / 3
    with pytest.raises(CommandError) as caught, measured(3):
        list(tokenizer.terms(text, ENGLISH))
    assert caught.value.code == ErrorCode.MaxTimeMSExpired
