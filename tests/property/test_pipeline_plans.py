"""A pipeline gives the same documents with indexes as without, whatever of it the planner answers."""

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from mongottl.document.keystring import encode_value
from mongottl.errors import CommandError
from tests.property.test_optimise import conditions, documents, expressions, filters
from tests.running import Running

Document = dict[str, Any]

INDEXES: list[list[Document]] = [
    [{"a": 1}],
    [{"a": 1, "b": -1}, {"b": 1}],
    [{"a.b": 1}, {"c": -1, "a": 1}],
    [{"b": 1, "c": 1}, {"a": -1}],
]


def stage(name: str, argument: st.SearchStrategy[Any]) -> st.SearchStrategy[Document]:
    return st.builds(lambda value: {name: value}, argument)


roots = st.dictionaries(st.sampled_from(["a", "b", "c"]), conditions, min_size=1, max_size=2)
matches = st.one_of(
    stage("$match", roots),
    stage("$match", filters),
    stage("$match", expressions),
    stage("$match", st.builds(lambda parts: {"$or": parts}, st.lists(roots, min_size=2, max_size=3))),
)
lookup = st.sampled_from(
    [
        {"$lookup": {"from": "c", "localField": "b", "foreignField": "a", "as": "j"}},
        {
            "$lookup": {
                "from": "c",
                "let": {"x": "$b"},
                "pipeline": [{"$match": {"$expr": {"$eq": ["$a", "$$x"]}}}],
                "as": "j",
            }
        },
    ]
)
others = st.one_of(
    stage("$project", st.sampled_from([{"_id": 0, "a": 1}, {"_id": 0, "a": 1, "b": 1}, {"c": 1}, {"n": "$a"}])),
    stage("$set", st.sampled_from([{"n": "$b"}, {"c": 1}])),
    stage("$unset", st.sampled_from(["a", "c"])),
    stage("$unwind", st.sampled_from(["$a", "$b", "$j"])),
    stage("$sort", st.sampled_from([{"a": 1}, {"b": -1, "a": 1}, {"c": 1}])),
    stage("$group", st.sampled_from([{"_id": "$a", "n": {"$sum": 1}}, {"_id": None, "n": {"$sum": 1}}])),
    st.just({"$count": "n"}),
    lookup,
)


def results(server: Running, collection: str, pipeline: list[Document]) -> list[bytes]:
    """By their keys, so that of equal numbers it does not matter which one led its group."""
    found = server.listed({"aggregate": collection, "pipeline": pipeline, "cursor": {}})
    keys = [encode_value({name: document[name] for name in sorted(document) if name != "j"}) for document in found]
    return sorted(keys)


@settings(max_examples=120, deadline=None)
@given(
    documents,
    st.sampled_from(INDEXES),
    st.lists(st.tuples(matches, st.lists(others, max_size=3)), min_size=3, max_size=6),
)
def test_plans_of_pipelines(
    rows: list[Document], indexes: list[Document], pipelines: list[tuple[Document, list[Document]]]
) -> None:
    server = Running()
    for name in ("c", "plain"):
        server.run({"create": name})
        for i, row in enumerate(rows):
            if name == "c" and i == len(rows) // 2:
                specs = [{"key": key, "name": str(n)} for n, key in enumerate(indexes)]
                try:
                    server.run({"createIndexes": "c", "indexes": specs})
                except CommandError:
                    return  # parallel arrays
            reply = server.run({"insert": name, "documents": [{"_id": i, **row}]})
            if "writeErrors" in reply:
                return
    for first, rest in pipelines:
        for pipeline in ([first, *rest], [*rest, first]):
            try:
                expected = results(server, "plain", pipeline)
            except CommandError:
                continue
            assert results(server, "c", pipeline) == expected
            shown = server.run({"aggregate": "c", "pipeline": pipeline, "explain": True})
            planner = shown["stages"][0]["$cursor"]["queryPlanner"] if "stages" in shown else shown["queryPlanner"]
            event(planner["winningPlan"]["stage"])
