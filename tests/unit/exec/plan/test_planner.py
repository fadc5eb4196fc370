"""Which plan is chosen, and its results."""

from typing import Any

import pytest

from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.plan.planner import plan_query
from tests.planning import Bench, Pattern, bounds_of_plan, filter_of, index_of, match_of, nodes_of, stages_of


@pytest.fixture
def bench() -> Bench:
    return Bench()


def numbers(count: int) -> list[dict[str, Any]]:
    return [{"_id": i, "a": i % 5, "b": i % 3, "c": i} for i in range(count)]


def test_no_collection_is_eof(bench: Bench) -> None:
    plan = plan_query(bench.op, None, match_of({"a": 1}), hint="nothing")
    assert stages_of(plan) == ["EOF"]
    assert bench.drain(plan.open()) == []


def test_filter_that_cannot_be_true_is_eof(bench: Bench) -> None:
    bench.index([("a", 1)])
    bench.insert(numbers(10))
    assert stages_of(bench.plan({"a": {"$in": []}})) == ["EOF"]
    assert stages_of(bench.plan({"a": {"$gt": 5, "$lt": 3}})) == ["EOF"]


def test_no_index_serves(bench: Bench) -> None:
    bench.index([("b", 1), ("a", 1)])
    bench.insert(numbers(10))
    plan = bench.plan({"a": 2})
    assert stages_of(plan) == ["COLLSCAN"]
    assert filter_of(plan) == {"a": {"$eq": 2}}
    assert bench.find({"a": 2}) == [2, 7]


@pytest.mark.parametrize(
    ("filter", "bounds", "residual"),
    [
        ({"a": 2}, {"a": ["[2, 2]"], "b": ["[MaxKey, MinKey]"]}, None),
        ({"a": 2, "b": {"$gt": 1}}, {"a": ["[2, 2]"], "b": ["[inf.0, 1)"]}, None),
        ({"a": {"$in": [1, 3]}, "b": 2}, {"a": ["[1, 1]", "[3, 3]"], "b": ["[2, 2]"]}, None),
        ({"a": {"$gte": 1, "$lt": 3}}, {"a": ["[1, 3)"], "b": ["[MaxKey, MinKey]"]}, None),
        ({"a": {"$gt": 1}, "b": 2}, {"a": ["(1, inf.0]"], "b": ["[2, 2]"]}, None),
        ({"a": {"$gt": 1}, "b": None}, {"a": ["(1, inf.0]"], "b": ["[null, null]"]}, {"b": {"$eq": None}}),
        ({"a": 2, "c": 7}, {"a": ["[2, 2]"], "b": ["[MaxKey, MinKey]"]}, {"c": {"$eq": 7}}),
        ({"a": None}, {"a": ["[null, null]"], "b": ["[MaxKey, MinKey]"]}, {"a": {"$eq": None}}),
        ({"a": {"$ne": 2}}, {"a": ["[MinKey, 2)", "(2, MaxKey]"], "b": ["[MaxKey, MinKey]"]}, None),
        ({"$or": [{"a": 1}, {"a": {"$gt": 3}}]}, {"a": ["[1, 1]", "(3, inf.0]"], "b": ["[MaxKey, MinKey]"]}, None),
    ],
)  # fmt: skip
def test_bounds_and_what_they_leave_open(
    bench: Bench, filter: dict[str, Any], bounds: dict[str, Any], residual: dict[str, Any] | None
) -> None:
    bench.index([("a", 1), ("b", -1)])
    bench.insert([*numbers(30), {"_id": 100, "b": 2}])
    plan = bench.plan(filter)
    expected = {
        path: (["[MaxKey, MinKey]"] if texts == ["[MinKey, MaxKey]"] else texts) for path, texts in bounds.items()
    }
    assert stages_of(plan) == ["FETCH", "IXSCAN"]
    assert bounds_of_plan(plan) == expected
    assert filter_of(plan) == residual
    assert sorted(map(str, bench.find(filter))) == sorted(map(str, bench.find(filter, hint={"$natural": 1})))


def test_negation_of_null_has_no_bounds(bench: Bench) -> None:
    bench.index([("a", 1)])
    bench.insert([{"_id": 1, "a": None}, {"_id": 2}, {"_id": 3, "a": 1}])
    assert stages_of(bench.plan({"a": {"$ne": None}})) == ["COLLSCAN"]
    assert bench.find({"a": {"$ne": None}}) == [3]


