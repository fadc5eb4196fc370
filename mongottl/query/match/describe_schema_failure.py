"""Why a document does not satisfy a JSON schema: the details of `$jsonSchema`.

    {operatorName: "$jsonSchema", title: …, description: …, schemaRulesNotSatisfied: [
        {operatorName: "properties", propertiesNotSatisfied: [
            {propertyName: "gpa", description: …, details: [
                {operatorName: "bsonType", specifiedAs: {bsonType: "double"}, reason: "type did not match",
                 consideredValue: 3, consideredType: "int"}]}]},
        {operatorName: "required", specifiedAs: {required: ["name"]}, missingProperties: ["name"]}]}

Each keyword is tested separately, on decoded values; this runs only when a write has failed.

Source: MongoDB's "Schema Validation" pages and its articles on validation errors, since 5.0.
"""

from typing import Final

from mongottl.document.build import encode_fields
from mongottl.document.freeing import LongList, LongSet, freed_in_slices, list_for, put_aside
from mongottl.document.interrupt import give_way
from mongottl.document.types import MISSING, Value, type_code_of, type_name
from mongottl.document.utf8 import encode_text
from mongottl.document.walk import fields, fields_by_name, find_field_at, get_value
from mongottl.query.match.schema import unordered_key
from mongottl.query.match.schema_parser import parse_schema
from mongottl.regex.compiled import CompiledRegex

Details = dict[str, Value]

# Keywords on a single value, with the reason of their failure, in the order of the output.
_REASONS: Final[dict[str, str]] = {
    "maximum": "comparison failed",
    "minimum": "comparison failed",
    "maxLength": "specified string length was not satisfied",
    "minLength": "specified string length was not satisfied",
    "pattern": "regular expression did not match",
    "multipleOf": "considered value is not a multiple of the specified value",
    "maxItems": "array did not match specified length",
    "minItems": "array did not match specified length",
    "enum": "value was not found in enum",
    "type": "type did not match",
    "bsonType": "type did not match",
}
_COUNTS: Final = ("maxProperties", "minProperties")
_COMBINATIONS: Final = ("allOf", "anyOf", "oneOf")
# Keywords that are shown together with the keyword that they modify.
_COMPANIONS: Final = {
    "maximum": "exclusiveMaximum",
    "minimum": "exclusiveMinimum",
}


def describe_schema_failure(schema: bytes, document: bytes) -> Details:
    """The details of why `document` does not satisfy `schema`."""
    details: Details = {"operatorName": "$jsonSchema"}
    _add_annotations(schema, details)
    details["schemaRulesNotSatisfied"] = _failures(schema, document)
    return details


def _add_annotations(schema: bytes, details: Details) -> None:
    for name in ("title", "description"):
        value = get_value(schema, name)
        if value is not MISSING:
            details[name] = value


def _passes(schema: bytes, value: Value) -> bool:
    holder = encode_fields([("", value)])
    type_code, pos = find_field_at(holder, 0, b"")
    return parse_schema(schema).passes(holder, type_code, pos)


def _failures(schema: bytes, value: Value) -> list[Value]:
    """The details of each keyword of the schema that fails."""
    keywords = fields_by_name(schema)
    found: list[Value] = []
    for name in _REASONS:
        if name in keywords and name not in ("type", "bsonType"):
            _add_simple(name, keywords, value, found)
    if isinstance(value, list):
        _add_array_failures(keywords, value, found)
    if isinstance(value, bytes):
        _add_object_failures(keywords, value, found)
    _add_combinations(keywords, value, found)
    for name in ("type", "bsonType"):
        if name in keywords:
            _add_simple(name, keywords, value, found)
    return found


def _specified(name: str, keywords: dict[str, Value]) -> bytes:
    described: list[tuple[str, Value]] = [(name, keywords[name])]
    companion = _COMPANIONS.get(name)
    if companion is not None and companion in keywords:
        described.append((companion, keywords[companion]))
    return encode_fields(described)


