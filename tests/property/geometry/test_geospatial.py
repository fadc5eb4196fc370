"""A geospatial index and a collection scan give the same documents, and `$near` gives them by their distance.

The collection scan tests every document; distances are computed here once more, for points with the haversine formula.
"""

import math
import random
from itertools import pairwise
from typing import Any

import bson
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from mongottl.errors import CommandError
from tests.planning import Bench, stages_of

Document = dict[str, Any]

EARTH_RADIUS_M = 6378100.0


class Places:
    """Random geometries around a few spots, so that they often have to do with each other."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        spots = [(0.0, 0.0), (179.9, 0.0), (0.0, 89.5), (-180.0, -89.9), (12.5, 41.9)]
        self.spots = [*self.random.sample(spots, 2), (self.random.uniform(-180, 180), self.random.uniform(-85, 85))]

    def position(self) -> list[float]:
        longitude, latitude = self.random.choice(self.spots)
        spread = self.random.choice([0.0, 0.001, 0.5, 10.0])
        longitude += self.random.uniform(-spread, spread)
        latitude += self.random.uniform(-spread, spread)
        if longitude > 180 or longitude < -180:
            longitude -= math.copysign(360, longitude)
        return [longitude, max(-90.0, min(90.0, latitude))]

    def ring(self) -> list[list[float]]:
        """A small quadrilateral, in either direction."""
        west, south = self.position()
        width = self.random.choice([0.01, 1.0, 8.0])
        west = max(-180.0, min(180.0 - width, west))
        south = max(-90.0, min(90.0 - width, south))
        ring = [[west, south], [west + width, south], [west + width, south + width], [west, south + width]]
        if self.random.random() < 0.5:
            ring.reverse()
        return [*ring, ring[0]]

    def geometry(self) -> Document:
        kind = self.random.choice(["Point", "Point", "Point", "LineString", "Polygon", "MultiPoint", "MultiPolygon"])
        coordinates: Any
        if kind == "Point":
            coordinates = self.position()
        elif kind == "LineString":
            coordinates = [self.position() for _ in range(self.random.randint(2, 4))]
        elif kind == "Polygon":
            coordinates = [self.ring()]
        elif kind == "MultiPoint":
            coordinates = [self.position() for _ in range(self.random.randint(1, 3))]
        else:
            coordinates = [[self.ring()]]
        return {"type": kind, "coordinates": coordinates}

    def document(self) -> Document:
        chance = self.random.random()
        document: Document = {"k": self.random.randrange(3)}
        if chance < 0.8:
            document["place"] = self.geometry()
        elif chance < 0.9:
            document["place"] = self.position()
        elif chance < 0.95:
            document["place"] = None
        return document

    def question(self) -> Document:
        chance = self.random.random()
        if chance < 0.4:
            operand: Document = {"$geoIntersects": {"$geometry": self.geometry()}}
        elif chance < 0.7:
            operand = {"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": [self.ring()]}}}
        elif chance < 0.9:
            operand = {"$geoWithin": {"$centerSphere": [self.position(), self.random.choice([0, 1e-4, 0.02, 0.5, 3])]}}
        else:
            operand = {"$geoWithin": {"$box": [self.position(), self.position()]}}
        filter: Document = {"place": operand}
        if self.random.random() < 0.3:
            filter["k"] = self.random.randrange(3)
        if self.random.random() < 0.2:
            filter = {"$or": [filter, {"place": {"$geoIntersects": {"$geometry": self.geometry()}}}]}
        elif self.random.random() < 0.2:
            filter = {"$and": [filter, {"place": {"$geoIntersects": {"$geometry": self.geometry()}}}]}
        return filter


def fill(bench: Bench, documents: list[Document]) -> list[Document]:
    """Inserts what the indexes take: a line through a pole may have no two different points."""
    taken: list[Document] = []
    for number, document in enumerate(documents):
        try:
            bench.insert_one({"_id": number, **document})
            taken.append({"_id": number, **document})
        except CommandError as error:
            assert error.code in (16755, 13027)
    return taken


def check_questions(bench: Bench, places: Places, questions: int) -> None:
    for _ in range(questions):
        question = places.question()
        try:
            plan = bench.plan(question)
        except CommandError as error:
            assert error.code == 2
            continue
        event(" < ".join(stages_of(plan)))
        found = sorted(bench.drain(plan.open()))
        assert found == sorted(bench.drain(bench.plan(question, hint={"$natural": 1}).open()))


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32), pattern=st.sampled_from([[("place", "2dsphere")], [("k", 1), ("place", "2dsphere")]])
)
def test_a_sphere_index_and_a_scan_agree(seed: int, pattern: Any) -> None:
    places = Places(seed)
    bench = Bench()
    bench.index(pattern)
    fill(bench, [places.document() for _ in range(40)])
    check_questions(bench, places, 12)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), bits=st.sampled_from([1, 5, 26, 32]))
def test_a_plane_index_and_a_scan_agree(seed: int, bits: int) -> None:
    places = Places(seed)
    bench = Bench()
    bench.index([("place", "2d"), ("k", 1)], bits=bits)
    documents: list[Document] = []
    for _ in range(60):
        several = places.random.random() < 0.2
        documents.append({
            "place": [places.position() for _ in range(2)] if several else places.position(),
            "k": places.random.randrange(3),
        })  # fmt: skip
    fill(bench, documents)
    for _ in range(12):
        corner, other = places.position(), places.position()
        shapes: list[Document] = [
            {"$box": [corner, other]},
            {"$center": [corner, places.random.choice([0, 0.5, 20])]},
            {"$polygon": [corner, other, places.position()]},
            {"$centerSphere": [corner, places.random.choice([0, 0.01, 1])]},
        ]
        question: Document = {"place": {"$geoWithin": places.random.choice(shapes)}}
        plan = bench.plan(question)
        event(" < ".join(stages_of(plan)))
        found = sorted(bench.drain(plan.open()))
        assert found == sorted(bench.drain(bench.plan(question, hint={"$natural": 1}).open()))


def haversine(a: list[float], b: list[float]) -> float:
    """Metres between two points given in degrees."""
    east, north = math.radians(b[0] - a[0]), math.radians(b[1] - a[1])
    chord = math.sin(north / 2) ** 2
    chord += math.cos(math.radians(a[1])) * math.cos(math.radians(b[1])) * math.sin(east / 2) ** 2
    return 2 * EARTH_RADIUS_M * math.asin(min(1.0, math.sqrt(chord)))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), near=st.sampled_from(["metres", "radians", "radians in a 2d index", "plane"]))
def test_near_gives_all_within_reach_by_distance(seed: int, near: str) -> None:
    places = Places(seed)
    bench = Bench()
    planar = near in ("radians in a 2d index", "plane")
    bench.index([("place", "2d" if planar else "2dsphere")])
    documents = fill(bench, [{"place": places.position()} for _ in range(places.random.choice([0, 1, 30, 400]))])
    center = places.position()

    def distance(document: Document) -> float:
        if near == "plane":
            return math.dist(center, document["place"])
        metres = haversine(center, document["place"])
        return metres if near == "metres" else metres / EARTH_RADIUS_M

    reach = sorted([distance(document) for document in documents] or [1.0])
    least = places.random.choice([0.0, reach[len(reach) // 3] * 0.999])
    most = places.random.choice([1e9, reach[2 * len(reach) // 3] * 1.001 + 1e-6])
    question: Document = {"$minDistance": least, "$maxDistance": most}
    if near == "metres":
        question = {"$near": {"$geometry": {"type": "Point", "coordinates": center}, **question}}
    else:
        question = {"$near" if near == "plane" else "$nearSphere": center, **question}
    found = [bson.decode(document) for document in bench.drain(bench.plan({"place": question}).open())]
    distances = [distance(document) for document in found]
    # Near the poles haversine and S2 differ by a few millionths of a metre.
    slack = 1e-3 if near == "metres" else 1e-9
    assert all(a <= b + slack for a, b in pairwise(distances))
    expected = {document["_id"] for document in documents if least <= distance(document) <= most}
    doubtful = {
        document["_id"]
        for document in documents
        if min(abs(distance(document) - least), abs(distance(document) - most)) < slack
    }
    assert {document["_id"] for document in found} ^ expected <= doubtful


@pytest.mark.parametrize("k", [1, {"$in": [1, 2]}, {"$gte": 1}, {"$in": list(range(150))}])
def test_near_behind_another_component(k: Any) -> None:
    bench = Bench()
    bench.index([("k", 1), ("place", "2dsphere"), ("other", "2dsphere")])
    bench.insert([{"_id": n, "k": n % 3, "place": [n, 0]} for n in range(90)])
    bench.insert([{"_id": 100, "k": 1, "other": [0, 0]}, {"_id": 101, "k": 1}])
    found = [
        bson.decode(document)
        for document in bench.drain(bench.plan({"place": {"$nearSphere": [40.4, 0]}, "k": k}).open())
    ]
    wanted = bench.find({"k": k, "place": {"$exists": True}}, hint={"$natural": 1})
    assert [document["_id"] for document in found] == sorted(wanted, key=lambda n: abs(n - 40.4))  # type: ignore[operator]


@pytest.mark.parametrize("near", [{"$near": [0, 0]}, {"$nearSphere": [0, 0]}])
def test_near_stops_with_the_first_page(near: Document) -> None:
    bench = Bench()
    bench.index([("place", "2d")])
    bench.insert([{"_id": number, "place": [number % 100, number // 100]} for number in range(3000)])
    stage = bench.plan({"place": near}, limit=3).open()
    assert [bson.decode(document)["_id"] for document in bench.drain(stage)] == [0, 1, 100]
    assert stage.examined_below() < 500