def test_multikey_takes_one_predicate_per_path(bench: Bench) -> None:
    bench.index([("a", 1)])
    bench.insert([{"_id": 1, "a": [0, 9]}, {"_id": 2, "a": 4}])
    plan = bench.plan({"a": {"$gt": 3, "$lt": 5}})
    assert len(bounds_of_plan(plan)["a"]) == 1
    assert bounds_of_plan(plan)["a"] != ["(3, 5)"]
    assert sorted(map(str, bench.find({"a": {"$gt": 3, "$lt": 5}}))) == ["1", "2"]
    within_one = bench.plan({"a": {"$elemMatch": {"$gt": 3, "$lt": 5}}})
    assert bounds_of_plan(within_one)["a"] == ["(3, 5)"]
    assert bench.drain(within_one.open()) == []


def test_multikey_combines_paths_of_one_array_only_under_elem_match(bench: Bench) -> None:
    bench.index([("x.a", 1), ("x.b", 1)])
    bench.insert([{"_id": 1, "x": [{"a": 1, "b": 8}, {"a": 7, "b": 2}]}, {"_id": 2, "x": [{"a": 1, "b": 2}]}])
    apart = bench.plan({"x.a": 1, "x.b": 2})
    assert bounds_of_plan(apart) == {"x.a": ["[1, 1]"], "x.b": ["[MinKey, MaxKey]"]}
    assert bench.find({"x.a": 1, "x.b": 2}) == [2, 1] or bench.find({"x.a": 1, "x.b": 2}) == [1, 2]
    together = bench.plan({"x": {"$elemMatch": {"a": 1, "b": 2}}})
    assert bounds_of_plan(together) == {"x.a": ["[1, 1]"], "x.b": ["[2, 2]"]}
    assert bench.find({"x": {"$elemMatch": {"a": 1, "b": 2}}}) == [2]


def test_paths_without_arrays_keep_tight_bounds_in_a_multikey_index(bench: Bench) -> None:
    bench.index([("x.a", 1), ("x.b", 1), ("t", 1)])
    bench.insert([{"_id": i, "x": {"a": i % 3, "b": i % 5}, "t": [i, i + 1]} for i in range(30)])
    filter = {"x.a": {"$in": [1, 2]}, "x.b": {"$gt": 1, "$lt": 4}, "t": {"$gt": 3, "$lt": 5}}
    plan = bench.plan(filter)
    assert bounds_of_plan(plan) == {"x.a": ["[1, 1]", "[2, 2]"], "x.b": ["(1, 4)"], "t": ["(3, inf.0]"]}
    assert nodes_of(plan)[-1].described()["multiKeyPaths"] == {"x.a": [], "x.b": [], "t": ["t"]}
    assert filter_of(plan) == {"t": {"$lt": 5}}
    assert bench.find(filter) == bench.find(filter, hint={"$natural": 1})
    assert stages_of(bench.plan({"x.a": 1}, sort=[("x.b", 1)])) == ["FETCH", "IXSCAN"]
    assert stages_of(bench.plan({"x.a": 1, "x.b": 2, "t": {"$gt": 1}}, sort=[("t", 1)]))[0] == "SORT"


def test_conditions_within_an_array_may_combine_below_it(bench: Bench) -> None:
    """The array is at x: predicates within one $elemMatch on x are combined, even if their paths share more than x."""
    bench.index([("x.y.a", 1), ("x.y.b", 1)])
    bench.insert([{"_id": 1, "x": [{"y": {"a": 1, "b": 8}}, {"y": {"a": 7, "b": 2}}]}])
    bench.insert([{"_id": 2, "x": [{"y": {"a": 1, "b": 2}}]}])
    plan = bench.plan({"x": {"$elemMatch": {"y.a": 1, "y.b": 2}}})
    assert bounds_of_plan(plan) == {"x.y.a": ["[1, 1]"], "x.y.b": ["[2, 2]"]}
    assert bench.drain(plan.open()) != []
    assert bench.find({"x": {"$elemMatch": {"y.a": 1, "y.b": 2}}}) == [2]


def test_multikey_gives_each_record_once(bench: Bench) -> None:
    bench.index([("a", 1)])
    bench.insert([{"_id": i, "a": [1, 2, 3]} for i in range(300)])
    assert len(bench.find({"a": {"$gte": 1}})) == 300
    assert len(bench.find({"a": {"$in": [1, 2, 3]}})) == 300


