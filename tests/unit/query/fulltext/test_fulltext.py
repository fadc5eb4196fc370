"""Words, stems, languages and search strings."""

import tracemalloc

import pcre2
import pytest

from mongottl.document.build import encode
from mongottl.document.types import Value
from mongottl.errors import CommandError
from mongottl.query.fulltext.fields import TextFields
from mongottl.query.fulltext.languages import ENGLISH, LANGUAGES, MAX_STEMMED_CHARACTERS, NONE, Language, language_named
from mongottl.query.fulltext.search import SearchString, TextSearch
from mongottl.query.fulltext.stopwords import STOP_WORDS
from mongottl.query.fulltext.tokenizer import Tokenizer
from mongottl.query.fulltext.unicode_tables import DELIMITERS, DIACRITICS, ranges


def named(name: str) -> Language:
    language = language_named(name)
    assert language is not None
    return language


@pytest.mark.parametrize(
    ("text", "language", "terms"),
    [
        ("", "english", []),
        ("the quick brown foxes", "english", ["quick", "brown", "fox"]),
        ("Running, ran; RUNS!", "english", ["run", "ran", "run"]),
        ("blueberries blueberry", "english", ["blueberri", "blueberri"]),
        ("well-known e-mail@example.com #tag $price", "english", "well known e mail exampl com tag price".split()),
        ("don't the dog's 'quoted'", "english", ["dog", "quot"]),
        ("snake_case stays", "english", ["snake_cas", "stay"]),
        ("hello\0world\ttab\nline\x1fend", "none", ["hello", "world", "tab", "line", "end"]),
        ("Café ÉTÉ naïve Ångström", "none", ["cafe", "ete", "naive", "angstrom"]),
        ("数据库系统 こんにちは世界", "english", ["数据库系统", "こんにちは世界"]),
        ("数据库，系统。", "none", ["数据库", "系统"]),
        ("it«est»là—bas…", "none", ["it", "est", "la", "bas"]),
        ("Il a dit qu'il «était le meilleur joueur du monde»", "french", ["dit", "meilleur", "joueur", "mond"]),
        ("les chevaux courant", "fr", ["cheval", "cour"]),
        ("me gusta corriendo", "spanish", ["gust", "corr"]),
        ("Die Häuser und die Bäume", "german", ["haus", "baum"]),
        ("Кошка кошки и кошку", "russian", ["кошк", "кошк", "кошк"]),
        ("сы́рники", "none", ["сырники"]),
        ("IRMAK İzmir", "turkish", ["ırmak", "izmir"]),
        ("STRASSE straße ẞ", "none", ["strasse", "straße", "ß"]),
        ("ΣΊΣΥΦΟΣ σίσυφος", "none", ["σισυφοσ", "σισυφοσ"]),
    ],
)
def test_terms(text: str, language: str, terms: list[str]) -> None:
    assert list(Tokenizer(3).terms(text, named(language))) == terms


@pytest.mark.parametrize(
    ("case_sensitive", "diacritic_sensitive", "terms"),
    [
        (False, False, ["cafe", "open"]),
        (True, False, ["Cafe", "OPEN"]),
        (False, True, ["café", "open"]),
        (True, True, ["Café", "OPEN"]),
    ],
)
def test_sensitivity(case_sensitive: bool, diacritic_sensitive: bool, terms: list[str]) -> None:
    assert list(Tokenizer(3, case_sensitive, diacritic_sensitive).terms("The Café is OPEN", ENGLISH)) == terms


def test_every_language_has_a_stemmer_and_stop_words() -> None:
    assert len(LANGUAGES) == 16
    for language in LANGUAGES:
        assert named(language.name.upper()) is language
        assert named(language.code) is language
        assert list(Tokenizer(3).terms("internationalisation", language))
        if language is not NONE:
            words = STOP_WORDS[language.name].split()
            assert len(words) > 50
            assert len(set(words)) == len(words)
            assert all(word == word.lower() for word in words)
            assert list(Tokenizer(3).terms(words[0], language)) == []
    assert language_named("klingon") is None
    assert language_named("") is None
    assert list(Tokenizer(3).terms("The the", NONE)) == ["the", "the"]


@pytest.mark.parametrize(
    ("search", "positive", "negated", "phrases", "negated_phrases"),
    [
        ("coffee cake", ["coffee", "cake"], [], [], []),
        ("coffee -cake", ["coffee"], ["cake"], [], []),
        ("-coffee-cake tea", ["tea"], ["coffee-cake"], [], []),
        ("coffee-cake", ["coffee-cake"], [], [], []),
        ("coffee - cake", ["coffee", "cake"], [], [], []),
        ("--cake", [], ["-cake"], [], []),
        ('"brown fox" quick', ["brown fox", "quick"], [], ["brown fox"], []),
        ('quick -"brown fox" red', ["quick", "red"], [], [], ["brown fox"]),
        ('quick - "brown fox"', ["quick", "brown fox"], [], ["brown fox"], []),
        ('a"b c"d', ["a", "b c", "d"], [], ["b c"], []),
        ('"no -negation here"', ["no -negation here"], [], ["no -negation here"], []),
        ('open "phrase ends', ["open", "phrase ends"], [], [], []),
        ('open -"phrase ends', ["open"], [], [], []),
        ('""', [""], [], [""], []),
        ("  ", [], [], [], []),
    ],
)
def test_search_strings(
    search: str, positive: list[str], negated: list[str], phrases: list[str], negated_phrases: list[str]
) -> None:
    parts = SearchString(search)
    assert (parts.positive, parts.negated) == (positive, negated)
    assert (parts.phrases, parts.negated_phrases) == (phrases, negated_phrases)


