"""The tests of a JSON schema on raw values. `schema_parser` creates them from `$jsonSchema`.

Most keywords apply to values of one type, and values of other types pass: `minimum` applies to numbers, `minLength` to
strings, `items` to arrays, `required` to documents. Arrays are not traversed implicitly. Equality (for `enum` and
`uniqueItems`) ignores the order of fields, and collations.
"""

from decimal import Decimal
from decimal import localcontext as decimal_context
from typing import Final

from librt.strings import read_i32_le
from mypy_extensions import i64

from mongottl.document.build import encode_fields
from mongottl.document.compare import BRACKET_NUMBER, bracket_of_type
from mongottl.document.freeing import LONG, LongDict, LongList, LongSet, freed_in_slices, list_for, set_for
from mongottl.document.interrupt import give_way
from mongottl.document.keystring import encode_value
from mongottl.document.numbers import decimal_of
from mongottl.document.sorting import sorted_by_keys
from mongottl.document.types import ARRAY, DOCUMENT, STRING, Decimal128, Value, is_number
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import (
    ElementCursor,
    count_fields,
    cstring_end,
    decode_value,
    fields,
    find_field_at,
    skip_value,
)
from mongottl.query.match.tree import MatchExpression, WholeDocumentExpression
from mongottl.regex.compiled import CompiledRegex

# Precision that suffices for the modulus of any two decimals.
_MODULUS_DIGITS: Final = 12400
# Bytes of a text that are counted at once, and about how many microseconds that takes.
_COUNTED_BYTES: Final[i64] = 4096
_COUNTED_WEIGHT: Final = 8
# Up to this many names are looked up in a document one by one; for more the document is walked once.
FEW_NAMES: Final = 8


def _encoded(names: list[str]) -> list[bytes]:
    found: list[bytes] = list_for(len(names))
    for name in names:
        give_way()
        found.append(encode_text(name))
    return found