def test_number_in_a_path_of_a_multikey_index(bench: Bench) -> None:
    bench.index([("a.0", 1)])
    bench.insert([{"_id": 1, "a": {"0": 5}}])
    assert index_of(bench.plan({"a.0": 5})) == "a.0_1"
    # Its key is 7: the index uses the element with index 0, while the filter looks into each element.
    bench.insert([{"_id": 2, "a": [[7], [5]]}])
    filter = {"a": {"$elemMatch": {"0": 5}}}
    assert stages_of(bench.plan(filter)) == ["COLLSCAN"]
    assert bench.find(filter) == [2]
    assert bench.find(filter, hint="a.0_1") == [2]


@pytest.mark.parametrize(
    ("filter", "used"),
    [
        ({"a": 1}, True),
        ({"a": {"$gt": 1}}, True),
        ({"a": {"$exists": True}}, True),
        ({"a": {"$in": [1, 2]}}, True),
        ({"a": None}, False),
        ({"a": {"$exists": False}}, False),
        ({"a": {"$in": [1, None]}}, False),
        ({"a": {"$ne": 1}}, False),
        ({}, False),
        ({"a": {"$ne": 1, "$exists": True}}, True),
    ],
)
def test_sparse_index_where_existence_is_proven(bench: Bench, filter: dict[str, Any], used: bool) -> None:
    bench.index([("a", 1)], sparse=True)
    bench.insert([{"_id": 1, "a": 1}, {"_id": 2}, {"_id": 3, "a": 2}, {"_id": 4, "a": None}])
    assert (index_of(bench.plan(filter)) == "a_1") == used
    assert (index_of(bench.plan(filter, [("a", 1)])) == "a_1") == used
    assert len(bench.find(filter)) == len(bench.find(filter, hint={"$natural": 1}))


def test_hint_on_a_sparse_index_gives_what_it_holds(bench: Bench) -> None:
    bench.index([("a", 1)], sparse=True)
    bench.insert([{"_id": 1, "a": 1}, {"_id": 2}])
    assert bench.find({}, hint="a_1") == [1]
    assert bench.count({}, hint="a_1") == 1


@pytest.mark.parametrize(
    ("filter", "used"),
    [
        ({"a": 1, "b": 7}, True),
        ({"a": 1, "b": {"$gt": 5}}, True),
        ({"a": 1, "b": {"$gt": 5, "$lt": 9}}, True),
        ({"a": 1, "b": {"$gte": 5}}, False),
        ({"a": 1}, False),
        ({"a": 1, "b": {"$in": [6, 8]}}, True),
        ({"a": 1, "b": {"$in": [5, 8]}}, False),
        ({"a": 1, "$or": [{"b": 7}, {"b": {"$gt": 10}}]}, True),
        ({"a": 1, "b": {"$ne": 3}}, False),
        ({"a": 1, "b": "x"}, False),
    ],
)
def test_partial_index_where_the_filter_implies_its_own(bench: Bench, filter: dict[str, Any], used: bool) -> None:
    bench.index([("a", 1)], partialFilterExpression={"b": {"$gt": 5}})
    bench.insert([{"_id": i, "a": i % 2, "b": i} for i in range(20)])
    assert (index_of(bench.plan(filter)) == "a_1") == used
    assert sorted(map(str, bench.find(filter))) == sorted(map(str, bench.find(filter, hint={"$natural": 1})))
    if not used:  # with a hint, the result is what the index contains, as with a sparse one
        held = [_id for _id in bench.find(filter, hint={"$natural": 1}) if isinstance(_id, int) and _id > 5]
        assert index_of(bench.plan(filter, hint="a_1")) == "a_1"
        assert sorted(map(str, bench.find(filter, hint="a_1"))) == sorted(map(str, held))


@pytest.mark.parametrize("hint", ["nothing", {"z": 1}, {"a": -1}, "hidden_1", {"hidden": 1}, "_ts_1"])
def test_hint_that_names_no_usable_index(bench: Bench, hint: Any) -> None:
    bench.index([("a", 1)])
    bench.index([("hidden", 1)], hidden=True)
    bench.index([("_ts", 1)], expireAfterSeconds=10)
    with pytest.raises(CommandError) as refused:
        bench.plan({"a": 1}, hint=hint)
    assert refused.value.code == ErrorCode.BadValue
    assert refused.value.message.endswith(
        "planner returned error :: caused by :: hint provided does not correspond to an existing index"
    )


