"""Running pipelines: the planner executes their leading stages, the other stages read from its plan."""

import random
from dataclasses import replace
from functools import partial

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.describe import describe_cluster
from mongottl.catalog.index_kinds import BTREE
from mongottl.catalog.key_ranges import keys_with_prefix
from mongottl.catalog.view import View
from mongottl.document.annotated import STORED_AS
from mongottl.document.build import EMPTY_DOCUMENT, encode, encode_fields
from mongottl.document.collation import Collation, same_collation
from mongottl.document.freeing import LongList, LongSet
from mongottl.document.interrupt import check_interrupt
from mongottl.document.keystring import encode_value
from mongottl.document.long_lists import with_more
from mongottl.document.sorting import sort_in_parts, sorted_distinct
from mongottl.document.types import MISSING, Date, Int64, Value, integer
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.operation.current_op import CurrentOpOptions, describe_operations
from mongottl.exec.plan.distinct_path import DistinctPath, DistinctQuery
from mongottl.exec.plan.geo_near_path import near_match
from mongottl.exec.plan.plan_cache import NO_SHAPE, QueryShape, describe_plan
from mongottl.exec.plan.planner import QueryPlan, plan_query, spill_space
from mongottl.exec.results import merging, output
from mongottl.exec.results.counting import CountedDocuments
from mongottl.exec.results.query_stats_source import QueryStatsSource
from mongottl.exec.results.reading import PipelinePages, PlanDocuments, Pull
from mongottl.exec.results.sizes import collection_size, describe_size, parse_scale
from mongottl.exec.results.views import collection_below, resolve_view, view_collation
from mongottl.exec.sessions.session_ids import digest_of, read_user
from mongottl.exec.stages.distinct_scan import NullRule
from mongottl.exec.stages.stage import BATCH_BYTES
from mongottl.exec.state.usage import Latency
from mongottl.exec.unit.recovery_unit import RecoveryUnit
from mongottl.query.context import ParseContext
from mongottl.query.expr.parser import ObjectExpression
from mongottl.query.expr.path import FieldExpression, FieldPathExpression
from mongottl.query.match import MatchExpression, parse_match
from mongottl.query.pipeline import DocumentSource, RunContext, StageSpec, open_pipeline, optimise, parse_pipeline
from mongottl.query.pipeline.basic import CountSpec, LimitSpec, MatchSpec, SkipSpec
from mongottl.query.pipeline.group import DistinctGroupSpec, GroupSpec, common_sort_by
from mongottl.query.pipeline.near import GeoNearFieldsSpec, GeoNearSpec
from mongottl.query.pipeline.project import ProjectSpec
from mongottl.query.pipeline.run_context import EqualityProbe, MergeRequest, NearRequest
from mongottl.query.pipeline.sort import SortSpec
from mongottl.query.pipeline.stage import requested_by
from mongottl.query.sort import SortPattern, parse_sort
from mongottl.query.spill import SpillSpace
from mongottl.security.names import NOBODY
from mongottl.security.privileges import CLUSTER, database_resource
from mongottl.ttl.policy import NO_TTL, is_expired


def _only_counts(spec: StageSpec) -> bool:
    """Whether a stage needs only the number of documents, none of their fields."""
    return isinstance(spec, CountSpec) or (isinstance(spec, GroupSpec) and spec.dependencies() == set())


def _all_stream(specs: list[StageSpec]) -> bool:
    return all(spec.traits.streaming for spec in specs)


def _any_multiplies(specs: list[StageSpec]) -> bool:
    return any(spec.multiplies for spec in specs)


def _may_buffer(specs: list[StageSpec]) -> bool:
    """Whether stages may still buffer documents when a batch of the cursor is full."""
    return not all(spec.shrinks for spec in specs)


