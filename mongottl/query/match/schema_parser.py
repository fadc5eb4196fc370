"""`$jsonSchema`: draft 4 of JSON Schema with MongoDB's extensions, parsed into the tests of `schema`.

Errors: TypeMismatch (14) for a keyword's operand of another type, FailedToParse (9) for unknown and unsupported
keywords, for empty or duplicate lists and for numbers out of range, BadValue (2) for unknown types and for an empty
`allOf`, `anyOf` or `oneOf` and for a name in `patternProperties` that does not compile, 51091 for
a `pattern` that does not.
"""

from typing import Final

from mongottl.document.freeing import LongSet, list_for
from mongottl.document.interrupt import give_way
from mongottl.document.numbers import whole
from mongottl.document.path import FieldPath
from mongottl.document.types import ARRAY, DOCUMENT, MISSING, Missing, Value, is_number
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.match.comparison import GT, GTE, LT, LTE, ComparisonExpression
from mongottl.query.match.elements import parse_type_set
from mongottl.query.match.number_errors import element_text, whole_number_fault
from mongottl.query.match.registry import bad_value, root_operator
from mongottl.query.match.schema import (
    AllTests,
    CountedTests,
    CountTest,
    DependencyTest,
    EnumTest,
    ItemsTest,
    JsonSchemaExpression,
    LengthTest,
    MultipleTest,
    NeverPasses,
    NotTest,
    NumberTest,
    OtherPropertiesTest,
    PatternTest,
    PropertiesTest,
    RequiredTest,
    SchemaTest,
    TypeTest,
    UniqueTest,
    all_different,
    as_decimal,
)
from mongottl.query.match.tree import MatchExpression
from mongottl.regex.compiled import CompiledRegex
from mongottl.versions import OLDEST

# JSON Schema's type names, for the keyword `type`, and the corresponding aliases of MongoDB.
_JSON_TYPES: Final[dict[str, str]] = {
    "object": "object",
    "array": "array",
    "string": "string",
    "number": "number",
    "boolean": "bool",
    "null": "null",
}
_KEYWORDS: Final = frozenset(
    [
        "additionalItems",
        "additionalProperties",
        "allOf",
        "anyOf",
        "bsonType",
        "dependencies",
        "description",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "items",
        "maximum",
        "maxItems",
        "maxLength",
        "maxProperties",
        "minimum",
        "minItems",
        "minLength",
        "minProperties",
        "multipleOf",
        "not",
        "oneOf",
        "pattern",
        "patternProperties",
        "properties",
        "required",
        "title",
        "type",
        "uniqueItems",
    ]
)
# Keywords of JSON Schema or mongod that are refused, the first six also by mongod.
_UNSUPPORTED: Final = frozenset(
    ["$ref", "$schema", "default", "definitions", "format", "id", "encrypt", "encryptMetadata"]
)
_VALUE: Final = FieldPath("")
# What a schema without keywords counts as in `give_way`.
_SCHEMA_WORK: Final = 2


def _type_mismatch(message: str) -> CommandError:
    return CommandError(ErrorCode.TypeMismatch, message)


def _failed_to_parse(message: str) -> CommandError:
    return CommandError(ErrorCode.FailedToParse, message)


@root_operator("$jsonSchema", reasons=None, since=OLDEST)
def parse_json_schema(operand: Value, ctx: ParseContext) -> MatchExpression:
    """`{$jsonSchema: schema}`: the root document satisfies the schema."""
    if not isinstance(operand, bytes):
        raise _type_mismatch("$jsonSchema must be an object")
    return JsonSchemaExpression(operand, parse_schema(operand))


def parse_schema(schema: bytes) -> SchemaTest:
    """The test of a schema document."""
    give_way(_SCHEMA_WORK)
    keywords: dict[str, Value] = {}
    for name, operand in fields(schema):
        if name in _UNSUPPORTED:
            raise _failed_to_parse(f"$jsonSchema keyword '{name}' is not currently supported")
        if name not in _KEYWORDS:
            raise _failed_to_parse(f"Unknown $jsonSchema keyword: {name}")
        if name in keywords:
            raise _failed_to_parse(f"Duplicate $jsonSchema keyword: {name}")
        keywords[name] = operand
    for name in ("title", "description"):
        if not isinstance(keywords.get(name, ""), str):
            raise _type_mismatch(f"$jsonSchema keyword '{name}' must be of type string")
    tests: list[SchemaTest] = []
    _types(keywords, tests)
    _scalars(keywords, tests)
    _combinations(keywords, tests)
    _arrays(keywords, tests)
    _objects(keywords, tests)
    return tests[0] if len(tests) == 1 else AllTests(tests)