def test_hints(bench: Bench) -> None:
    bench.index([("a", 1)])
    bench.index([("b", 1)])
    bench.insert(numbers(10))
    assert index_of(bench.plan({"a": 1}, hint="b_1")) == "b_1"
    assert index_of(bench.plan({"a": 1}, hint={"b": 1.0})) == "b_1"
    assert index_of(bench.plan({}, hint="b_1")) == "b_1"
    assert stages_of(bench.plan({"a": 1}, hint={"$natural": 1})) == ["COLLSCAN"]
    assert bench.find({}, hint={"$natural": -1}) == list(range(9, -1, -1))
    assert bench.find({"a": 1}, hint="b_1") == [6, 1]
    with pytest.raises(CommandError) as refused:
        bench.plan({}, hint=5)
    assert refused.value.code == ErrorCode.FailedToParse


def test_hidden_and_unfinished_indexes_are_not_used(bench: Bench) -> None:
    bench.index([("a", 1)], hidden=True)
    unfinished = bench.index([("b", 1)])
    unfinished.ready = False
    assert stages_of(bench.plan({"a": 1})) == ["COLLSCAN"]
    assert stages_of(bench.plan({"b": 1})) == ["COLLSCAN"]


def test_the_ttl_setting_is_no_index(bench: Bench) -> None:
    bench.index([("_ts", 1)], expireAfterSeconds=10)
    assert stages_of(bench.plan({"_ts": 1})) == ["COLLSCAN"]


@pytest.mark.parametrize(
    ("filter", "sort", "stages"),
    [
        ({}, [("a", 1)], ["FETCH", "IXSCAN"]),
        ({}, [("a", -1)], ["FETCH", "IXSCAN"]),
        ({}, [("a", 1), ("b", -1), ("c", 1)], ["FETCH", "IXSCAN"]),
        ({}, [("a", -1), ("b", 1), ("c", -1)], ["FETCH", "IXSCAN"]),
        ({}, [("a", 1), ("b", 1)], ["SORT", "COLLSCAN"]),
        ({}, [("b", -1)], ["SORT", "COLLSCAN"]),
        ({"a": 2}, [("b", -1)], ["FETCH", "IXSCAN"]),
        ({"a": 2}, [("b", 1), ("a", 1), ("c", -1)], ["FETCH", "IXSCAN"]),
        ({"a": 2, "b": 1}, [("c", -1)], ["FETCH", "IXSCAN"]),
        ({"a": 2}, [("c", 1)], ["SORT", "FETCH", "IXSCAN"]),
        ({"a": {"$gt": 2}}, [("a", 1), ("b", -1)], ["FETCH", "IXSCAN"]),
        ({"a": {"$gt": 2}}, [("b", -1)], ["SORT", "FETCH", "IXSCAN"]),
        ({"a": {"$in": [1, 3]}}, [("a", -1)], ["FETCH", "IXSCAN"]),
        ({"a": {"$in": [1, 3]}}, [("b", -1)], ["SORT_MERGE", "FETCH", "IXSCAN"]),
        ({"a": {"$in": [1, 3]}}, [("a", 1), ("b", 1)], ["SORT_MERGE", "FETCH", "IXSCAN"]),
        ({"a": {"$in": [1, 3]}}, [("c", 1)], ["SORT", "FETCH", "IXSCAN"]),
        ({"c": 4}, [("a", 1)], ["FETCH", "IXSCAN"]),
    ],
)
def test_sort_by_index(bench: Bench, filter: dict[str, Any], sort: Pattern, stages: list[str]) -> None:
    bench.index([("a", 1), ("b", -1), ("c", 1)])
    bench.insert([{"_id": i, "a": i * 7 % 5, "b": i * 3 % 4, "c": i} for i in range(60)])
    assert stages_of(bench.plan(filter, sort)) == stages
    whole = [*sort, ("_id", 1)]
    by_index = bench.find(filter, sort)
    in_memory = bench.find(filter, whole, hint={"$natural": 1})
    assert len(by_index) == len(in_memory)
    if len(sort) == 3 or filter == {"a": 2, "b": 1}:
        assert by_index == in_memory


def test_multikey_index_sorts_only_by_unbounded_paths(bench: Bench) -> None:
    bench.index([("a", 1)])
    bench.insert([{"_id": 1, "a": [1, 9]}, {"_id": 2, "a": 5}, {"_id": 3, "a": [0, 20]}])
    assert stages_of(bench.plan({}, [("a", 1)])) == ["FETCH", "IXSCAN"]
    assert bench.find({}, [("a", 1)]) == [3, 1, 2]
    assert bench.find({}, [("a", -1)]) == [3, 1, 2]
    assert stages_of(bench.plan({"a": {"$gte": 5}}, [("a", 1)])) == ["SORT", "FETCH", "IXSCAN"]
    assert bench.find({"a": {"$gte": 5}}, [("a", 1)]) == [3, 1, 2]