def _distinct_query(spec: StageSpec, collation: Collation | None) -> DistinctQuery | None:
    """The documents that a `$group` by a path, or by {name: path}, needs, if it needs one of each group; else None."""
    if not isinstance(spec, GroupSpec):
        return None
    key = spec.key
    nulls = NullRule.ONE
    if isinstance(key, ObjectExpression) and len(key.values) == 1:
        key = key.values[0]
        nulls = NullRule.ALL
    if not isinstance(key, (FieldExpression, FieldPathExpression)):
        return None
    names = {accumulator.name for accumulator in spec.accumulators}
    if len(names) > 1 or not names <= {"$first", "$last", "$top", "$bottom"}:
        return None
    dotted = key.name if isinstance(key, FieldExpression) else key.path.dotted
    read: set[str] = LongSet()
    known = spec.collect_paths(read)
    last = bool(names & {"$last", "$bottom"})
    return DistinctQuery(
        dotted,
        sort_in_parts(LongList(read)) if known else None,
        collation,
        nulls,
        elements=False,
        ordered=bool(names),
        last=last,
    )


def _orders_of(group: GroupSpec, query: DistinctQuery) -> list[SortPattern]:
    """The orders of documents in which the first of each group, or the last, is that of its `$top`, or `$bottom`.

    [] if it has other accumulators.
    """
    sort_by = common_sort_by(group)
    if not sort_by:
        return []
    named = fields(sort_by)
    if any(path == query.key for path, _ in named):
        return [parse_sort(sort_by, query.collation)]
    return [parse_sort(encode_fields([(query.key, way), *named]), query.collation) for way in (1, -1)]


def _pass_documents_through(specs: list[StageSpec]) -> bool:
    """Whether each result of these stages is made from one of their input documents."""
    return all(spec.keeps_metadata and not spec.traits.writes for spec in specs)


class IndexProbe(EqualityProbe):
    """Finds the documents with a value by a btree index on a single path."""

    def __init__(self, unit: RecoveryUnit, collection: Collection, index: CollectionIndex, now_s: int) -> None:
        self._unit = unit
        self._collection = collection
        self._index = index
        self._now_s = now_s
        self._descending = index.descriptor.descending[0]

    def find(self, value: Value, max_documents: int) -> list[Value] | None:
        key_range = keys_with_prefix(encode_value(value, self._descending))
        unit = self._unit
        default_ttl_s = self._collection.default_ttl_s
        found: list[Value] = []
        entries, more = unit.index(self._index).scan_fetch(
            unit.records(self._collection), key_range, None, max_documents + 1, BATCH_BYTES
        )
        if more or len(entries) > max_documents:
            return None
        self._index.accesses += 1
        for _, _, document, ts_s, ttl_s in entries:
            if default_ttl_s == NO_TTL or not is_expired(ts_s, ttl_s, default_ttl_s, self._now_s):
                found.append(document)
        return found


