"""Random documents, indexes, filters and sorts that often have to do with each other: few paths, few values."""

import random
from typing import Any

from tests.planning import Pattern

PATHS = ["a", "b", "c", "a.x", "a.y", "b.x"]
COMPARISONS = ["$eq", "$gt", "$gte", "$lt", "$lte", "$ne"]
SCALARS = [0, 1, 2, 3, 4, 1, 2, 3, 1.0, 2.5, -1.0, float("nan"), "", "a", "b", "ab", None, None, True, False]


class Samples:
    """arrays: whether the documents and operands hold arrays. The same seed gives the same samples."""

    def __init__(self, seed: int, arrays: bool) -> None:
        self.random = random.Random(seed)
        self.arrays = arrays

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def scalar(self) -> Any:
        return self.random.choice(SCALARS)

    def scalars(self, least: int, most: int) -> list[Any]:
        return [self.scalar() for _ in range(self.random.randint(least, most))]

    def subdocument(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in ("x", "y"):
            if self.chance(0.75):
                found[name] = self.scalars(0, 2) if self.arrays and self.chance(0.25) else self.scalar()
        return found

    def element(self) -> Any:
        choice = self.random.random()
        if choice < 0.45:
            return self.scalar()
        if choice < 0.9 or not self.arrays:
            return self.subdocument()
        return [self.scalar() if self.chance(0.5) else self.subdocument() for _ in range(self.random.randint(0, 2))]

    def value(self) -> Any:
        if self.arrays and self.chance(0.5):
            return [self.element() for _ in range(self.random.randint(0, 3))]
        return self.scalar() if self.chance(0.5) else self.subdocument()

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.chance(0.85):
            found["a"] = self.value()
        if self.chance(0.85):
            found["b"] = self.value() if self.chance(0.5) else self.scalar()
        if self.chance(0.85):
            found["c"] = self.scalar()
        return found

    def comparison(self) -> dict[str, Any]:
        return {self.random.choice(COMPARISONS): self.scalar()}

    def condition(self) -> Any:
        """What may stand behind a path in a filter."""
        choice = self.random.randint(0, 15)
        if choice <= 2:
            return self.scalar()
        if choice <= 6:
            return self.comparison()
        if choice <= 8:
            return {"$gt": self.scalar(), "$lt": self.scalar()}
        if choice <= 12:
            return self.random.choice(
                [
                    {self.random.choice(COMPARISONS): self.element()},
                    {self.random.choice(["$in", "$nin"]): self.scalars(0, 4)},
                    {"$in": [self.element(), None, self.scalar()]},
                    {"$exists": self.chance(0.7)},
                    {"$type": self.random.choice(["number", "string", "null", "array", "object", "bool"])},
                    {"$regex": self.random.choice(["^a", "b", "^ab$"])},
                    {"$mod": [2, 1]},
                    {"$not": self.comparison()},
                    {"$ne": None},
                    {"$gte": self.scalar(), "$lte": self.scalar(), "$ne": self.scalar()},
                ]
            )
        return self.random.choice(
            [
                {"$size": self.random.randint(0, 2)},
                {"$all": self.scalars(1, 2)},
                {"$all": [{"$elemMatch": {"x": self.scalar()}}, {"$elemMatch": {"y": self.scalar()}}]},
                {"$elemMatch": {"$gte": self.scalar(), "$lt": self.scalar()}},
                {"$elemMatch": {"$ne": self.scalar()}},
                {"$elemMatch": {"x": self.scalar(), "y": self.comparison()}},
                {"$elemMatch": {"x": {"$gt": self.scalar(), "$lt": self.scalar()}}},
                {"$elemMatch": {"x": {"$ne": self.scalar()}}},
                {"$elemMatch": {"$elemMatch": {"$gt": self.scalar()}}},
            ]
        )

    def filter(self, level: int = 0) -> dict[str, Any]:
        if level < 2 and self.chance(0.3):
            name = self.random.choice(["$or", "$or", "$and", "$nor"])
            return {name: [self.filter(level + 1) for _ in range(self.random.randint(1, 3))]}
        paths = self.random.sample(PATHS, self.random.choice([0, 1, 1, 2, 2, 3]))
        found = {path: self.condition() for path in paths}
        if self.chance(0.12):
            found["$expr"] = self.expression()
        return found

    def expression(self) -> dict[str, Any]:
        """A comparison of a path with a constant, in either order, or several."""
        if self.chance(0.3):
            return {"$and": [self.expression(), self.expression()]}
        operands = ["$" + self.random.choice(PATHS), {"$literal": self.scalar()}]
        if self.chance(0.3):
            operands.reverse()
        return {self.random.choice(COMPARISONS): operands}

    def pattern(self) -> Pattern:
        paths = self.random.sample(PATHS, self.random.choice([1, 1, 2, 2, 3]))
        return [(path, self.random.choice([1, -1])) for path in paths]

    def hashed(self, pattern: Pattern) -> Pattern:
        """The same with one component hashed."""
        place = self.random.randrange(len(pattern))
        return [(path, "hashed" if i == place else direction) for i, (path, direction) in enumerate(pattern)]

    def wildcard(self) -> tuple[Pattern, dict[str, Any]]:
        """A wildcard index: key pattern and options."""
        direction = self.random.choice([1, -1])
        choice = self.random.randrange(8)
        if choice < 3:
            projection = self.random.choice([{"a": 1}, {"a.x": 1, "c": 1}, {"a": 0}, {"a.x": 0}, {"_id": 1, "b": 0}])
            return [("$**", direction)], {} if self.chance(0.5) else {"wildcardProjection": projection}
        if choice < 5:
            return [(self.random.choice(["a.$**", "b.$**", "a.x.$**"]), direction)], {}
        if choice == 5:
            return [("c", 1), ("$**", direction)], {"wildcardProjection": {"c": 0}}
        if choice == 6:
            return [("c", -1), (self.random.choice(["a.$**", "b.$**"]), direction), ("d", 1)], {}
        return [("$**", direction), ("c", 1)], {"wildcardProjection": {"a": 1, "b.x": 1}}

    def index_options(self) -> dict[str, Any]:
        choice = self.random.random()
        if choice < 0.5:
            return {}
        if choice < 0.65:
            return {"sparse": True}
        if choice < 0.75:
            return {"unique": True}
        path = self.random.choice(PATHS)
        partial = self.random.choice(
            [
                {path: {"$exists": True}},
                {path: {self.random.choice(COMPARISONS[:5]): self.random.choice([0, 1, 2, 3, "a", "b", None])}},
                {"a": {"$gte": 0}, "c": {"$exists": True}},
            ]
        )
        return {"partialFilterExpression": partial}
