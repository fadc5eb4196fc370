"""The stages of plans: each gives batches of records, after a bounded amount of work per call.

stage          the base class of all stages; COLLSCAN, SORT, SKIP, LIMIT, EOF
index_scan     IXSCAN with FETCH, lookups of single keys, OR
key_ranges     the position of a scan in ranges of keys, and reading keys within the bounds
key_skipper    the key to seek to in a compound index after a key outside the bounds
covered_scan   IXSCAN without FETCH, for covered queries
distinct_scan  DISTINCT_SCAN
merge_scan     SORT_MERGE
clustered_scan, tailable_scan, text_scan, near_scan: other scans
annotate       metadata for `{$meta: …}`
liveness       whether a record is expired, when it is read and when it is returned
record_ids     compact sets of record ids
"""
