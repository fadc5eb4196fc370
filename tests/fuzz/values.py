"""Trees of BSON values to fuzz with: how they are drawn, encoded, decoded and changed.

A document is a `Node`, a list of [name, value] pairs, so that it may have duplicate fields and be changed in place; an
array is a list; everything else is a value in the model of `mongottl.document.types`.
"""

import random
from collections.abc import Callable
from typing import Any, Final

from bson import Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp

from mongottl.document.build import encode_fields
from mongottl.document.types import BinData, Date, DBPointer, JavaScript, Regex, Symbol, Undefined
from mongottl.document.walk import fields


class Random(random.Random):
    """oddness: how often something is drawn without regard for what belongs there, 0 to 1. Set for each command: one
    with many odd arguments is refused for the first of them, and only a command without gets to its end."""

    oddness = 0.1

    def odd(self) -> bool:
        return self.random() < self.oddness


class Node:
    """A document: [name, value] pairs."""

    def __init__(self, pairs: list[list[Any]] | None = None) -> None:
        self.pairs: list[list[Any]] = [] if pairs is None else pairs

    def get(self, name: str) -> Any:
        """The value of the first field of that name, or None."""
        return next((value for key, value in self.pairs if key == name), None)


def node(**members: Any) -> Node:
    """A document with these fields, in order."""
    return Node([[name, value] for name, value in members.items()])


def encode(tree: Node) -> bytes:
    """The BSON of a document."""
    return encode_fields([(name, _encodable(value)) for name, value in tree.pairs])


def _encodable(value: Any) -> Any:
    if isinstance(value, Node):
        return encode(value)
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    return value


def decode(document: bytes) -> Node:
    """The tree of a BSON document."""
    return Node([[name, _tree(value)] for name, value in fields(document)])


def _tree(value: Any) -> Any:
    if isinstance(value, bytes):
        return decode(value)
    if isinstance(value, list):
        return [_tree(item) for item in value]
    return value


def copy(value: Any) -> Any:
    """A copy of a tree that shares no document and no array with it."""
    if isinstance(value, Node):
        return Node([[name, copy(item)] for name, item in value.pairs])
    if isinstance(value, list):
        return [copy(item) for item in value]
    return value


def show(value: Any) -> str:
    """A tree as Python's notation has it, for reports."""
    if isinstance(value, Node):
        return "{" + ", ".join(f"{_short(repr(name))}: {show(item)}" for name, item in value.pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(show(item) for item in value) + "]"
    return _short(repr(value))


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}… ({len(text)} characters)"


# A signalling NaN, which Python's decimals refuse even to compare.
SIGNALLING_NAN: Final = Decimal128.from_bid(bytes(15) + b"\x7e")

INTEGERS: Final[list[Any]] = [0, 1, -1, 2, 3, 5, 7, 10, 16, 63, 64, 100, 255, 1000, 2**31 - 1, -(2**31)]
LONGS: Final[list[Any]] = [Int64(n) for n in (0, 1, -1, 2, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, -(2**63))]
DOUBLES: Final[list[Any]] = [
    *(0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 1e-300, 5e-324, 1e308, 2147483648.0, 9223372036854775808.0),
    *(-9223372036854775808.0, 4503599627370497.5, 90.0, 180.0, 181.0, float("nan"), float("inf"), float("-inf")),
]
DECIMALS: Final[list[Any]] = [
    SIGNALLING_NAN,
    *(
        Decimal128(text)
        for text in (
            *("NaN", "-NaN", "Infinity", "-Infinity", "0", "-0", "0E-6176", "0E+6111", "1", "1.0", "-1", "0.5", "2.5"),
            *(
                "1E+400",
                "-1E+400",
                "1E-400",
                "9.999999999999999999999999999999999E+6144",
                "1E-6176",
                "1E+19",
                "2147483648",
            ),
            *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "1E+30", "0.1"),
        )
    ),
]
NUMBERS: Final = INTEGERS + LONGS + DOUBLES + DECIMALS

