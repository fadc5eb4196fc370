"""`$text`: a search in the one text index of the collection."""

from mypy_extensions import i64

from mongottl.document.types import Value, type_code_of, type_name
from mongottl.document.walk import fields_by_name, read_embedded
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.fulltext.fields import TextFields
from mongottl.query.fulltext.languages import language_named
from mongottl.query.fulltext.search import TextSearch
from mongottl.query.match.registry import bad_value, root_operator
from mongottl.query.match.tree import (
    ListExpression,
    MatchExpression,
    NorExpression,
    NotExpression,
    WholeDocumentExpression,
)
from mongottl.query.metadata import TEXT_SCORE
from mongottl.versions import OLDEST


class TextExpression(WholeDocumentExpression):
    """`{$text: {$search, $language, $caseSensitive, $diacriticSensitive}}`.

    language: the operand, "" for the index's default. search: set by `search_in` when the planner has found the index;
    before that the expression must not be evaluated.
    """

    def __init__(self, text: str, language: str, case_sensitive: bool, diacritic_sensitive: bool) -> None:
        self.text = text
        self.language = language
        self.case_sensitive = case_sensitive
        self.diacritic_sensitive = diacritic_sensitive
        self.search: TextSearch | None = None

    def search_in(self, text_fields: TextFields) -> TextSearch:
        """Sets the search for the fields of a text index. BadValue (2) for an unknown language."""
        language = text_fields.default_language if self.language == "" else language_named(self.language)
        if language is None:
            raise bad_value(f'unsupported language: "{self.language}" for text index version {text_fields.version}')
        self.search = TextSearch(self.text, language, self.case_sensitive, self.diacritic_sensitive, text_fields)
        return self.search

    def matches_at(self, buf: bytes, start: i64) -> bool:
        search = self.search
        if search is None:
            raise bad_value("$text is not allowed in this context")
        return search.matches(buf if start == 0 else read_embedded(buf, start))

    def index_kinds(self) -> tuple[str, ...]:
        return ("text",)

    def describe(self) -> Value:
        search = self.search
        return {
            "$text": {
                "$search": self.text,
                "$language": self.language if search is None else search.language.name,
                "$caseSensitive": self.case_sensitive,
                "$diacriticSensitive": self.diacritic_sensitive,
            }
        }


@root_operator("$text", reasons=None, since=OLDEST)
def parse_text(operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{$text: {$search, $language, $caseSensitive, $diacriticSensitive}}`.

    BadValue (2) where no text index can be used, and for unknown fields; NoSuchKey (4) without `$search`; TypeMismatch
    (14) for fields of a wrong type.
    """
    if not isinstance(operand, bytes):
        raise bad_value("$text expects an object")
    options = fields_by_name(operand)
    search = _string(options, "$search")
    if search is None:
        raise CommandError(ErrorCode.NoSuchKey, 'Missing expected field "$search"')
    language = _string(options, "$language")
    case_sensitive = _flag(options, "$caseSensitive")
    diacritic_sensitive = _flag(options, "$diacriticSensitive")
    for name in options:
        if name not in ("$search", "$language", "$caseSensitive", "$diacriticSensitive"):
            raise bad_value("extra fields in $text")
    ctx.metadata.provided.add(TEXT_SCORE)
    return TextExpression(search, language or "", case_sensitive, diacritic_sensitive)


def _string(options: dict[str, Value], name: str) -> str | None:
    if name not in options:
        return None
    value = options[name]
    if not isinstance(value, str):
        raise CommandError(
            ErrorCode.TypeMismatch,
            f'"{name}" had the wrong type. Expected string, found {type_name(type_code_of(value))}',
        )
    return value


def _flag(options: dict[str, Value], name: str) -> bool:
    if name not in options:
        return False
    value = options[name]
    if not isinstance(value, bool):
        raise CommandError(
            ErrorCode.TypeMismatch,
            f'"{name}" had the wrong type. Expected bool, found {type_name(type_code_of(value))}',
        )
    return value


def text_parts(match: MatchExpression) -> list[TextExpression]:
    """The `$text` expressions in a filter."""
    if isinstance(match, TextExpression):
        return [match]
    found: list[TextExpression] = []
    if isinstance(match, ListExpression):
        for child in match.children:
            found.extend(text_parts(child))
    return found


def check_text_parts(match: MatchExpression) -> None:
    """BadValue (2) for two `$text` expressions in one filter, and for a negated one."""
    if len(text_parts(match)) > 1:
        raise bad_value("Too many text expressions")
    _check_not_negated(match, False)


def _check_not_negated(match: MatchExpression, negated: bool) -> None:
    if isinstance(match, TextExpression):
        if negated:
            raise bad_value("text expression not allowed in nor")
    elif isinstance(match, ListExpression):
        for child in match.children:
            _check_not_negated(child, negated or isinstance(match, NorExpression))
    elif isinstance(match, NotExpression):
        _check_not_negated(match.child, True)