def test_skip_and_limit(bench: Bench) -> None:
    bench.index([("c", 1)])
    bench.insert(numbers(500))
    assert stages_of(bench.plan({}, [("c", 1)], skip=3, limit=2)) == ["LIMIT", "SKIP", "FETCH", "IXSCAN"]
    assert bench.find({}, [("c", -1)], skip=3, limit=2) == [496, 495]
    assert stages_of(bench.plan({}, [("b", 1)], skip=3, limit=2)) == ["SKIP", "SORT", "COLLSCAN"]
    assert bench.find({}, [("b", 1), ("c", 1)], skip=3, limit=2) == [9, 12]
    assert bench.find({}, skip=300) == list(range(300, 500))
    assert bench.find({}, limit=300) == list(range(300))
    assert bench.find({"a": 1}, skip=498) == []


def test_or_over_several_indexes(bench: Bench) -> None:
    bench.index([("a", 1)])
    bench.index([("b", 1)])
    bench.insert(numbers(30))
    filter = {"$or": [{"a": 1}, {"b": 2, "c": {"$lt": 10}}], "c": {"$ne": 1}}
    plan = bench.plan(filter)
    assert stages_of(plan) == ["OR", "FETCH", "IXSCAN"]
    assert sorted(map(int, map(str, bench.find(filter)))) == bench.find(filter, hint={"$natural": 1})
    assert stages_of(bench.plan({"$or": [{"a": 1}, {"c": 2}]})) == ["COLLSCAN"]


def test_or_drops_branches_that_cannot_be_true(bench: Bench) -> None:
    bench.index([("a", 1)])
    bench.index([("b", 1)])
    bench.insert(numbers(30))
    filter = {"$or": [{"a": {"$gt": 5, "$lt": 3}}, {"b": 2, "a": 2}]}
    assert sorted(map(int, map(str, bench.find(filter)))) == [2, 17]


def test_unique_point_beats_all(bench: Bench) -> None:
    bench.index([("a", 1), ("b", 1)])
    bench.index([("c", 1)], unique=True)
    bench.insert(numbers(400))
    plan = bench.plan({"a": 1, "b": 1, "c": 31})
    assert index_of(plan) == "c_1"
    assert [node.stage for node in plan.rejected] == ["FETCH"]


def test_index_that_binds_more_beats_one_that_binds_less(bench: Bench) -> None:
    bench.index([("a", 1)])
    bench.index([("a", 1), ("b", 1)])
    bench.index([("b", 1), ("a", 1), ("c", 1)])
    bench.insert(numbers(400))
    assert index_of(bench.plan({"a": 1, "b": 1})) == "a_1_b_1"
    assert index_of(bench.plan({"a": 1})) == "a_1"
    assert index_of(bench.plan({"a": 1}, [("b", 1)])) == "a_1_b_1"


def test_trial_finds_the_selective_index(bench: Bench) -> None:
    bench.index([("common", 1)])
    bench.index([("rare", 1)])
    bench.insert([{"_id": i, "common": i % 2, "rare": i % 500} for i in range(2000)])
    assert index_of(bench.plan({"common": 1, "rare": 7})) == "rare_1"
    assert index_of(bench.plan({"rare": {"$lt": 400}, "common": 3})) == "common_1"


def test_trial_weighs_sorting_against_filtering(bench: Bench) -> None:
    bench.index([("state", 1)])
    bench.index([("at", 1)])
    bench.insert(
        [{"_id": i, "state": "open" if i % 2 else "rare" if i == 1000 else "done", "at": i} for i in range(3000)]
    )
    # Half of all documents match, so the first twenty are found quickly in the order of the sort.
    assert index_of(bench.plan({"state": "open"}, [("at", 1)], limit=20)) == "at_1"
    # Only one matches, so sorting is cheap.
    assert index_of(bench.plan({"state": "rare"}, [("at", 1)], limit=20)) == "state_1"


