"""Sources: the reference pages of the operators; digits of the decimals are those of the functions themselves."""

from collections.abc import Callable
from typing import Any

import pytest
from bson import Decimal128, Int64
from bson.datetime_ms import DatetimeMS

from mongottl.errors import CommandError

Check = Callable[[object, dict[str, Any], object], None]
Failure = Callable[[object, dict[str, Any]], CommandError]

INF = float("inf")
NAN = float("nan")
PI = 3.141592653589793
D_INF = Decimal128("Infinity")
D_MINUS_INF = Decimal128("-Infinity")
D_NAN = Decimal128("NaN")


@pytest.mark.parametrize(
    ("operator", "operand", "expected"),
    [
        ("$sin", 1, 0.8414709848078965),
        ("$sin", Int64(1), 0.8414709848078965),
        ("$sin", -0.0, -0.0),
        ("$sin", PI / 2, 1.0),
        ("$sin", PI, 1.2246467991473532e-16),
        ("$sin", Decimal128("0"), Decimal128("0")),
        # Near a zero of the function the digits are those of π, far beyond 34.
        (
            "$sin",
            Decimal128("3.141592653589793238462643383279503"),
            Decimal128("-1.158028306006248941790250554076922E-34"),
        ),
        ("$cos", 0, 1.0),
        ("$cos", -0.0, 1.0),
        ("$cos", Int64(1), 0.5403023058681398),
        ("$cos", PI, -1.0),
        ("$cos", PI / 2, 6.123233995736766e-17),
        ("$cos", Decimal128("1"), Decimal128("0.5403023058681397174009366074429766")),
        ("$tan", 0, 0.0),
        ("$tan", -0.0, -0.0),
        ("$tan", Int64(1), 1.5574077246549023),
        ("$tan", PI / 4, 0.9999999999999999),
        ("$tan", Decimal128("0"), Decimal128("0")),
        ("$tan", Decimal128("1"), Decimal128("1.557407724654902230506974807458360")),
        ("$asin", 0, 0.0),
        ("$asin", -0.0, -0.0),
        ("$asin", 1, PI / 2),
        ("$asin", Int64(-1), -PI / 2),
        ("$asin", 0.5, 0.5235987755982989),
        ("$asin", Decimal128("1"), Decimal128("1.570796326794896619231321691639751")),
        ("$acos", 1, 0.0),
        ("$acos", 0, PI / 2),
        ("$acos", Int64(-1), PI),
        ("$acos", 0.5, 1.0471975511965979),
        ("$acos", Decimal128("1"), Decimal128("0")),
        ("$acos", Decimal128("-1"), Decimal128("3.141592653589793238462643383279503")),
        ("$atan", 0, 0.0),
        ("$atan", -0.0, -0.0),
        ("$atan", Int64(1), PI / 4),
        ("$atan", INF, PI / 2),
        ("$atan", -INF, -PI / 2),
        ("$atan", Decimal128("1"), Decimal128("0.7853981633974483096156608458198757")),
        (
            "$atan",
            Decimal128("2.1301023541559787031443874490659"),
            Decimal128("1.131877001503761613330938729211760"),
        ),
        ("$atan", D_INF, Decimal128("1.570796326794896619231321691639751")),
        ("$sinh", 0, 0.0),
        ("$sinh", -0.0, -0.0),
        ("$sinh", Int64(1), 1.1752011936438014),
        ("$sinh", 1000, INF),
        ("$sinh", -INF, -INF),
        ("$sinh", Decimal128("1"), Decimal128("1.175201193643801456882381850595601")),
        ("$sinh", D_MINUS_INF, D_MINUS_INF),
        ("$cosh", 0, 1.0),
        ("$cosh", -0.0, 1.0),
        ("$cosh", Int64(1), 1.5430806348152437),
        ("$cosh", -1000, INF),
        ("$cosh", -INF, INF),
        ("$cosh", Decimal128("1"), Decimal128("1.543080634815243778477905620757062")),
        ("$cosh", D_MINUS_INF, D_INF),
        ("$tanh", 0, 0.0),
        ("$tanh", -0.0, -0.0),
        ("$tanh", Int64(1), 0.7615941559557649),
        ("$tanh", INF, 1.0),
        ("$tanh", -INF, -1.0),
        ("$tanh", Decimal128("1"), Decimal128("0.7615941559557648881194582826047936")),
        ("$asinh", 0, 0.0),
        ("$asinh", -0.0, -0.0),
        ("$asinh", Int64(1), 0.881373587019543),
        ("$asinh", INF, INF),
        ("$asinh", -INF, -INF),
        ("$asinh", Decimal128("1"), Decimal128("0.8813735870195430252326093249797923")),
        ("$asinh", D_MINUS_INF, D_MINUS_INF),
        ("$asinh", Decimal128("1E-300"), Decimal128("1E-300")),
        ("$acosh", 1, 0.0),
        ("$acosh", Int64(2), 1.3169578969248166),
        ("$acosh", 3.0, 1.762747174039086),  # the page's example
        ("$acosh", INF, INF),
        ("$acosh", Decimal128("1"), Decimal128("0")),
        ("$acosh", Decimal128("2"), Decimal128("1.316957896924816708625046347307968")),
        ("$acosh", D_INF, D_INF),
        ("$atanh", 0, 0.0),
        ("$atanh", -0.0, -0.0),
        ("$atanh", 1.0, INF),
        ("$atanh", Int64(-1), -INF),
        ("$atanh", Decimal128("1"), D_INF),
        ("$atanh", Decimal128("-1"), D_MINUS_INF),
        ("$atanh", Decimal128("0.5"), Decimal128("0.5493061443340548456976226184612629")),
        ("$atanh", Decimal128("-1E-300"), Decimal128("-1E-300")),
        ("$degreesToRadians", 0, 0.0),
        ("$degreesToRadians", -0.0, -0.0),
        ("$degreesToRadians", Int64(90), PI / 2),
        ("$degreesToRadians", -360, -2 * PI),
        ("$degreesToRadians", INF, INF),
        ("$degreesToRadians", Decimal128("90"), Decimal128("1.570796326794896619231321691639752")),
        ("$degreesToRadians", Decimal128("180"), Decimal128("3.141592653589793238462643383279503")),
        ("$degreesToRadians", D_MINUS_INF, D_MINUS_INF),
        ("$radiansToDegrees", 0, 0.0),
        ("$radiansToDegrees", -0.0, -0.0),
        ("$radiansToDegrees", PI, 180.0),
        ("$radiansToDegrees", Int64(1), 57.29577951308232),
        ("$radiansToDegrees", -PI / 2, -90.0),
        ("$radiansToDegrees", -INF, -INF),
        ("$radiansToDegrees", Decimal128("1"), Decimal128("57.29577951308232087679815481410517")),
        ("$radiansToDegrees", D_INF, D_INF),
    ],
)
def test_values(check: Check, operator: str, operand: object, expected: object) -> None:
    check({operator: operand}, {}, expected)
    check({operator: ["$v"]}, {"v": operand}, expected)


