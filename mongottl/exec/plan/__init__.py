"""From a filter and a sort to a plan.

planner      plan_query: the rules, in their order
plan_ranker  chooses among the candidate access paths
express      finds one record by its `_id`, without a plan
predicates   predicates on single paths from a filter; expr_bounds: from `$expr`
bounds       ranges of index keys from predicates, and whether an index provides a sort; bounds_text: for explain
min_max      the range of an index between find's `min` and `max`
geo_near_path  the path of a `$geoNear` without `key`
implication  whether a filter implies that of a partial index
index_access how each type of index serves queries; access_path: scans of collections and indexes, with their costs
covered_path, distinct_path, merged_path: when these scans are possible, and their access paths
shape, plan_cache: query shapes, index filters and cached plans
"""