PATHS: Final = [
    *(
        "a",
        "b",
        "c",
        "n",
        "t",
        "m",
        "loc",
        "tags",
        "when",
        "ttl",
        "_ts",
        "_id",
        "a.b",
        "a.0",
        "a.b.c",
        "a.0.b",
        "b.c.d",
    ),
    *("m.x", "loc.coordinates", "a.$", "a.$[]", "a.$[x]", "a.$[x].b", "tags.1", "$**", "a.$**"),
    *("", ".", "a.", ".a", "a..b", "$a", "a.$id", "r.$ref", "_id.a", "a." + "9" * 5000, "a.4294967296", "a.-1", "a.01"),
    ".".join(["a"] * 120),
]
STRINGS: Final = [
    *(
        "",
        "a",
        "b",
        "ab",
        "A",
        "ß",
        "é",
        "e\u0301",
        "İ",
        "\ufeff",
        "\u202e",
        "𝒳𝒴",
        "\U0010ffff",
        "a b c",
        "run running",
    ),
    *(
        "0",
        "-1",
        "1" * 5000,
        "1e400",
        "0x1F",
        "NaN",
        "true",
        "null",
        " ",
        "\n",
        "%",
        "%Y-%m-%dT%H:%M:%S.%LZ",
        "%G %V %u",
    ),
    *("2024-02-30", "2024-02-29T12:00:00Z", "-0001-01-01T00:00:00Z", "Europe/Berlin", "+99:99", "UTC", "day", "week"),
    *(
        "$",
        "$$",
        "$a",
        "$a.b",
        "$$ROOT",
        "$$NOW",
        "$$CURRENT.a",
        "$$REMOVE",
        "$$this",
        "$$value",
        "$$x",
        "$$",
        "$a..b",
        "$.a",
    ),
    *(
        "(",
        "a{65536}",
        "(?i)a",
        "[[:alpha:]]",
        "^a",
        "a$",
        "\\",
        "(a+)+b",
        "simple",
        "en",
        "en_US_POSIX",
        "de@collation=phonebook",
    ),
    *("_id_", "a_1", "c", "geo", "words", "v", "ts", "nobody", "test", "test.c", "system.views", "$cmd", "x" * 300),
]


def _object_id(rng: Random) -> Any:
    return ObjectId(rng.randbytes(12))


def _binary(rng: Random) -> Any:
    subtype = rng.choice([0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 128, 255])
    data = rng.randbytes(rng.choice([0, 1, 2, 4, 8, 16, 16, 40]))
    return BinData(len(data).to_bytes(4, "little") + data if subtype == 2 else data, subtype)


def _date(rng: Random) -> Any:
    return Date(
        rng.choice([0, -1, 1_700_000_000_000, 253402300800000, -62135596800001, 2**63 - 1, -(2**63), 951782400000])
    )


def _timestamp(rng: Random) -> Any:
    return Timestamp(rng.choice([0, 1, 1_700_000_000, 2**32 - 1]), rng.choice([0, 1, 2**32 - 1]))


def _regex(rng: Random) -> Any:
    return Regex(rng.choice(STRINGS), rng.choice(["", "i", "im", "msx", "u", "l"]))


def _code(rng: Random) -> Any:
    return JavaScript(
        rng.choice(["", "return 1", "function(){}"]), rng.choice([None, None, encode(node(a=1)), encode(Node())])
    )


SCALARS: Final[list[Callable[[Random], Any]]] = [
    lambda rng: rng.choice(INTEGERS),
    lambda rng: rng.choice(INTEGERS),
    lambda rng: rng.choice(LONGS),
    lambda rng: rng.choice(DOUBLES),
    lambda rng: rng.choice(DECIMALS),
    lambda rng: rng.choice(STRINGS),
    lambda rng: rng.choice(STRINGS),
    lambda rng: rng.choice(["a", "b", "ab", "x"]),
    lambda rng: rng.random() < 0.5,
    lambda rng: None,
    lambda rng: Undefined(),
    _object_id,
    _binary,
    _date,
    _timestamp,
    _regex,
    _code,
    lambda rng: Symbol(rng.choice(STRINGS)),
    lambda rng: DBPointer(rng.choice(STRINGS), rng.randbytes(12)),
    lambda rng: MinKey(),
    lambda rng: MaxKey(),
]


def scalar(rng: Random) -> Any:
    """A value of any type but documents and arrays."""
    return rng.choice(SCALARS)(rng)


def number(rng: Random) -> Any:
    """A number, most often a small whole one."""
    return (
        rng.choice(NUMBERS)
        if rng.random() < 0.1 + rng.oddness
        else rng.choice([1, 2, 3, 5, 2.0, Int64(4), Decimal128("6")])
    )


def field_name(rng: Random) -> str:
    if rng.random() < 0.1 + rng.oddness:
        return rng.choice(PATHS)
    return rng.choice(["a", "b", "c", "n", "t", "_id", "m.x", "a.b", "tags", "loc"])


def any_value(rng: Random, depth: int = 3) -> Any:
    """A value of any type. depth: levels of documents and arrays that it may have."""
    dice = rng.random()
    if depth <= 0 or dice < 0.6:
        return scalar(rng)
    if dice < 0.8:
        return [any_value(rng, depth - 1) for _ in range(rng.choice([0, 1, 2, 2, 3, 5]))]
    if dice < 0.83:
        return geometry(rng)
    if dice < 0.84:
        return nested(rng.choice([20, 95, 150]), rng.random() < 0.5)
    return Node([[field_name(rng), any_value(rng, depth - 1)] for _ in range(rng.choice([0, 1, 1, 2, 3]))])


def nested(levels: int, arrays: bool) -> Any:
    """A document or an array nested this deep."""
    value: Any = 1
    for _ in range(levels):
        value = [value] if arrays else node(a=value)
    return value