@pytest.mark.parametrize(
    ("table", "pattern"),
    [
        (
            DELIMITERS,
            r"[\p{Dash}\p{Pattern_Syntax}\p{Quotation_Mark}\p{Terminal_Punctuation}\p{White_Space}\xAD\u30FB\uFF65"
            r"\x00-\x1F\x7F]+",
        ),
        (DIACRITICS, r"\p{Diacritic}+"),
    ],
)
def test_tables_are_what_pcre2_knows(table: str, pattern: str) -> None:
    """U+00AD, U+30FB and U+FF65 are hyphens by a property that PCRE2 does not have."""
    planes = "".join(chr(code) for code in range(0x20000) if not 0xD800 <= code < 0xE000)
    known = "".join(pcre2.compile(pattern).findall(planes))
    assert known == "".join(chr(code) for first, last in ranges(table) for code in range(first, last + 1))


FIELDS = TextFields({"a": 1, "b.c": 2}, ENGLISH, "language", 3)


@pytest.mark.parametrize(
    ("search", "document", "matches"),
    [
        ("cake", {"a": "cakes"}, True),
        ("cake", {"a": "pie", "b": encode({"c": "Cake!"})}, True),
        ("cake", {"a": "pie", "c": "cake"}, False),
        ("cake", {"a": encode({"x": "cake"})}, False),
        ("cake", {"a": [1, ["cake"]]}, True),
        ("cake", {"b": [encode({"c": "pie"}), encode({"c": ["cake"]})]}, True),
        ("cake -pie", {"a": "cake", "b": encode({"c": "pies"})}, False),
        ('"brown fox"', {"a": "The Brown Foxes"}, True),
        ('"brown fox"', {"a": "brown", "b": encode({"c": "fox"})}, False),
        ('"brown fox" "red dog"', {"a": "brown fox", "b": encode({"c": "red dog"})}, True),
        ('fox -"brown fox"', {"a": "brown fox"}, False),
        ('fox -"brown fox"', {"a": "brown red fox"}, True),
        ('"a fox"', {"a": "a fox"}, True),
        ('"the"', {"a": "the"}, False),
    ],
)
def test_documents(search: str, document: dict[str, Value], matches: bool) -> None:
    assert TextSearch(search, ENGLISH, False, False, FIELDS).matches(encode(document)) is matches


def test_text_fields_take_language_and_weight_of_each_string() -> None:
    fields = TextFields({"$**": 1, "x.y": 7}, ENGLISH, "lang", 3)
    spanish = encode({"lang": "spanish", "y": "uno", "z": encode({"lang": "", "w": ["dos", 3]})})
    document = encode({"_id": "id", "x": spanish, "n": 1, "language": "german"})
    assert [(text, language.name, weight) for text, language, weight in fields.texts(document)] == [
        ("id", "english", 1),
        ("uno", "spanish", 7),
        ("dos", "spanish", 1),
        ("german", "english", 1),
    ]
    bad: list[tuple[Value, int]] = [(1, 17261), (None, 17261), ("klingon", 17262)]
    for value, code in bad:
        with pytest.raises(CommandError) as refused:
            fields.texts(encode({"lang": value, "x": "y"}))
        assert refused.value.code == code


def test_weights_of_paths_with_very_many_components_take_memory_for_these_alone() -> None:
    """All their prefixes would take 200 MB."""
    path = ".".join(["component"] * 100)
    weights = {f"{number}.{path}": 2 for number in range(4_000)}
    tracemalloc.start()
    fields = TextFields(weights, ENGLISH, "language", 3)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 1 << 20
    document: Value = "text"
    for name in reversed(f"17.{path}".split(".")):
        document = encode({name: document, "other": encode({"component": "text"})})
    assert isinstance(document, bytes)
    assert [(text, weight) for text, _, weight in fields.texts(document)] == [("text", 2)]


@pytest.mark.parametrize("everywhere", [0, 3])
def test_a_subdocument_is_searched_if_it_leads_to_a_path_with_a_weight(everywhere: int) -> None:
    weights = {"a.b.c": 1, "a.bd": 2, "a-b.c": 4, "a": 5} | ({"$**": everywhere} if everywhere else {})
    fields = TextFields(weights, ENGLISH, "language", 3)
    leaf = encode({"c": "leaf", "d": "other"})
    document = encode(
        {"a": encode({"b": leaf, "bd": "two", "be": leaf}), "a-b": leaf, "a-": leaf, "ab": "no", "e": leaf}
    )
    found = [(text, weight) for text, _, weight in fields.texts(document)]
    named = [("leaf", 1), ("two", 2), ("leaf", 4)]
    assert [pair for pair in found if pair[1] != everywhere] == named
    assert len(found) == (len(named) + 9 if everywhere else len(named))


def test_words_of_a_thousand_characters_are_stemmed_and_longer_ones_are_not() -> None:
    """The stemmer takes time for each character, and meanwhile nobody else is answered."""
    longest = "ab" * (MAX_STEMMED_CHARACTERS // 2 - 1) + "bs"
    assert ENGLISH.stem(longest) != longest
    assert ENGLISH.stem("x" + longest) == "x" + longest
