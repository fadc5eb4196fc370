"""The details of failed validations, in the forms that MongoDB documents."""

from typing import Any

import bson
import pytest

from mongottl.document.build import encode
from mongottl.query.match.describe_failure import describe_failure


def details(validator: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    raw = encode({"d": describe_failure(bson.encode(validator), bson.encode(document), 0)})
    found: dict[str, Any] = bson.decode(raw)["d"]
    return found


def leaf(operator: str, specified: dict[str, Any], reason: str, **rest: Any) -> dict[str, Any]:
    return {"operatorName": operator, "specifiedAs": specified, "reason": reason, **rest}


FAILED = "comparison failed"
NOT_BITS = "bitwise operator failed to match"


@pytest.mark.parametrize(
    ("validator", "document", "operator", "reason", "rest"),
    [
        ({"a": 1}, {"a": 2}, "$eq", FAILED, {"consideredValue": 2}),
        ({"a": {"$eq": 1}}, {}, "$eq", "field was missing", {}),
        ({"a.b": 1}, {"a": 1}, "$eq", "field was missing", {}),
        ({"a": {"$gt": 5}}, {"a": [1, 2]}, "$gt", FAILED, {"consideredValues": [1, 2, [1, 2]]}),
        ({"a.b": {"$lt": 0}}, {"a": [{"b": 1}, {"b": 2}]}, "$lt", FAILED, {"consideredValues": [1, 2]}),
        ({"a.0": {"$lte": 0}}, {"a": [7, 8]}, "$lte", FAILED, {"consideredValue": 7}),
        ({"a": {"$ne": 2}}, {"a": 2}, "$ne", "comparison succeeded", {"consideredValue": 2}),
        ({"a": {"$in": [1]}}, {"a": 2}, "$in", "no matching value found in array", {"consideredValue": 2}),
        ({"a": {"$nin": [2]}}, {"a": 2}, "$nin", "matching value found in array", {"consideredValue": 2}),
        ({"a": {"$exists": True}}, {}, "$exists", "path does not exist", {}),
        ({"a": {"$exists": False}}, {"a": 1}, "$exists", "path does exist", {}),
        (
            {"a": {"$type": "string"}},
            {"a": 1},
            "$type",
            "type did not match",
            {"consideredValue": 1, "consideredType": "int"},
        ),
        (
            {"a": {"$type": ["string"]}},
            {"a": [1]},
            "$type",
            "type did not match",
            {"consideredValues": [1, [1]], "consideredTypes": ["array", "int"]},
        ),
        (
            {"a": {"$mod": [2, 0]}},
            {"a": 3},
            "$mod",
            "$mod did not evaluate to expected remainder",
            {"consideredValue": 3},
        ),
        (
            {"a": {"$mod": [2, 0]}},
            {"a": "x"},
            "$mod",
            "type did not match",
            {
                "consideredValue": "x",
                "consideredType": "string",
                "expectedTypes": ["decimal", "double", "int", "long"],
            },
        ),
        (
            {"a": {"$regex": "^b", "$options": "i"}},
            {"a": "c"},
            "$regex",
            "regular expression did not match",
            {"consideredValue": "c"},
        ),
        (
            {"a": {"$size": 1}},
            {"a": [1, 2]},
            "$size",
            "array length was not equal to given size",
            {"consideredValue": [1, 2]},
        ),
        (
            {"a": {"$size": 1}},
            {"a": 1},
            "$size",
            "type did not match",
            {"consideredValue": 1, "consideredType": "int", "expectedType": "array"},
        ),
        (
            {"a": {"$elemMatch": {"$gt": 5}}},
            {"a": [1]},
            "$elemMatch",
            "array did not satisfy the child predicate",
            {"consideredValue": [1]},
        ),
        (
            {"a": {"$all": [1, 2]}},
            {"a": [1]},
            "$all",
            "array did not contain all specified values",
            {"consideredValue": [1]},
        ),
        ({"a": {"$bitsAllSet": 2}}, {"a": 1}, "$bitsAllSet", NOT_BITS, {"consideredValue": 1}),
        (
            {"$expr": {"$eq": ["$a", "$b"]}},
            {"a": 1, "b": 2},
            "$expr",
            "expression did not match",
            {"expressionResult": False},
        ),
        ({"$alwaysFalse": 1}, {}, "$alwaysFalse", "expression always evaluates to false", {}),
    ],
)
def test_single_conditions(
    validator: dict[str, Any], document: dict[str, Any], operator: str, reason: str, rest: dict[str, Any]
) -> None:
    assert details(validator, document) == leaf(operator, validator, reason, **rest)


def test_several_conditions_are_those_of_an_and() -> None:
    found = details({"a": {"$gt": 1, "$lt": 5}, "b": {"$exists": True}, "$comment": "x"}, {"a": 7})
    assert found == {
        "operatorName": "$and",
        "clausesNotSatisfied": [
            {"index": 1, "details": leaf("$lt", {"a": {"$lt": 5}}, FAILED, consideredValue=7)},
            {"index": 2, "details": leaf("$exists", {"b": {"$exists": True}}, "path does not exist")},
        ],
    }


def test_or_shows_every_clause_and_nor_those_that_match() -> None:
    assert details({"$or": [{"a": 1}, {"a": 2}]}, {"a": 3}) == {
        "operatorName": "$or",
        "clausesNotSatisfied": [
            {"index": 0, "details": leaf("$eq", {"a": 1}, FAILED, consideredValue=3)},
            {"index": 1, "details": leaf("$eq", {"a": 2}, FAILED, consideredValue=3)},
        ],
    }
    assert details({"$nor": [{"a": 1}, {"a": {"$gt": 2}}]}, {"a": 3}) == {
        "operatorName": "$nor",
        "clausesSatisfied": [
            {"index": 1, "details": leaf("$gt", {"a": {"$gt": 2}}, "comparison succeeded", consideredValue=3)}
        ],
    }


def test_not_turns_the_reason_round() -> None:
    assert details({"a": {"$not": {"$gt": 2}}}, {"a": 3}) == {
        "operatorName": "$not",
        "details": leaf("$gt", {"a": {"$gt": 2}}, "comparison succeeded", consideredValue=3),
    }
    assert details({"a": {"$not": {"$gt": 2, "$lt": 9}}}, {"a": 3}) == {
        "operatorName": "$not",
        "details": {
            "operatorName": "$and",
            "clausesSatisfied": [
                {"index": 0, "details": leaf("$gt", {"a": {"$gt": 2}}, "comparison succeeded", consideredValue=3)},
                {"index": 1, "details": leaf("$lt", {"a": {"$lt": 9}}, "comparison succeeded", consideredValue=3)},
            ],
        },
    }


def rules(schema: dict[str, Any], document: dict[str, Any]) -> Any:
    found = details({"$jsonSchema": schema}, document)
    assert found["operatorName"] == "$jsonSchema"
    return found["schemaRulesNotSatisfied"]


def of_property(schema: dict[str, Any], value: Any) -> Any:
    """What is said of the property `a` with this schema and value."""
    [rule] = rules({"properties": {"a": schema}}, {"a": value})
    assert rule["operatorName"] == "properties"
    [entry] = rule["propertiesNotSatisfied"]
    assert entry["propertyName"] == "a"
    return entry["details"]


def test_a_schema_as_the_manual_shows_it() -> None:
    schema = {
        "title": "Student Object Validation",
        "bsonType": "object",
        "required": ["name", "year"],
        "properties": {
            "name": {"bsonType": "string"},
            "gpa": {"bsonType": ["double"], "description": "'gpa' must be a double if the field exists"},
        },
    }
    assert details({"$jsonSchema": schema}, {"name": "Alice", "gpa": 3}) == {
        "operatorName": "$jsonSchema",
        "title": "Student Object Validation",
        "schemaRulesNotSatisfied": [
            {
                "operatorName": "properties",
                "propertiesNotSatisfied": [
                    {
                        "propertyName": "gpa",
                        "description": "'gpa' must be a double if the field exists",
                        "details": [
                            leaf(
                                "bsonType",
                                {"bsonType": ["double"]},
                                "type did not match",
                                consideredValue=3,
                                consideredType="int",
                            )
                        ],
                    }
                ],
            },
            {
                "operatorName": "required",
                "specifiedAs": {"required": ["name", "year"]},
                "missingProperties": ["year"],
            },
        ],
    }


@pytest.mark.parametrize(
    ("schema", "value", "operator", "reason"),
    [
        ({"minimum": 5}, 4, "minimum", FAILED),
        ({"maximum": 5, "exclusiveMaximum": True}, 5, "maximum", FAILED),
        ({"multipleOf": 2}, 3, "multipleOf", "considered value is not a multiple of the specified value"),
        ({"minLength": 2}, "a", "minLength", "specified string length was not satisfied"),
        ({"pattern": "^b"}, "a", "pattern", "regular expression did not match"),
        ({"enum": [1, "x"]}, 2, "enum", "value was not found in enum"),
        ({"maxItems": 1}, [1, 2], "maxItems", "array did not match specified length"),
    ],
)
def test_keywords_of_single_values(schema: dict[str, Any], value: Any, operator: str, reason: str) -> None:
    assert of_property(schema, value) == [leaf(operator, schema, reason, consideredValue=value)]


def test_keywords_of_arrays() -> None:
    wrong = leaf("bsonType", {"bsonType": "int"}, "type did not match", consideredValue="x", consideredType="string")
    number = {"bsonType": "int"}
    assert of_property({"uniqueItems": True}, [1, 2, 1]) == [
        leaf(
            "uniqueItems",
            {"uniqueItems": True},
            "found a duplicate item",
            consideredValue=[1, 2, 1],
            duplicatedValue=1,
        )
    ]
    assert of_property({"items": number}, [1, "x", "y"]) == [
        {
            "operatorName": "items",
            "reason": "At least one item did not match the sub-schema",
            "itemIndex": 1,
            "details": [wrong],
        }
    ]
    assert of_property({"items": [number, number]}, [1, "x", "y"]) == [
        {"operatorName": "items", "details": [{"itemIndex": 1, "details": [wrong]}]}
    ]
    assert of_property({"items": [number], "additionalItems": False}, [1, "x"]) == [
        leaf("additionalItems", {"additionalItems": False}, "found additional items", additionalItems=["x"])
    ]
    assert of_property({"items": [number], "additionalItems": number}, [1, 2, "x"]) == [
        {
            "operatorName": "additionalItems",
            "reason": "At least one additional item did not match the sub-schema",
            "itemIndex": 2,
            "details": [wrong],
        }
    ]


def test_keywords_of_documents() -> None:
    wrong = leaf("bsonType", {"bsonType": "int"}, "type did not match", consideredValue="x", consideredType="string")
    number = {"bsonType": "int"}
    assert rules({"properties": {"_id": {}, "a": {}}, "additionalProperties": False}, {"_id": 1, "b": 1, "c": 1}) == [
        {
            "operatorName": "additionalProperties",
            "specifiedAs": {"additionalProperties": False},
            "additionalProperties": ["b", "c"],
        }
    ]
    assert rules({"additionalProperties": number}, {"_id": 1, "b": "x"}) == [
        {
            "operatorName": "additionalProperties",
            "reason": "at least one additional property did not match the subschema",
            "failingProperty": "b",
            "details": [wrong],
        }
    ]
    assert rules({"patternProperties": {"^a": number}}, {"ab": "x", "b": "x"}) == [
        {
            "operatorName": "patternProperties",
            "details": [{"propertyName": "ab", "regexMatched": "^a", "details": [wrong]}],
        }
    ]
    assert rules({"minProperties": 2}, {"_id": 1}) == [
        leaf(
            "minProperties",
            {"minProperties": 2},
            "specified number of properties was not satisfied",
            numberOfProperties=1,
        )
    ]
    assert rules({"dependencies": {"a": ["b", "c"], "d": {"required": ["e"]}}}, {"a": 1, "b": 1, "d": 1}) == [
        {
            "operatorName": "dependencies",
            "failingDependencies": [
                {"conditionalProperty": "a", "missingProperties": ["c"]},
                {
                    "conditionalProperty": "d",
                    "details": [
                        {
                            "operatorName": "required",
                            "specifiedAs": {"required": ["e"]},
                            "missingProperties": ["e"],
                        }
                    ],
                },
            ],
        }
    ]


def test_combined_schemas() -> None:
    small = leaf("minimum", {"minimum": 5}, FAILED, consideredValue=1)
    large = leaf("maximum", {"maximum": 0}, FAILED, consideredValue=1)
    parts = [{"minimum": 5}, {"maximum": 0}]
    both = [{"index": 0, "details": [small]}, {"index": 1, "details": [large]}]
    assert of_property({"anyOf": parts}, 1) == [{"operatorName": "anyOf", "schemasNotSatisfied": both}]
    assert of_property({"oneOf": parts}, 1) == [{"operatorName": "oneOf", "schemasNotSatisfied": both}]
    assert of_property({"allOf": [{"minimum": 0}, {"minimum": 5}]}, 1) == [
        {"operatorName": "allOf", "schemasNotSatisfied": [{"index": 1, "details": [small]}]}
    ]
    assert of_property({"oneOf": [{"minimum": 0}, {"minimum": 5}, {"maximum": 9}]}, 1) == [
        {"operatorName": "oneOf", "reason": "more than one subschema matched", "matchingSchemaIndexes": [0, 2]}
    ]
    assert of_property({"not": {"minimum": 0}}, 1) == [{"operatorName": "not", "reason": "child expression matched"}]


def test_a_schema_that_must_not_match() -> None:
    schema = {"$jsonSchema": {"required": ["a"]}}
    assert details({"$nor": [schema]}, {"a": 1}) == {
        "operatorName": "$nor",
        "clausesSatisfied": [{"index": 0, "details": leaf("$jsonSchema", schema, "schema matched")}],
    }