class OperationRun(RunContext):
    """Gives the stages of a pipeline access to the operation that runs it."""

    def __init__(
        self,
        pull: Pull,
        allow_disk_use: bool | None,
        specs: list[StageSpec],
        metadata: set[str],
        collation: Collation | None,
    ) -> None:
        # A copy of the memory limits: later changes of parameters do not affect a running pipeline.
        op = pull.op
        super().__init__(op.now_ms, replace(op.service.limits), spill_space(op, allow_disk_use), op.resources.memory)
        self._allow_disk_use = allow_disk_use
        self.metadata |= metadata
        self._pull = pull
        self._op = pull.op
        self._collation = collation
        # Joins buffer the documents of another collection; `$unionWith` passes them through.
        self._passed_through = any(
            specs[i].name == "$unionWith" and _pass_documents_through(specs[i + 1 :]) for i in range(len(specs))
        )

    def open_collection(
        self, database: str, collection: str, match: bytes | None, ctx: ParseContext | None = None
    ) -> DocumentSource:
        let = None if ctx is None else ctx.let
        at = self._op.cluster_time if ctx is None else ctx.cluster_time
        namespace = f"{database}.{collection}"
        context = ParseContext(self._op.now_ms, let, namespace, collation=self._collation, cluster_time=at)
        context.open_scripts = self._pull.op.open_scripts
        tree = parse_match(EMPTY_DOCUMENT if match is None else match, context)
        op = self._pull.op
        found = op.catalog.find(database, collection)
        if isinstance(found, View):
            return self._open_view(found, match, context)
        requested = self.metadata - {STORED_AS}
        plan = plan_query(op, found, tree, metadata=requested, allow_disk_use=self._allow_disk_use)
        return PlanDocuments(plan.open(), found, self._pull, self._passed_through, self._passed_through)

    def _open_view(self, view: View, match: bytes | None, outer: ParseContext) -> DocumentSource:
        op = self._pull.op
        self._check_view(view)
        resolved = resolve_view(op.catalog, view)
        context = ParseContext(
            op.now_ms, outer.let, resolved.namespace, collation=self._collation, cluster_time=outer.cluster_time
        ).inheriting(outer)
        narrowing: list[Value] = [] if match is None else [encode({"$match": match})]
        specs = optimise(parse_pipeline(resolved.pipeline + narrowing, context), context)
        underlying = collection_below(op.catalog, resolved)
        plan = plan_aggregation(op, underlying, specs, allow_disk_use=self._allow_disk_use, collation=self._collation)
        limit_to_page = self._passed_through and _all_stream(plan.rest) and not _any_multiplies(plan.rest)
        tracked = self._passed_through and _pass_documents_through(plan.rest)
        head = PlanDocuments(plan.plan.open(), plan.collection, self._pull, limit_to_page, tracked)
        run = OperationRun(self._pull, self._allow_disk_use, plan.rest, plan.metadata | self.metadata, self._collation)
        joins = any(spec.traits.joined_field for spec in plan.rest)
        return ViewDocuments(head, open_pipeline(plan.rest, head, run), self._pull, joins)

    def open_near(self, request: NearRequest, metadata: frozenset[str]) -> DocumentSource:
        op = self._pull.op
        collection = self._find(request.namespace)
        requested = (self.metadata | metadata) - {STORED_AS}
        plan = plan_query(op, collection, near_match(collection, request), metadata=requested)
        return PlanDocuments(plan.open(), collection, self._pull, self._passed_through, self._passed_through)

    def _check_view(self, view: View) -> None:
        """OptionNotSupportedOnView (167) unless the view's collation is the operation's."""
        if not same_collation(view_collation(view), self._collation):
            raise CommandError(
                ErrorCode.OptionNotSupportedOnView, f"Cannot override a view's default collation: {view.namespace}"
            )

    def has_index(self, database: str, collection: str, path: str) -> bool:
        found = self._pull.op.catalog.find(database, collection)
        if found is None:
            return False
        if isinstance(found, View):
            self._check_view(found)
            return False
        for index in found.writable_indexes:
            descriptor = index.descriptor
            whole = not descriptor.hidden and not descriptor.sparse and descriptor.partial_match is None
            if not same_collation(descriptor.collation, self._collation):
                continue
            if index.ready and whole and descriptor.paths[0].dotted == path:
                return True
        return False

    def equality_probe(self, database: str, collection: str, path: str) -> EqualityProbe | None:
        found = self._pull.op.catalog.find(database, collection)
        if self._collation is not None or found is None or isinstance(found, View):
            return None
        for index in found.writable_indexes:
            descriptor = index.descriptor
            if (
                index.ready
                and len(descriptor.paths) == 1
                and descriptor.paths[0].dotted == path
                # Under a dotted path with arrays, keys do not find all documents that a filter matches.
                and (descriptor.paths[0].depth == 1 or not index.multikey)
                and descriptor.kind is BTREE
                and descriptor.collation is None
                and not descriptor.hidden
                and not descriptor.sparse
                and descriptor.partial_match is None
            ):
                return IndexProbe(self._pull.op.recovery_unit, found, index, self._pull.op.now_s)
        return None

    def describe_collection(self, namespace: str) -> list[tuple[str, Value]]:
        host = self._op.service.config.advertise_host or self._op.client.local
        return [("ns", namespace), ("host", host), ("localTime", Date(self._op.now_ms))]

    def storage_statistics(self, namespace: str, scale: Value) -> Value:
        unit = parse_scale("$collStats.storageStats", scale)
        collection = self._find(namespace)
        if collection is None:
            raise CommandError(
                ErrorCode.NamespaceNotFound,
                "Unable to retrieve storageStats in $collStats stage :: caused by :: Collection"
                f" [{namespace}] not found.",
            )
        return encode(describe_size(self._op.recovery_unit, collection, self._op.now_s, unit))

    def latency_statistics(self, namespace: str, histograms: bool) -> Value:
        usage = self._op.service.metrics.usage.of(namespace)
        sections: list[tuple[str, Value]] = [
            ("reads", _described_latency(usage.reads, histograms)),
            ("writes", _described_latency(usage.writes, histograms)),
            ("commands", _described_latency(usage.commands, histograms)),
            ("transactions", _described_latency(Latency(), histograms)),
        ]
        return encode_fields(sections)

    def execution_statistics(self, namespace: str) -> Value:
        collection = self._find(namespace)
        if collection is None:
            raise CommandError(ErrorCode.NamespaceNotFound, f"Collection [{namespace}] not found.")
        counts: dict[str, Value] = {
            "total": Int64(collection.scans),
            "nonTailable": Int64(collection.scans - collection.tailable_scans),
        }
        return encode({"collectionScans": encode(counts)})

    def count_collection(self, namespace: str) -> Value:
        collection = self._find(namespace)
        if collection is None:
            raise CommandError(ErrorCode.NamespaceNotFound, f"Collection [{namespace}] not found.")
        return integer(collection_size(self._op.recovery_unit, collection).unexpired_count(self._op.now_s))

    def index_statistics(self, namespace: str) -> list[bytes]:
        op = self._pull.op
        collection = self._find(namespace)
        host = op.service.config.advertise_host or op.client.local
        found: list[bytes] = []
        for index in [] if collection is None else collection.listed_indexes:
            since = Date(max(index.since_ms, op.service.started_ms))
            known: dict[str, Value] = {
                "name": index.name,
                "key": index.descriptor.key,
                "host": host,
                "accesses": encode({"ops": Int64(index.accesses), "since": since}),
                "spec": index.descriptor.spec,
            }
            if not index.ready:
                known["building"] = True
            found.append(encode(known))
        return found

    def plan_cache(self, namespace: str) -> list[bytes]:
        collection = self._find(namespace)
        if collection is None:
            raise CommandError(50933, f"{namespace} does not exist")
        if collection.time_series is not None:
            raise CommandError(40602, "$planCacheStats is only valid as the first stage in a pipeline")
        host = self._op.service.config.advertise_host or self._op.client.local
        return [describe_plan(plan, host) for plan in collection.plan_memory.plans_at(collection.generation)]

    def query_settings(self, debug: bool) -> list[bytes]:
        found: list[bytes] = []
        for settings in [*self._op.service.settings.query_settings.values()]:  # others change them meanwhile
            entry = settings.entry()
            if debug and settings.shape is not None:
                entry["debugQueryShape"] = settings.shape
            found.append(encode(entry))
        return found

    def query_statistics(self, hmac_key: bytes | None) -> DocumentSource:
        service = self._op.service
        return QueryStatsSource(service.profiler.query_stats.entries(), service.clock.now_ms(), hmac_key)

    def cluster_catalog(self, database: str, shards: bool) -> list[bytes]:
        catalog = self._op.catalog
        databases = catalog.database_names() if database == "admin" else [database]
        shown = [name for name in databases if self._op.may(database_resource(name), "listCollections")]
        return self._op.compute(lambda: describe_cluster(catalog, shown, shards))

    def operations(self, options: dict[str, Value]) -> list[bytes]:
        parsed = CurrentOpOptions(
            idle_connections=options.get("idleConnections") is True,
            idle_sessions=options.get("idleSessions", True) is True,
            idle_cursors=options.get("idleCursors") is True,
            truncate=options.get("truncateOps") is True,
            own_only=options.get("allUsers") is not True,
        )
        return describe_operations(self._pull.op, parsed)

    def sessions(self, options: dict[str, Value]) -> list[bytes]:
        op = self._pull.op
        users = options.get("users")
        digests = [NOBODY.digest if op.client.login is None else op.client.login.digest]
        if isinstance(users, list) and any(users):
            own = digests[0]
            digests = [read_user("users", user).digest for user in users if isinstance(user, bytes)]
            if any(digest != own for digest in digests) and not op.may(CLUSTER, "listSessions"):
                raise CommandError(ErrorCode.Unauthorized, "not authorized to list the sessions of other users")
        everybody = options.get("allUsers") is True
        found: list[bytes] = []
        for session in op.service.sessions.all():
            if not everybody and digest_of(session.key) not in digests:
                continue
            found.append(encode({"_id": session.lsid, "lastUse": Date(session.last_used_ms)}))
        return found

    def _find(self, namespace: str) -> Collection | None:
        database, _, name = namespace.partition(".")
        return self._op.catalog.lookup(database, name, time_series=True)

    def is_time_series(self, namespace: str) -> bool:
        database, _, name = namespace.partition(".")
        found = self._op.catalog.find(database, name)
        return isinstance(found, Collection) and found.time_series is not None

    def random(self) -> float:
        return random.random()

    def check_out(self, database: str, collection: str, time_series: bytes | None) -> None:
        output.check_out(self._pull.op, database, collection, time_series)

    def open_output(self, database: str, collection: str, time_series: bytes | None) -> str:
        return output.open_output(self._pull.op, database, collection, time_series)

    def insert_output(self, database: str, temporary: str, collection: str, documents: list[bytes]) -> None:
        for part in output.parts_to_insert(self._pull.op, database, temporary, documents):
            check_interrupt()
            output.insert_output(self._pull.op, database, temporary, collection, part)

    def stamp_output(self, database: str, temporary: str, after: int) -> int:
        return output.stamp_output(self._pull.op, database, temporary, after)

    def publish_output(self, database: str, temporary: str, collection: str) -> None:
        output.publish_output(self._pull.op, database, temporary, collection)

    def discard_output(self, database: str, temporary: str) -> None:
        output.discard_output(self._pull.op, database, temporary)

    def check_merge(self, database: str, collection: str, on: list[str], named: bool) -> bool:
        return merging.check_merge(self._pull.op, database, collection, on, named, self._collation)

    def with_id(self, document: bytes) -> bytes:
        return merging.with_id(self._pull.op, document)

    def merge_together(self, database: str, collection: str, requests: list[MergeRequest]) -> list[MergeRequest]:
        return merging.merge_together(self._pull.op, database, collection, requests, self._collation)

    def merge_document(self, database: str, collection: str, request: MergeRequest) -> None:
        merging.merge_document(self._pull.op, database, collection, request, self._collation)