FUNCTIONS = (
    "$sin $cos $tan $asin $acos $atan $sinh $cosh $tanh $asinh $acosh $atanh $degreesToRadians $radiansToDegrees"
).split()


@pytest.mark.parametrize("operator", FUNCTIONS)
def test_trigonometry_of_null_nan_and_other_types(check: Check, failure: Failure, operator: str) -> None:
    for nothing in (None, "$n", "$missing"):
        check({operator: nothing}, {"n": None}, None)
    check({operator: NAN}, {}, NAN)
    check({operator: "$v"}, {"v": D_NAN}, D_NAN)
    refused: list[object] = ["1", True, {}, [1], DatetimeMS(0)]
    for wrong in refused:
        assert failure({operator: "$v"}, {"v": wrong}).code == 28765
    for wrong_count in ([], [1, 1]):
        assert failure({operator: wrong_count}, {}).code == 16020


@pytest.mark.parametrize(
    ("operator", "operand"),
    [
        ("$sin", -INF),
        ("$sin", D_INF),
        ("$cos", INF),
        ("$cos", D_MINUS_INF),
        ("$tan", INF),
        ("$tan", -INF),
        ("$tan", D_INF),
        ("$asin", 1.0000000000000002),
        ("$asin", -INF),
        ("$asin", Decimal128("1.000000000000000000000000000000001")),
        ("$acos", 1.5),
        ("$acos", Int64(-2)),
        ("$acos", Decimal128("-1.1")),
        ("$acosh", 0.9999999999999999),
        ("$acosh", -INF),
        ("$acosh", Decimal128("0.5")),
        ("$atanh", 1.0000000000000002),
        ("$atanh", Int64(-2)),
        ("$atanh", INF),
        ("$atanh", Decimal128("2")),
    ],
)
def test_trigonometry_refuses_numbers_outside_the_domain(failure: Failure, operator: str, operand: object) -> None:
    assert failure({operator: operand}, {}).code == 50989


@pytest.mark.parametrize(
    ("y", "x", "expected"),
    [
        (0, 1, 0.0),
        (-0.0, 1, -0.0),
        (-0.0, -1, -PI),
        (1, 0, PI / 2),
        (Int64(-1), Int64(0), -PI / 2),
        (0, 0, 0.0),
        (INF, INF, PI / 4),
        (1, -INF, PI),
        (NAN, 1, NAN),
        (None, 1, None),
        (1, None, None),
        ("$missing", 1, None),
        (NAN, None, None),
        (None, NAN, None),
        (4.0, 3, 0.9272952180016122),
        (Decimal128("1"), 1, Decimal128("0.7853981633974483096156608458198757")),
        (1, Decimal128("0"), Decimal128("1.570796326794896619231321691639751")),
        (1.0, D_NAN, D_NAN),
    ],
)
def test_atan2(check: Check, y: object, x: object, expected: object) -> None:
    check({"$atan2": [y, x]}, {}, expected)


@pytest.mark.parametrize(
    ("operands", "code"),
    [(["x", 1], 51044), ([True, 1], 51044), ([1, "x"], 51045), ([1, [1]], 51045), ([1], 16020), ([1, 1, 1], 16020)],
)
def test_refusals_of_atan2(failure: Failure, operands: object, code: int) -> None:
    assert failure({"$atan2": operands}, {}).code == code


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        # The triangle of sides 3, 4 and 5 on the pages of these operators. ($atan2's page ends in 8, one unit off.)
        ({"$acos": {"$divide": ["$b", "$c"]}}, "36.86989764584402129685561255909341"),
        ({"$asin": {"$divide": ["$a", "$c"]}}, "36.86989764584402129685561255909341"),
        ({"$atan": {"$divide": ["$b", "$a"]}}, "53.13010235415597870314438744090658"),
    ],
)
def test_angles_of_a_triangle(check: Check, function: object, expected: str) -> None:
    sides = {"a": Decimal128("3"), "b": Decimal128("4"), "c": Decimal128("5")}
    check({"$radiansToDegrees": function}, sides, Decimal128(expected))