def _types(keywords: dict[str, Value], tests: list[SchemaTest]) -> None:
    json_type = keywords.get("type", MISSING)
    bson_type = keywords.get("bsonType", MISSING)
    if json_type is not MISSING and bson_type is not MISSING:
        raise _failed_to_parse("Cannot specify both $jsonSchema keywords 'type' and 'bsonType'")
    if json_type is not MISSING:
        aliases: list[Value] = []
        for name in _type_names(json_type, "type"):
            if name == "integer":
                raise _failed_to_parse("$jsonSchema type 'integer' is not currently supported.")
            if name not in _JSON_TYPES:
                raise bad_value(f"Unknown type name alias: {name}")
            aliases.append(_JSON_TYPES[name])
        tests.append(TypeTest(parse_type_set(aliases, "type")[0]))
    elif bson_type is not MISSING:
        names: list[Value] = []
        for name in _type_names(bson_type, "bsonType"):
            if name == "integer":
                raise _failed_to_parse("$jsonSchema type 'integer' is not currently supported.")
            names.append(name)
        tests.append(TypeTest(parse_type_set(names, "bsonType")[0]))


def _type_names(operand: Value, keyword: str) -> list[str]:
    if isinstance(operand, str):
        return [operand]
    if not isinstance(operand, list):
        raise _type_mismatch(f"$jsonSchema keyword '{keyword}' must be either a string or an array of strings")
    names: list[str] = list_for(len(operand))
    seen: set[str] = LongSet()
    for entry in operand:
        give_way()
        if not isinstance(entry, str):
            raise _type_mismatch(f"$jsonSchema keyword '{keyword}' array elements must be strings")
        if entry in seen:
            raise _failed_to_parse(f"$jsonSchema keyword '{keyword}' has duplicate value: {entry}")
        seen.add(entry)
        names.append(entry)
    if not names:
        raise _failed_to_parse(f"$jsonSchema keyword '{keyword}' must name at least one type")
    return names


def _scalars(keywords: dict[str, Value], tests: list[SchemaTest]) -> None:
    _bound(keywords, "minimum", "exclusiveMinimum", GTE, GT, tests)
    _bound(keywords, "maximum", "exclusiveMaximum", LTE, LT, tests)
    multiple = keywords.get("multipleOf", MISSING)
    if multiple is not MISSING:
        if not is_number(multiple):
            raise _type_mismatch("$jsonSchema keyword 'multipleOf' must be a number")
        number = as_decimal(multiple)
        if not number.is_nan() and number <= 0:
            raise _failed_to_parse("$jsonSchema keyword 'multipleOf' must have a positive value")
        tests.append(MultipleTest(multiple))
    for name, at_least in (("minLength", True), ("maxLength", False)):
        limit = _limit(keywords, name)
        if limit is not None:
            tests.append(LengthTest(limit, at_least))
    pattern = keywords.get("pattern", MISSING)
    if pattern is not MISSING:
        if not isinstance(pattern, str):
            raise _type_mismatch("$jsonSchema keyword 'pattern' must be a string")
        tests.append(PatternTest(CompiledRegex(encode_text(pattern), "")))
    allowed = keywords.get("enum", MISSING)
    if allowed is not MISSING:
        if not isinstance(allowed, list):
            raise _type_mismatch("$jsonSchema keyword 'enum' must be an array")
        if not allowed:
            raise _failed_to_parse("$jsonSchema keyword 'enum' cannot be an empty array")
        if not all_different(allowed):
            raise _failed_to_parse("$jsonSchema keyword 'enum' array cannot contain duplicate values.")
        tests.append(EnumTest(allowed))


def _bound(
    keywords: dict[str, Value], name: str, exclusive_name: str, inclusive: int, exclusive: int, tests: list[SchemaTest]
) -> None:
    bound = keywords.get(name, MISSING)
    flag = keywords.get(exclusive_name, MISSING)
    if bound is not MISSING and not is_number(bound):
        raise _type_mismatch(f"$jsonSchema keyword '{name}' must be a number")
    if flag is not MISSING:
        if not isinstance(flag, bool):
            raise _type_mismatch(f"$jsonSchema keyword '{exclusive_name}' must be a boolean")
        if bound is MISSING:
            raise _failed_to_parse(f"$jsonSchema keyword '{name}' must be a present if '{exclusive_name}' is present")
    if bound is not MISSING:
        tests.append(NumberTest(ComparisonExpression(_VALUE, exclusive if flag is True else inclusive, bound)))


def _limit(keywords: dict[str, Value], name: str) -> int | None:
    """The operand of a keyword that takes a whole number from 0 on; None if the keyword is absent."""
    operand = keywords.get(name, MISSING)
    if isinstance(operand, Missing):
        return None
    fault = whole_number_fault(operand)
    number = whole(operand)
    if fault or number is None:
        raise _failed_to_parse(
            f"$jsonSchema keyword '{name}' must be a non-negative integer: {element_text(name, operand)}"
        )
    return number


def _combinations(keywords: dict[str, Value], tests: list[SchemaTest]) -> None:
    for name in ("allOf", "anyOf", "oneOf"):
        operand = keywords.get(name, MISSING)
        if operand is MISSING:
            continue
        if not isinstance(operand, list):
            raise _type_mismatch(f"$jsonSchema keyword '{name}' must be an array")
        if not operand:
            raise bad_value(f"$jsonSchema keyword '{name}' must be a non-empty array")
        branches = _subschemas(operand, name)
        tests.append(AllTests(branches) if name == "allOf" else CountedTests(branches, name == "oneOf"))
    negated = keywords.get("not", MISSING)
    if negated is not MISSING:
        tests.append(NotTest(_subschema(negated, "not")))