def test_id_lookup_is_express(bench: Bench) -> None:
    bench.insert(numbers(10))
    assert stages_of(bench.plan({"_id": 5})) == ["EXPRESS_IXSCAN"]
    assert bench.find({"_id": 5}) == [5]
    assert bench.find({"_id": 55}) == []
    assert stages_of(bench.plan({"_id": {"$in": [5, 6]}})) == ["FETCH", "IXSCAN"]
    assert bench.find({"_id": {"$in": [6, 5, 99]}}) == [5, 6]
    assert bench.find({"_id": {"$in": [6, 5, 99]}}, [("_id", -1)]) == [6, 5]
    assert bench.find({"_id": {"$gt": 6}}) == [7, 8, 9]
    assert bench.find({"_id": 5, "a": 1}) == []


def test_many_points_are_read_in_batches(bench: Bench) -> None:
    bench.insert(numbers(1000))
    wanted = list(range(0, 2000, 2))
    assert bench.find({"_id": {"$in": wanted}}) == list(range(0, 1000, 2))
    assert bench.find({"_id": {"$in": wanted}}, wanted=2) == list(range(0, 1000, 2))


def test_two_long_lists_do_not_multiply(bench: Bench) -> None:
    bench.index([("a", 1), ("b", 1)])
    bench.insert(numbers(40))
    filter = {"a": {"$in": list(range(100))}, "b": {"$in": list(range(2, 100))}}
    plan = bench.plan(filter)
    assert len(bounds_of_plan(plan)["b"]) == 98
    assert len(bench.find(filter)) == 13


def test_reading_begins_small_for_a_small_page(bench: Bench) -> None:
    bench.insert(numbers(1000))
    stage = bench.plan({"a": 1}, wanted=1).open()
    stage.next_batch(bench.op)
    assert stage.examined == 16
    stage = bench.plan({}, limit=2).open()
    assert len(stage.next_batch(bench.op) or []) == 2
    assert stage.examined_below() == 2


@pytest.mark.parametrize(
    ("expression", "bounds"),
    [
        ({"$eq": ["$a", 5]}, ["[5, 5]"]),
        ({"$eq": [5, "$a"]}, ["[5, 5]"]),
        ({"$gt": ["$a", 5]}, ["(5, MaxKey]"]),
        ({"$gt": [5, "$a"]}, ["[MinKey, 5)"]),
        ({"$lte": ["$a", "x"]}, ['[MinKey, "x"]']),
        ({"$and": [{"$gte": ["$a", 1]}, {"$lt": ["$a", 3]}, {"$ne": ["$b", 1]}]}, ["[1, 3)"]),
        ({"$eq": ["$a", None]}, None),
        ({"$eq": ["$a", [1]]}, None),
        ({"$ne": ["$a", 5]}, None),
        ({"$eq": ["$a", "$b"]}, None),
        ({"$or": [{"$eq": ["$a", 5]}, {"$eq": ["$a", 6]}]}, None),
    ],
    ids=str,
)
def test_comparisons_in_expr(bench: Bench, expression: dict[str, Any], bounds: list[str] | None) -> None:
    bench.index([("a", 1)])
    bench.insert([{"_id": i, "a": i} for i in range(10)])
    node = bench.plan({"$expr": expression}).winning
    if bounds is None:
        assert node.stage == "COLLSCAN"
        return
    assert node.stage == "FETCH"
    assert "$expr" in str(node.described_filter()["filter"])
    assert node.inputs[0].described()["indexBounds"] == {"a": bounds}
    bench.insert([{"_id": "array", "a": [1]}])
    assert bench.plan({"$expr": expression}).winning.stage == "COLLSCAN"


@pytest.mark.parametrize(
    ("filter", "bounds"),
    [
        ({"$nor": [{"a": {"$gt": 5}}]}, ["[MinKey, 5]", "(inf.0, MaxKey]"]),
        ({"$nor": [{"a": 5}, {"b": 1}]}, ["[MinKey, 5)", "(5, MaxKey]"]),
        ({"$nor": [{"a": 5}, {"a": 7}]}, ["[MinKey, 5)", "(5, 7)", "(7, MaxKey]"]),
        ({"$nor": [{"a": {"$in": [5, 7]}}], "a": {"$gt": 6}}, ["(6, 7)", "(7, inf.0]"]),
        ({"$nor": [{"b": 1}]}, None),
    ],
    ids=str,
)
def test_nor(bench: Bench, filter: dict[str, Any], bounds: list[str] | None) -> None:
    bench.index([("a", 1)])
    bench.insert([{"_id": i, "a": i, "b": i % 2} for i in range(10)])
    node = bench.plan(filter).winning
    if bounds is None:
        assert node.stage == "COLLSCAN"
        return
    assert node.inputs[0].described()["indexBounds"] == {"a": bounds}
    assert "$nor" in str(node.described_filter()["filter"])
