"""A collection with indexes, and queries on it, below the commands: for tests of plans and stages."""

from typing import Any

from bson import encode as bson_encode

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.index_spec import parse_index_spec
from mongottl.clock import VirtualClock
from mongottl.config import ServerConfig
from mongottl.document.build import encode, encode_fields
from mongottl.document.types import MISSING, Value
from mongottl.document.walk import get_value
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.plan.planner import QueryPlan, plan_query
from mongottl.exec.results.counting import count_documents
from mongottl.exec.results.explain import Wrapper, explain_plan
from mongottl.exec.running.client import ClientInfo
from mongottl.exec.service.service import ServiceContext
from mongottl.exec.stages.stage import PlanNode, PlanStage
from mongottl.exec.write.writes import insert_batch, insert_document, prepare_document
from mongottl.query.context import ParseContext
from mongottl.query.match import MatchExpression, parse_match
from mongottl.query.sort import SortPattern, parse_sort
from mongottl.storage.opening import open_engine

# A key pattern: pairs of path and direction, which is a number or names a kind of index.
Pattern = list[tuple[str, int | str]]

NATURAL: Value = bson_encode({"$natural": 1})


def match_of(filter: dict[str, Any]) -> MatchExpression:
    return parse_match(bson_encode(filter), ParseContext(), near=True)


def sort_of(pattern: Pattern | None) -> SortPattern | None:
    return None if pattern is None else parse_sort(encode_fields(pattern))


class Bench:
    """An empty collection `db.c` in memory, under a virtual clock that stands still."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.clock.freeze()
        self.service = ServiceContext(ServerConfig(), self.clock, open_engine("sqlite:"))
        self.collection: Collection = self.service.catalog.create_collection("db", "c")

    @property
    def op(self) -> OperationContext:
        """A new command, at the instant that it is now."""
        return OperationContext(self.service, ClientInfo(1, "", ""), "db")

    def index(self, pattern: Pattern, **options: Any) -> CollectionIndex:
        """An index named as drivers do; over an empty collection, since nothing is built."""
        name = "_".join(f"{path}_{direction}" for path, direction in pattern)
        # Not PyMongo's encoder, which moves `_id` to the front.
        spec = encode({"key": encode_fields(pattern), "name": name, **options})
        entry = self.service.catalog.start_indexes(self.collection, [parse_index_spec(spec)])[0]
        self.service.catalog.finish_indexes(self.collection, [entry])
        return entry

    def insert(self, documents: list[dict[str, Any]]) -> None:
        op = self.op
        insert_batch(
            op,
            self.collection,
            [prepare_document(op, self.collection, bson_encode(document)) for document in documents],
        )

    def insert_one(self, document: dict[str, Any]) -> None:
        op = self.op
        insert_document(op, self.collection, prepare_document(op, self.collection, bson_encode(document)))

    def plan(self, filter: dict[str, Any], sort: Pattern | None = None, **options: Any) -> QueryPlan:
        """options: skip, limit, wanted, natural, allow_disk_use as `plan_query` has them; hint as plain values."""
        hint = options.pop("hint", MISSING)
        if isinstance(hint, dict):
            hint = bson_encode(hint)
        return plan_query(self.op, self.collection, match_of(filter), sort=sort_of(sort), hint=hint, **options)

    def find(self, filter: dict[str, Any], sort: Pattern | None = None, **options: Any) -> list[Value]:
        """The `_id`s found, in the plan's order."""
        return ids(self.drain(self.plan(filter, sort, **options).open()))

    def drain(self, stage: PlanStage) -> list[bytes]:
        op = self.op
        found: list[bytes] = []
        while (batch := stage.next_batch(op)) is not None:
            found.extend(record[1] for record in batch)
        return found

    def count(self, filter: dict[str, Any], **options: Any) -> int:
        return count_documents(self.op, self.collection, match_of(filter), **options)

    def explain(self, plan: QueryPlan, verbosity: str = "queryPlanner", *wrappers: Wrapper) -> dict[str, Any]:
        command = bson_encode({"find": "c"})
        description = plan.match.describe()
        return explain_plan(self.op, plan, "db.c", description, verbosity, command, wrappers)


def ids(documents: list[bytes]) -> list[Value]:
    return [get_value(document, "_id") for document in documents]


def stages_of(plan: QueryPlan) -> list[str]:
    """The stages' names, from the top down the first inputs."""
    return [node.stage for node in nodes_of(plan)]


def nodes_of(plan: QueryPlan) -> list[PlanNode]:
    nodes = [plan.winning]
    while nodes[-1].inputs:
        nodes.append(nodes[-1].inputs[0])
    return nodes


def index_of(plan: QueryPlan) -> Value:
    """The name of the index that the plan reads, or None."""
    return nodes_of(plan)[-1].described().get("indexName")


def bounds_of_plan(plan: QueryPlan) -> Any:
    """`indexBounds` of the plan's IXSCAN."""
    return nodes_of(plan)[-1].described()["indexBounds"]


def filter_of(plan: QueryPlan) -> Any:
    """The filter of the plan's FETCH or COLLSCAN; None if there is none."""
    for node in nodes_of(plan):
        if node.stage in ("FETCH", "COLLSCAN"):
            return node.described_filter().get("filter")
    raise AssertionError("no stage reads documents")