def _add_simple(name: str, keywords: dict[str, Value], value: Value, found: list[Value]) -> None:
    specified = _specified(name, keywords)
    if _passes(specified, value):
        return
    details: Details = {
        "operatorName": name,
        "specifiedAs": specified,
        "reason": _REASONS[name],
        "consideredValue": value,
    }
    if name in ("type", "bsonType"):
        details["consideredType"] = type_name(type_code_of(value))
    found.append(details)


def _add_array_failures(keywords: dict[str, Value], value: list[Value], found: list[Value]) -> None:
    if keywords.get("uniqueItems") is True:
        duplicate = _first_duplicate(value)
        if duplicate is not MISSING:
            found.append(
                {
                    "operatorName": "uniqueItems",
                    "specifiedAs": encode_fields([("uniqueItems", True)]),
                    "reason": "found a duplicate item",
                    "consideredValue": value,
                    "duplicatedValue": duplicate,
                }
            )
    items = keywords.get("items", MISSING)
    if isinstance(items, bytes):
        _add_first_item(items, value, 0, "items", "At least one item did not match the sub-schema", found)
    elif isinstance(items, list):
        details: list[Value] = LongList()
        for index, schema in enumerate(items[: len(value)]):
            give_way()
            assert isinstance(schema, bytes)
            if not _passes(schema, value[index]):
                details.append({"itemIndex": index, "details": _failures(schema, value[index])})
        if details:
            found.append({"operatorName": "items", "details": details})
        _add_additional_items(keywords.get("additionalItems", MISSING), value, len(items), found)


def _add_additional_items(rest: Value, value: list[Value], start: int, found: list[Value]) -> None:
    if rest is False and len(value) > start:
        found.append(
            {
                "operatorName": "additionalItems",
                "specifiedAs": encode_fields([("additionalItems", False)]),
                "reason": "found additional items",
                "additionalItems": freed_in_slices(value[start:]),
            }
        )
    elif isinstance(rest, bytes):
        reason = "At least one additional item did not match the sub-schema"
        _add_first_item(rest, value, start, "additionalItems", reason, found)


def _add_first_item(
    schema: bytes, value: list[Value], start: int, operator: str, reason: str, found: list[Value]
) -> None:
    for index in range(start, len(value)):
        give_way()
        if not _passes(schema, value[index]):
            details: Details = {"operatorName": operator, "reason": reason, "itemIndex": index}
            details["details"] = _failures(schema, value[index])
            found.append(details)
            return


def _first_duplicate(values: list[Value]) -> Value:
    seen: set[bytes] = LongSet()
    for value in values:
        give_way()
        key = unordered_key(value)
        if key in seen:
            return value
        seen.add(key)
    return MISSING


def _add_object_failures(keywords: dict[str, Value], value: bytes, found: list[Value]) -> None:
    present = fields(value)
    for name in _COUNTS:
        if name in keywords and not _passes(_specified(name, keywords), value):
            found.append(
                {
                    "operatorName": name,
                    "specifiedAs": _specified(name, keywords),
                    "reason": "specified number of properties was not satisfied",
                    "numberOfProperties": len(present),
                }
            )
    properties = keywords.get("properties", MISSING)
    if isinstance(properties, bytes):
        _add_properties(properties, value, found)
    _add_other_properties(keywords, present, found)
    required = keywords.get("required", MISSING)
    if isinstance(required, list):
        given = _first_values(value)
        missing = _missing_of(required, given)
        put_aside(given)
        if missing:
            specified = encode_fields([("required", required)])
            found.append({"operatorName": "required", "specifiedAs": specified, "missingProperties": missing})
    dependencies = keywords.get("dependencies", MISSING)
    if isinstance(dependencies, bytes):
        _add_dependencies(dependencies, value, found)


def _missing_of(names: list[Value], present: dict[str, Value]) -> list[Value]:
    missing: list[Value] = list_for(len(names))
    for name in names:
        give_way()
        if isinstance(name, str) and name not in present:
            missing.append(name)
    return missing


def _first_values(document: bytes) -> dict[str, Value]:
    """A document's fields by name; of duplicates the first."""
    found: dict[str, Value] = {}
    for name, value in fields(document):
        give_way()
        found.setdefault(name, value)
    return found


