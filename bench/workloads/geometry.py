"""Geometries of as many corners as a document has room for, with pings on another connection."""

from __future__ import annotations

import math
from typing import Any

from bson import encode

from bench.load import Connection, Document, op_msg, reply_document
from bench.measure import Result
from bench.targets import DATABASE
from bench.workloads.registry import Context, workload
from bench.workloads.stalls import PING_GOALS, pinged

_TARGET = "places"
_CORNERS = 400_000

Position = list[float]


def load_places(ctx: Context) -> None:
    """A fixture of its own: no documents but those of the workload."""


def _circle(corners: int, radius: float) -> list[Position]:
    angles = [2 * math.pi * i / corners for i in range(corners)]
    ring = [[10 + radius * math.cos(angle), 10 + radius * math.sin(angle)] for angle in angles]
    return [*ring, ring[0]]


def _comb(corners: int) -> list[Position]:
    """Teeth of 10° side by side, on a back of 40°: long sides that are near to each other."""
    teeth = [[40 * i / corners - 10, 15.0 if i % 2 else 5.0] for i in range(corners)]
    return [*teeth, [30.1, 4.0], [-10.1, 4.0], teeth[0]]


def _triangles(count: int) -> list[list[Position]]:
    """Side by side in a square of 8° around [10, 10]."""
    rows = max(1, math.isqrt(count))
    step = 8 / rows
    found: list[list[Position]] = []
    for number in range(count):
        x, y = 6 + step * (number % rows), 6 + step * (number // rows)
        found.append([[x, y], [x + step / 2, y], [x, y + step / 2], [x, y]])
    return found


def _zigzag(points: int, south: float, north: float) -> list[Position]:
    return [[40 * i / points - 10, north if i % 2 else south] for i in range(points)]


def _polygon(*rings: list[Position]) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": list(rings)}


def _large(count: int) -> dict[str, dict[str, Any]]:
    """Geometries of about `count` corners or points."""
    square: list[Position] = [[4, 4], [16, 4], [16, 16], [4, 16], [4, 4]]
    triangles = _triangles(count // 4)
    return {
        "circle": _polygon(_circle(count, 5.0)),
        "comb": _polygon(_comb(count)),
        "holes": _polygon(square, *triangles),
        "triangles": {"type": "MultiPolygon", "coordinates": [[ring] for ring in triangles]},
        "line": {"type": "LineString", "coordinates": _circle(count, 4.0)},
        "zigzag": {"type": "LineString", "coordinates": _zigzag(count, 9.0, 11.0)},
        "points": {"type": "MultiPoint", "coordinates": _circle(count, 1.0)},
    }


def _find(geometry: dict[str, Any], operator: str) -> Document:
    return {"find": _TARGET, "filter": {"place": {operator: {"$geometry": geometry}}}, "projection": {"_id": 1}}


# By workload: the geometry in the request, how it is asked for, and the geometries that are stored.
_QUERIES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "circle-within-pinged": ("circle", "$geoWithin", ("points", "line", "holes")),
    "circle-intersects-pinged": ("circle", "$geoIntersects", ("comb", "zigzag")),
    "comb-within-pinged": ("comb", "$geoWithin", ("points",)),
    "holes-within-pinged": ("holes", "$geoWithin", ("circle", "points")),
    "triangles-intersect-pinged": ("triangles", "$geoIntersects", ("triangles", "line")),
    "lines-intersect-pinged": ("line", "$geoIntersects", ("zigzag",)),
    "circle-inserted-pinged": ("circle", "insert", ()),
    "comb-inserted-pinged": ("comb", "insert", ()),
    "holes-inserted-pinged": ("holes", "insert", ()),
    "triangles-inserted-pinged": ("triangles", "insert", ()),
    "line-inserted-pinged": ("zigzag", "insert", ()),
    "shapes-near-pinged": ("", "$near", ("circle", "line", "triangles", "holes")),
    "shapes-in-circle-pinged": ("", "$centerSphere", ("circle", "line", "triangles", "holes")),
}


def _run(ctx: Context, name: str) -> Result:
    asked, operator, stored = _QUERIES[name]
    large = _large(ctx.scaled(_CORNERS))
    index = {"createIndexes": _TARGET, "indexes": [{"key": {"place": "2dsphere"}, "name": "place"}], "$db": DATABASE}
    with Connection(ctx.target.address()) as connection:
        if operator == "insert":
            body: Document = {"insert": _TARGET, "documents": [{"place": large[asked]}], "$db": DATABASE}
            connection.command(index)
        elif operator == "$near":
            near = {"$near": {"$geometry": {"type": "Point", "coordinates": [0.0, 0.0]}}}
            body = {"find": _TARGET, "filter": {"place": near}, "projection": {"_id": 1}, "$db": DATABASE}
            connection.command(index)
        elif operator == "$centerSphere":
            within = {"$geoWithin": {"$centerSphere": [[10, 10], 1.0]}}
            body = {"find": _TARGET, "filter": {"place": within}, "projection": {"_id": 1}, "$db": DATABASE}
        else:
            body = {**_find(large[asked], operator), "$db": DATABASE}
        for kind in stored:
            connection.insert(DATABASE, _TARGET, [[encode({"place": large[kind]})]])
        request = op_msg(body)

        def call() -> int:
            connection.send(request)
            reply = reply_document(connection.receive())
            if reply.get("ok") != 1:
                raise AssertionError(str(reply)[:300])
            if operator == "insert":
                connection.command({"delete": _TARGET, "deletes": [{"q": {}, "limit": 0}], "$db": DATABASE})
            return 1

        result = pinged(ctx, name, call, "op")
        connection.command({"drop": _TARGET, "$db": DATABASE})
        return result


def _register() -> None:
    for name, (asked, operator, stored) in _QUERIES.items():

        def run(ctx: Context, name: str = name) -> Result:
            return _run(ctx, name)

        what = f"{operator} {asked} of 400,000 corners" if asked else f"{operator} of shapes of 400,000 corners"
        if stored:
            what += f", stored: {', '.join(stored)}"
        workload(name, what, fixture=load_places, needs_socket=True, goals=PING_GOALS)(run)


_register()