class ViewDocuments(DocumentSource):
    """The documents of a view that another pipeline reads. head: the documents of the underlying collection.

    joins: whether the view's stages read other collections, whose documents may expire as well.
    """

    def __init__(self, head: DocumentSource, documents: DocumentSource, pull: Pull, joins: bool) -> None:
        self._head = head
        self._documents = documents
        self._pull = pull
        self._joins = joins
        self._opened_s = pull.op.now_s

    def next_batch(self) -> list[bytes] | None:
        return self._documents.next_batch()

    def held_bytes(self) -> int:
        return self._documents.held_bytes()

    def spill(self, space: SpillSpace) -> bool:
        return self._documents.spill(space)

    def is_outdated(self) -> bool:
        return self._head.is_outdated() or (self._joins and self._pull.op.now_s != self._opened_s)

    def close(self) -> None:
        self._documents.close()


class AggregationPlan:
    """A pipeline ready to run: a plan for its leading stages, and the remaining stages.

    metadata: keywords that stages read by `{$meta: …}`. collation: the operation's. covered_paths: those that the plan
    reads from index keys for a `$group`; empty if it reads documents.
    """

    def __init__(
        self,
        collection: Collection | None,
        plan: QueryPlan,
        match: MatchExpression,
        rest: list[StageSpec],
        metadata: set[str],
        collation: Collation | None,
        covered_paths: list[str],
    ) -> None:
        self.collation = collation
        self.collection = collection
        self.covered_paths = covered_paths
        self.plan = plan
        self.match = match
        self.rest = rest
        self.metadata = metadata

    def open(self, op: OperationContext, allow_disk_use: bool | None) -> PipelinePages:
        pull = Pull(op, _all_stream(self.rest), _may_buffer(self.rest))
        return PipelinePages(self.open_source(pull, allow_disk_use), pull)

    def open_source(self, pull: Pull, allow_disk_use: bool | None) -> DocumentSource:
        """The results of the pipeline as a `DocumentSource`."""
        stage = self.plan.open()
        pull.op.note_plan(stage)
        if self.collection is not None and self.collection.options.capped:
            stage.set_guarded()
        head: DocumentSource = PlanDocuments(stage, self.collection, pull, True, _pass_documents_through(self.rest))
        if self.plan.counted:
            head = CountedDocuments(self.plan, head, pull)
        carried = self.metadata | {STORED_AS} if pull.tracks_records else self.metadata
        run = OperationRun(pull, allow_disk_use, self.rest, carried, self.collation)
        # A part of an evaluation: a stage may have a million functions.
        return pull.op.compute(partial(open_pipeline, self.rest, head, run))