class SchemaTest:
    """The test of one keyword on a value, or of several in `AllTests`."""

    def passes(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        """Whether the value at `pos` passes. Only called for values that exist."""
        raise NotImplementedError


class AllTests(SchemaTest):
    """All keywords of a schema, or `allOf`: passes if all tests pass."""

    def __init__(self, tests: list[SchemaTest]) -> None:
        self.tests = freed_in_slices(tests)

    def passes(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        for test in self.tests:
            give_way()
            if not test.passes(buf, type_code, pos):
                return False
        return True


class CountedTests(SchemaTest):
    """`anyOf` (at least one) and `oneOf` (exactly one)."""

    def __init__(self, tests: list[SchemaTest], exactly_one: bool) -> None:
        self.tests = freed_in_slices(tests)
        self.exactly_one = exactly_one

    def passes(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        count = 0
        for test in self.tests:
            give_way()
            if test.passes(buf, type_code, pos):
                count += 1
                if not self.exactly_one:
                    return True
                if count > 1:
                    return False
        return count == 1


class NotTest(SchemaTest):
    def __init__(self, test: SchemaTest) -> None:
        self.test = test

    def passes(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return not self.test.passes(buf, type_code, pos)


class TypeTest(SchemaTest):
    """`type` and `bsonType`."""

    def __init__(self, type_codes: list[int]) -> None:
        self._wanted: list[bool] = [code in type_codes for code in range(256)]

    def passes(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return self._wanted[type_code]


class EnumTest(SchemaTest):
    def __init__(self, values: list[Value]) -> None:
        self.values = values
        self._keys: set[bytes] = set_for(len(values))
        for value in values:
            give_way()
            self._keys.add(unordered_key(value))

    def passes(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return unordered_key(decode_value(buf, type_code, pos)) in self._keys


class NumberTest(SchemaTest):
    """`minimum` and `maximum`, exclusive or not: a comparison that only numbers must meet."""

    def __init__(self, comparison: MatchExpression) -> None:
        self.comparison = comparison

    def passes(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        if bracket_of_type(type_code) != BRACKET_NUMBER:
            return True
        return self.comparison.matches_single(buf, type_code, pos)


class MultipleTest(SchemaTest):
    """`multipleOf`, computed in decimal, for which doubles are converted with 15 digits."""

    def __init__(self, divisor: Value) -> None:
        self.divisor = as_decimal(divisor)

    def passes(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        value = decode_value(buf, type_code, pos)
        if not is_number(value):
            return True
        number = as_decimal(value)
        if not number.is_finite() or not self.divisor.is_finite():
            return False
        with decimal_context() as context:
            context.prec = _MODULUS_DIGITS
            return number % self.divisor == 0


def as_decimal(value: Value) -> Decimal:
    if isinstance(value, Decimal128):
        return decimal_of(value)
    if isinstance(value, float):
        return Decimal(format(value, ".15g"))
    return Decimal(str(value))


class LengthTest(SchemaTest):
    """`minLength` and `maxLength`, in code points. limit: the operand; at_least: whether it is the minimum."""

    def __init__(self, limit: int, at_least: bool) -> None:
        self.limit = limit
        self.at_least = at_least

    def passes(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        if type_code != STRING:
            return True
        end: i64 = pos + 3 + i64(read_i32_le(buf, pos))
        pos += 4
        count = 0
        while pos < end:
            part: i64 = min(end, pos + _COUNTED_BYTES)
            while pos < part:
                if buf[pos] & 0xC0 != 0x80:
                    count += 1
                pos += 1
            give_way(_COUNTED_WEIGHT)
        return count >= self.limit if self.at_least else count <= self.limit


class PatternTest(SchemaTest):
    def __init__(self, regex: CompiledRegex) -> None:
        self.regex = regex

    def passes(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        if type_code != STRING:
            return True
        return self.regex.found_in(buf[pos + 4 : pos + 3 + i64(read_i32_le(buf, pos))])


class CountTest(SchemaTest):
    """`minItems maxItems minProperties maxProperties`: how many elements an array or document has."""

    def __init__(self, container: int, limit: int, at_least: bool) -> None:
        self.container: i64 = i64(container)
        self.limit: i64 = i64(limit)
        self.at_least = at_least

    def passes(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        if type_code != self.container:
            return True
        count = count_fields(buf, pos)
        return count >= self.limit if self.at_least else count <= self.limit


class UniqueTest(SchemaTest):
    """`uniqueItems: true`."""

    def passes(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        if type_code != ARRAY:
            return True
        values = decode_value(buf, type_code, pos)
        return not isinstance(values, list) or all_different(values)


class ItemsTest(SchemaTest):
    """`items` and `additionalItems`.

    first: schemas for the first elements, one each. rest: schema for the others, or None if anything may follow.
    """

    def __init__(self, first: list[SchemaTest], rest: SchemaTest | None) -> None:
        self.first = first
        self.rest = rest

    def passes(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        if type_code != ARRAY:
            return True
        index = 0
        pos += 4
        rest = self.rest
        while True:
            give_way()
            element_type: i64 = buf[pos]
            if element_type == 0:
                return True
            give_way()
            pos = cstring_end(buf, pos + 1) + 1
            if index < len(self.first):
                if not self.first[index].passes(buf, element_type, pos):
                    return False
            elif rest is None:
                return True
            elif not rest.passes(buf, element_type, pos):
                return False
            pos = skip_value(buf, element_type, pos)
            index += 1


class NeverPasses(SchemaTest):
    """A test that no value passes: `additionalProperties: false` and `additionalItems: false`."""

    def passes(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        return False


class RequiredTest(SchemaTest):
    def __init__(self, names: list[str]) -> None:
        self.names = _encoded(names)
        self._wanted: set[bytes] = set_for(len(names))
        if len(names) > FEW_NAMES:
            for name in self.names:
                give_way()
                self._wanted.add(name)

    def passes(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        if type_code != DOCUMENT:
            return True
        if len(self.names) > FEW_NAMES:
            found: set[bytes] = set_for(len(self.names))
            cursor = ElementCursor(buf, pos)
            while cursor.next():
                give_way()
                present = cursor.name_bytes()
                if present in self._wanted:
                    found.add(present)
            return len(found) == len(self._wanted)
        for name in self.names:
            field_type, _ = find_field_at(buf, pos, name)
            if field_type == 0:
                return False
        return True


class PropertiesTest(SchemaTest):
    """`properties`: schemas for fields, tested if the fields exist."""

    def __init__(self, names: list[str], tests: list[SchemaTest]) -> None:
        self.names = _encoded(names)
        self.tests = freed_in_slices(tests)
        self._by_name: dict[bytes, SchemaTest] = {} if len(names) < LONG else LongDict({})
        # Of the names that occur more than once.
        several: dict[bytes, list[SchemaTest]] = {} if len(names) < LONG else LongDict({})
        for i in range(len(tests)):
            give_way()
            name = self.names[i]
            known = self._by_name.get(name)
            if known is None:
                self._by_name[name] = tests[i]
            elif name in several:
                several[name].append(tests[i])
            else:
                several[name] = LongList((known, tests[i]))
                self._by_name[name] = AllTests(several[name])

    def passes(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        if type_code != DOCUMENT:
            return True
        if len(self.names) > FEW_NAMES:
            return self._pass_in_order(buf, pos)
        for i in range(len(self.names)):
            field_type, value = find_field_at(buf, pos, self.names[i])
            if field_type != 0 and not self.tests[i].passes(buf, field_type, value):
                return False
        return True

    def _pass_in_order(self, buf: bytes, pos: i64) -> bool:
        """Whether all tests pass, in one walk over the document; of duplicate fields the first counts."""
        tested: set[bytes] = set_for(len(self.names))
        cursor = ElementCursor(buf, pos)
        while cursor.next():
            give_way()
            name = cursor.name_bytes()
            test = self._by_name.get(name)
            if test is None or name in tested:
                continue
            tested.add(name)
            if not test.passes(buf, cursor.type_code, cursor.value):
                return False
        return True


class OtherPropertiesTest(SchemaTest):
    """`patternProperties` and `additionalProperties`.

    named: the fields under `properties`. patterns, tests: a schema for each field whose name matches. rest: schema for
    the other fields; None if they may be anything.
    """

    def __init__(
        self, named: list[str], patterns: list[CompiledRegex], tests: list[SchemaTest], rest: SchemaTest | None
    ) -> None:
        self.named: set[bytes] = set_for(len(named))
        for name in named:
            give_way()
            self.named.add(encode_text(name))
        self.patterns = freed_in_slices(patterns)
        self.tests = freed_in_slices(tests)
        self.rest = rest

    def passes(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        if type_code != DOCUMENT:
            return True
        cursor = ElementCursor(buf, pos)
        while cursor.next():
            give_way()
            name = cursor.name_bytes()
            known = name in self.named
            for i in range(len(self.patterns)):
                give_way()
                if self.patterns[i].found_in(name):
                    known = True
                    if not self.tests[i].passes(buf, cursor.type_code, cursor.value):
                        return False
            rest = self.rest
            if not known and rest is not None and not rest.passes(buf, cursor.type_code, cursor.value):
                return False
        return True


class DependencyTest(SchemaTest):
    """One entry of `dependencies`: a document that has the field must also pass the test."""

    def __init__(self, name: str, test: SchemaTest) -> None:
        self.name: bytes = encode_text(name)
        self.test = test

    def passes(self, buf: bytes, type_code: i64, pos: i64) -> bool:
        if type_code != DOCUMENT:
            return True
        found, _ = find_field_at(buf, pos, self.name)
        return found == 0 or self.test.passes(buf, type_code, pos)


class JsonSchemaExpression(WholeDocumentExpression):
    """`{$jsonSchema: schema}`. schema: the raw document."""

    def __init__(self, schema: bytes, test: SchemaTest) -> None:
        self.schema = schema
        self.test = test

    def matches_at(self, buf: bytes, start: i64) -> bool:
        return self.test.passes(buf, DOCUMENT, start)

    def describe(self) -> Value:
        return {"$jsonSchema": self.schema}


def all_different(values: list[Value]) -> bool:
    """Whether no two of the values are equal, ignoring the order of fields in them."""
    keys: set[bytes] = LongSet()
    for value in values:
        give_way()
        keys.add(unordered_key(value))
    return len(keys) == len(values)


def unordered_key(value: Value) -> bytes:
    """A key of the value: equal for equal values, where documents with another order of fields, at any depth, are
    equal."""
    return encode_value(_in_order(value))


def _in_order(value: Value) -> Value:
    """The value with the fields of all documents in it sorted by name."""
    give_way()
    if isinstance(value, bytes):
        members = fields(value)
        if len(members) < LONG:
            return encode_fields([(name, _in_order(member)) for name, member in sorted(members, key=_name_of)])
        names: list[bytes] = LongList()
        for name, _ in members:
            give_way()
            names.append(encode_text(name) + b"\0")  # then no name is the beginning of another
        ordered: list[tuple[str, Value]] = LongList()
        for name, member in sorted_by_keys(members, names):
            ordered.append((name, _in_order(member)))
        return encode_fields(ordered)
    if isinstance(value, list):
        elements: list[Value] = list_for(len(value))
        for element in value:
            elements.append(_in_order(element))
        return elements
    return value


def _name_of(field: tuple[str, Value]) -> str:
    return field[0]