def _subschemas(operands: list[Value], keyword: str) -> list[SchemaTest]:
    tests: list[SchemaTest] = list_for(len(operands))
    for operand in operands:
        tests.append(_subschema(operand, keyword))
    return tests


def _subschema(operand: Value, keyword: str) -> SchemaTest:
    if not isinstance(operand, bytes):
        raise _type_mismatch(f"$jsonSchema keyword '{keyword}' must hold objects")
    return parse_schema(operand)


def _arrays(keywords: dict[str, Value], tests: list[SchemaTest]) -> None:
    for name, at_least in (("minItems", True), ("maxItems", False)):
        limit = _limit(keywords, name)
        if limit is not None:
            tests.append(CountTest(ARRAY, limit, at_least))
    unique = keywords.get("uniqueItems", MISSING)
    if unique is not MISSING:
        if not isinstance(unique, bool):
            raise _type_mismatch("$jsonSchema keyword 'uniqueItems' must be a boolean")
        if unique:
            tests.append(UniqueTest())
    items = keywords.get("items", MISSING)
    rest = _additional(keywords, "additionalItems")
    if isinstance(items, bytes):
        tests.append(ItemsTest([], parse_schema(items)))
    elif isinstance(items, list):
        tests.append(ItemsTest(_subschemas(items, "items"), rest))
    elif not isinstance(items, Missing):
        raise _type_mismatch("$jsonSchema keyword 'items' must be an array or an object")


def _additional(keywords: dict[str, Value], name: str) -> SchemaTest | None:
    """The schema of `additionalItems` or `additionalProperties`; None if other values may be anything."""
    operand = keywords.get(name, MISSING)
    if isinstance(operand, Missing) or operand is True:
        return None
    if operand is False:
        return NeverPasses()
    if not isinstance(operand, bytes):
        raise _type_mismatch(f"$jsonSchema keyword '{name}' must be either an object or a boolean")
    return parse_schema(operand)


def _objects(keywords: dict[str, Value], tests: list[SchemaTest]) -> None:
    for name, at_least in (("minProperties", True), ("maxProperties", False)):
        limit = _limit(keywords, name)
        if limit is not None:
            tests.append(CountTest(DOCUMENT, limit, at_least))
    if "required" in keywords:
        tests.append(RequiredTest(_distinct_names(keywords["required"], "required")))
    named: list[str] = []
    if "properties" in keywords:
        members = _members(keywords["properties"], "properties")
        named = list_for(len(members))
        schemas: list[SchemaTest] = list_for(len(members))
        for name, schema in members:
            named.append(name)
            schemas.append(_subschema(schema, "properties"))
        tests.append(PropertiesTest(named, schemas))
    patterns: list[CompiledRegex] = []
    pattern_tests: list[SchemaTest] = []
    if "patternProperties" in keywords:
        members = _members(keywords["patternProperties"], "patternProperties")
        patterns = list_for(len(members))
        pattern_tests = list_for(len(members))
        for name, schema in members:
            pattern_tests.append(_subschema(schema, "patternProperties"))
            try:
                patterns.append(CompiledRegex(encode_text(name), ""))
            except CommandError:
                raise bad_value(f"Invalid regular expression in 'patternProperties': '{name}'") from None
    rest = _additional(keywords, "additionalProperties")
    if patterns or rest is not None:
        tests.append(OtherPropertiesTest(named, patterns, pattern_tests, rest))
    if "dependencies" in keywords:
        members = _members(keywords["dependencies"], "dependencies")
        dependencies: list[SchemaTest] = list_for(len(members))
        for name, dependency in members:
            if isinstance(dependency, bytes):
                dependencies.append(DependencyTest(name, parse_schema(dependency)))
            elif isinstance(dependency, list):
                dependencies.append(DependencyTest(name, RequiredTest(_distinct_names(dependency, "dependencies"))))
            else:
                raise _type_mismatch("$jsonSchema keyword 'dependencies' must hold objects or arrays")
        tests.append(AllTests(dependencies))


def _members(operand: Value, keyword: str) -> list[tuple[str, Value]]:
    if not isinstance(operand, bytes):
        raise _type_mismatch(f"$jsonSchema keyword '{keyword}' must be an object")
    return fields(operand)


def _distinct_names(operand: Value, keyword: str) -> list[str]:
    if not isinstance(operand, list):
        raise _type_mismatch(f"$jsonSchema keyword '{keyword}' must be an array")
    if not operand:
        raise _failed_to_parse(f"$jsonSchema keyword '{keyword}' cannot be an empty array")
    names: list[str] = list_for(len(operand))
    seen: set[str] = LongSet()
    for entry in operand:
        give_way()
        if not isinstance(entry, str):
            raise _type_mismatch(f"$jsonSchema keyword '{keyword}' must hold strings")
        if entry in seen:
            raise _failed_to_parse(f"$jsonSchema keyword '{keyword}' array cannot contain duplicate values")
        seen.add(entry)
        names.append(entry)
    return names