def check_stage_allowed(op: OperationContext, spec: StageSpec) -> None:
    """OperationNotSupportedInTransaction (263), or InvalidOptions (72) for a read concern that the stage refuses."""
    if op.session.in_transaction and not spec.traits.in_transaction:
        raise CommandError(
            ErrorCode.OperationNotSupportedInTransaction,
            f"Stage not supported inside of a multi-document transaction: {spec.name}",
        )
    for stages in spec.sub_pipelines():
        for nested in stages:
            check_stage_allowed(op, nested)
    levels = spec.traits.read_levels
    if op.reading.level and levels is not None and op.reading.level not in levels:
        raise CommandError(
            ErrorCode.InvalidOptions,
            f"Aggregation stage {spec.name} does not support read concern level '{op.reading.level}'",
        )


def plan_aggregation(
    op: OperationContext,
    collection: Collection | None,
    specs: list[StageSpec],
    hint: Value = MISSING,
    allow_disk_use: bool | None = None,
    shape: QueryShape = NO_SHAPE,
    remember: bool = True,
    collation: Collation | None = None,
) -> AggregationPlan:
    """Plans the leading `$match`, `$sort`, `$skip` and `$limit`; the other stages remain.

    collation: the one with which the stages were parsed; other collections that they read are read with it as well.
    """
    if op.service.dialect.sorts_need_index:
        op.service.dialect.check_pipeline_sorts(collection, specs)
    metadata = requested_by(specs)
    match: MatchExpression = parse_match(EMPTY_DOCUMENT, ParseContext())
    sort: SortPattern | None = None
    skip = limit = 0
    taken = 0
    if specs and isinstance(near := specs[0], GeoNearSpec):
        # The remaining part of the stage sets the distance fields.
        match = near_match(collection, near.request)
        specs = [GeoNearFieldsSpec(near), *specs[1:]]
    if taken < len(specs) and isinstance(spec := specs[taken], MatchSpec):
        match = spec.expression
        taken += 1
    if taken < len(specs) and isinstance(spec := specs[taken], SortSpec):
        sort = spec.pattern
        limit = spec.limit
        taken += 1
    if limit == 0:
        if taken < len(specs) and isinstance(spec := specs[taken], SkipSpec):
            skip = spec.count
            taken += 1
        if taken < len(specs) and isinstance(spec := specs[taken], LimitSpec):
            limit = spec.count
            taken += 1
    run = OperationRun(Pull(op, True, False), allow_disk_use, [], metadata, collation)
    for spec in specs:
        check_stage_allowed(op, spec)
        spec.check(run)
    if sort is not None and shape is not NO_SHAPE:
        shape.sort = encode(sort.describe())
    hinted = hint is not MISSING
    plan_sorted = partial(
        plan_query,
        op,
        collection,
        match,
        skip=skip,
        limit=limit,
        hint=hint,
        allow_disk_use=allow_disk_use,
        shape=shape,
        metadata=metadata,
    )
    plan = plan_sorted(sort=sort, remember=remember)
    covered_paths: list[str] = []
    if not metadata and not skip and not limit and taken < len(specs):
        group = specs[taken]
        query = _distinct_query(group, collation)
        if query is not None and isinstance(group, GroupSpec):
            orders = _orders_of(group, query)
            distinct = False
            if orders and sort is None and collection is not None and _has_index_on(collection, query.key):
                for order in orders:
                    ordered = plan_sorted(sort=order, remember=False)
                    distinct = _gives_order(ordered) and ordered.skip_repeated(query, hinted)
                    if distinct:
                        plan = ordered
                        break
            elif not orders and (sort is None or _gives_order(plan)):
                distinct = plan.skip_repeated(query, hinted)
            if distinct:
                assert isinstance(plan.path, DistinctPath)
                specs = [*specs[:taken], DistinctGroupSpec(group, plan.path.returns_once), *specs[taken + 1 :]]
                if plan.covered and query.read_paths is not None:
                    covered_paths = query.read_paths
    counting = taken
    while counting < len(specs) and isinstance(specs[counting], (SkipSpec, LimitSpec)):
        counting += 1
    if not metadata and counting < len(specs) and _only_counts(specs[counting]):
        plan.count_only()
    elif not plan.covered and taken < len(specs):
        covered_paths = _covered_paths(plan, specs[taken])
    return AggregationPlan(collection, plan, match, specs[taken:], metadata, collation, covered_paths)