def _add_properties(properties: bytes, value: bytes, found: list[Value]) -> None:
    failed: list[Value] = LongList()
    present = _first_values(value)
    for name, schema in fields(properties):
        give_way()
        property_value = present.get(name, MISSING)
        assert isinstance(schema, bytes)
        if property_value is MISSING or _passes(schema, property_value):
            continue
        entry: Details = {"propertyName": name}
        _add_annotations(schema, entry)
        entry["details"] = _failures(schema, property_value)
        failed.append(entry)
    put_aside(present)
    if failed:
        found.append({"operatorName": "properties", "propertiesNotSatisfied": failed})


def _add_other_properties(keywords: dict[str, Value], present: list[tuple[str, Value]], found: list[Value]) -> None:
    """Adds the failures of `patternProperties` and `additionalProperties`."""
    known: set[str] = LongSet()
    properties = keywords.get("properties", MISSING)
    if isinstance(properties, bytes):
        for name, _ in fields(properties):
            give_way()
            known.add(name)
    patterns = keywords.get("patternProperties", MISSING)
    failed: list[Value] = LongList()
    if isinstance(patterns, bytes):
        for pattern, schema in fields(patterns):
            assert isinstance(schema, bytes)
            regex = CompiledRegex(encode_text(pattern), "")
            for name, value in present:
                give_way()
                if not regex.found_in(encode_text(name)):
                    continue
                known.add(name)
                if not _passes(schema, value):
                    entry: Details = {"propertyName": name, "regexMatched": pattern}
                    _add_annotations(schema, entry)
                    entry["details"] = _failures(schema, value)
                    failed.append(entry)
    if failed:
        found.append({"operatorName": "patternProperties", "details": failed})
    rest = keywords.get("additionalProperties", MISSING)
    others: list[tuple[str, Value]] = list_for(len(present))
    for name, value in present:
        give_way()
        if name not in known:
            others.append((name, value))
    if rest is False and others:
        names: list[Value] = list_for(len(others))
        for name, _ in others:
            give_way()
            names.append(name)
        found.append(
            {
                "operatorName": "additionalProperties",
                "specifiedAs": encode_fields([("additionalProperties", False)]),
                "additionalProperties": names,
            }
        )
    elif isinstance(rest, bytes):
        for name, value in others:
            give_way()
            if not _passes(rest, value):
                found.append(
                    {
                        "operatorName": "additionalProperties",
                        "reason": "at least one additional property did not match the subschema",
                        "failingProperty": name,
                        "details": _failures(rest, value),
                    }
                )
                return


def _add_dependencies(dependencies: bytes, value: bytes, found: list[Value]) -> None:
    failed: list[Value] = LongList()
    present = _first_values(value)
    for name, dependency in fields(dependencies):
        give_way()
        if name not in present:
            continue
        if isinstance(dependency, list):
            missing = _missing_of(dependency, present)
            if missing:
                failed.append({"conditionalProperty": name, "missingProperties": missing})
        elif isinstance(dependency, bytes) and not _passes(dependency, value):
            failed.append({"conditionalProperty": name, "details": _failures(dependency, value)})
    put_aside(present)
    if failed:
        found.append({"operatorName": "dependencies", "failingDependencies": failed})


def _add_combinations(keywords: dict[str, Value], value: Value, found: list[Value]) -> None:
    for name in _COMBINATIONS:
        schemas = keywords.get(name, MISSING)
        if not isinstance(schemas, list) or _passes(_specified(name, keywords), value):
            continue
        matching: list[Value] = LongList()
        failed: list[Value] = LongList()
        for index, schema in enumerate(schemas):
            give_way()
            assert isinstance(schema, bytes)
            if _passes(schema, value):
                matching.append(index)
            else:
                failed.append({"index": index, "details": _failures(schema, value)})
        if name == "oneOf" and matching:
            found.append(
                {
                    "operatorName": "oneOf",
                    "reason": "more than one subschema matched",
                    "matchingSchemaIndexes": matching,
                }
            )
        else:
            found.append({"operatorName": name, "schemasNotSatisfied": failed})
    negated = keywords.get("not", MISSING)
    if isinstance(negated, bytes) and _passes(negated, value):
        found.append({"operatorName": "not", "reason": "child expression matched"})