def geometry(rng: Random) -> Any:
    """A point or shape, GeoJSON or legacy, at times a broken one."""

    def position() -> Any:
        numbers: list[Any] = [rng.choice([0, 1, 2.5, -3, 10, 90, -180, 180.0, 181, number(rng)]) for _ in range(2)]
        return numbers if rng.random() < 0.95 else any_value(rng, 1)

    kind = rng.choice(
        ["Point", "LineString", "Polygon", "MultiPoint", "MultiPolygon", "GeometryCollection", "legacy", "Other"]
    )
    ring = [[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]]
    if kind == "legacy":
        return position()
    if kind == "Point":
        return node(type=kind, coordinates=position())
    if kind in ("LineString", "MultiPoint"):
        return node(type=kind, coordinates=[position() for _ in range(rng.choice([0, 1, 2, 3]))])
    if kind == "Polygon":
        return node(type=kind, coordinates=[ring if rng.random() < 0.7 else [position() for _ in range(4)]])
    if kind == "MultiPolygon":
        return node(type=kind, coordinates=[[ring]])
    if kind == "GeometryCollection":
        return node(type=kind, geometries=[geometry(rng) for _ in range(rng.choice([0, 1, 2]))])
    return node(type=kind, coordinates=any_value(rng, 1))


def document(rng: Random) -> Node:
    """A document as collections hold them: fields of few names, so that operators meet values."""
    pairs: list[list[Any]] = []
    if rng.random() < 0.8:
        pairs.append(["_id", rng.randrange(60) if rng.random() < 0.8 else any_value(rng, 1)])
    for name in ("a", "b", "c", "n", "m", "loc", "tags", "t", "when", "ttl"):
        if rng.random() < 0.45:
            pairs.append([name, _member(rng, name)])
    return Node(pairs)


def _member(rng: Random, name: str) -> Any:
    if rng.random() < 0.05:
        return any_value(rng)
    if name == "loc":
        return geometry(rng)
    if name == "tags":
        return [rng.choice(["red", "run", "green", "été", "running shoes"]) for _ in range(rng.randrange(3))]
    if name in ("t", "when"):
        return Date(1_700_000_000_000 + rng.randrange(10**9)) if rng.random() < 0.8 else _timestamp(rng)
    if name == "ttl":
        return rng.choice([-1, 1, 100, 10**6, 5.0, "x"])
    if name == "n":
        return number(rng)
    if name == "m":
        return node(x=rng.randrange(5), y=number(rng))
    if rng.random() < 0.3:
        return [any_value(rng, 1) for _ in range(rng.randrange(4))]
    return any_value(rng, 2)


def mutate(rng: Random, tree: Node, pool: list[Node]) -> None:
    """Changes one place of a tree, or a few. pool: other trees, from which values of the same name are taken."""
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        places: list[tuple[list[Any], int]] = []  # containers of values, and where in them
        holders: list[Node] = []
        _collect(tree, places, holders)
        if not places:
            return
        container, index = rng.choice(places)
        dice = rng.random()
        if dice < 0.30:
            container[index] = scalar(rng)
        elif dice < 0.40:
            container[index] = any_value(rng)
        elif dice < 0.48:
            container[index] = number(rng)
        elif dice < 0.53:
            container[index] = [container[index]]
        elif dice < 0.57:
            container[index] = Node([[field_name(rng), container[index]]])
        elif dice < 0.62 and isinstance(container[index], list):
            container[index] = container[index] * rng.choice([2, 3]) if len(container[index]) < 8 else []
        elif dice < 0.80:
            _take_from(rng, holders, pool)
        else:
            holder = rng.choice(holders)
            if not holder.pairs:
                continue
            place = rng.randrange(len(holder.pairs))
            if holder is tree and place == 0:
                continue
            if dice < 0.88:
                del holder.pairs[place]
            elif dice < 0.92:
                holder.pairs.append(copy(holder.pairs[place]))
            elif dice < 0.96:
                holder.pairs[place][0] = field_name(rng)
            else:
                holder.pairs.append([field_name(rng), any_value(rng)])


def _take_from(rng: Random, holders: list[Node], pool: list[Node]) -> None:
    """Puts in place of one value what another tree has under the same name."""
    named = [pair for holder in holders for pair in holder.pairs]
    if not named or not pool:
        return
    pair = rng.choice(named)
    found: list[Any] = []
    for _ in range(5):
        others: list[Node] = []
        _collect(rng.choice(pool), [], others)
        found += [value for other in others for name, value in other.pairs if name == pair[0]]
        if found:
            pair[1] = copy(rng.choice(found))
            return


def _collect(value: Any, places: list[tuple[list[Any], int]], holders: list[Node]) -> None:
    if isinstance(value, Node):
        holders.append(value)
        for pair in value.pairs:
            places.append((pair, 1))
            _collect(pair[1], places, holders)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            places.append((value, index))
            _collect(item, places, holders)
