"""The stages of plans: each gives batches of records, after a bounded amount of work per call.

stage          what all stages share; COLLSCAN, SORT, SKIP, LIMIT, EOF
index_scan     IXSCAN with FETCH, lookups of single keys, OR
key_skipper    where in a compound index to go on behind a key that is out of bounds
covered_scan   IXSCAN alone, where the keys hold all that is asked for
distinct_scan  DISTINCT_SCAN
merge_scan     SORT_MERGE
clustered_scan, tailable_scan, text_scan, near_scan: other scans
annotate       what `{$meta: …}` reads of a record
liveness       whether a record lives, when it is read and when it is given
record_ids     sets of record ids in little memory
"""