def _covered_paths(plan: QueryPlan, spec: StageSpec) -> list[str]:
    """Makes the plan a covered one if the index keys contain all that the stage after it reads: these paths, or []."""
    included: list[str] = LongList()
    read: set[str] = LongSet()
    if isinstance(spec, ProjectSpec):
        if not spec.projection.collect_paths(included, read):
            return []
        plan.cover(spec.projection)
    elif isinstance(spec, GroupSpec):
        if not spec.collect_paths(read):
            return []
        plan.read_only(read)
    return sorted_distinct(with_more(included, LongList(read))) if plan.covered else []


def _gives_order(plan: QueryPlan) -> bool:
    """Whether the plan's access path gives the order of its sort."""
    return plan.path is not None and plan.path.sorted != 0


def _has_index_on(collection: Collection, path: str) -> bool:
    return any(path == indexed.dotted for index in collection.indexes for indexed in index.descriptor.paths)


def _described_latency(latency: Latency, histograms: bool) -> Value:
    described: list[tuple[str, Value]] = []
    if histograms:
        buckets: list[Value] = []
        for micros in sorted(latency.buckets):
            buckets.append(encode({"micros": Int64(micros), "count": Int64(latency.buckets[micros])}))
        described.append(("histogram", buckets))
    described.append(("latency", Int64(latency.micros)))
    described.append(("ops", Int64(latency.count)))
    described.append(("queryableEncryptionLatencyMicros", Int64(0)))
    return encode_fields(described)
