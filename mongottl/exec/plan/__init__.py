"""From a filter and a sort to a plan.

planner      plan_query: the rules, in their order
plan_ranker  the choice among the ways that indexes offer
express      one record by its `_id`, without a plan
predicates   what a filter says about single paths; expr_bounds: what `$expr` says
bounds       ranges of index keys from these, and whether an index gives a sort's order; bounds_text: in words
min_max      the part of an index that find's `min` and `max` name
geo_near_path  the path that a `$geoNear` is about
implication  whether a filter implies that of a partial index
index_access how each kind of index serves queries; access_path: ways into a collection, as they are weighed
shape, plan_cache: what is remembered of a query without its values
"""
