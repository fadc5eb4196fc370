"""Text indexes: they serve `$text` only.

A compound text index with prefix fields serves searches with an equality on each of them. Source: MongoDB's
"$text" page and "Text Index Restrictions".
"""

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.catalog.index_kinds.text import TextKeyGenerator
from mongottl.document.interrupt import give_way
from mongottl.document.types import Value
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.plan.access_path import AccessPath, IndexPath
from mongottl.exec.plan.index_access.access import IndexAccess
from mongottl.exec.plan.predicates import Filter
from mongottl.exec.stages.stage import PlanStage
from mongottl.exec.stages.text_scan import TextStage
from mongottl.exec.unit.recovery_unit import RecoveryUnit
from mongottl.query.fulltext.search import TextSearch
from mongottl.query.match import MatchExpression
from mongottl.query.match.text import TextExpression
from mongottl.query.match.tree import AndExpression
from mongottl.query.metadata import TEXT_SCORE
from mongottl.query.sort import SortPattern


class TextPath(AccessPath):
    """A text search. before: the values of the index's prefix fields. rest: the other conjuncts of the filter."""

    def __init__(
        self,
        collection: Collection,
        index: CollectionIndex,
        search: TextSearch,
        before: dict[str, Value],
        rest: list[MatchExpression],
    ) -> None:
        super().__init__(collection, 0)
        self.index = index
        self.search = search
        self.before = before
        self.rest: MatchExpression | None = None
        if rest:
            self.rest = rest[0] if len(rest) == 1 else AndExpression(rest)
        keys = index.keys
        assert isinstance(keys, TextKeyGenerator)
        encoded = keys.encoded_prefix(list(before.values()))
        self._prefixes: list[bytes] = []
        for term in search.index_terms:
            give_way()
            self._prefixes.append(keys.term_prefix(encoded, term))

    @property
    def label(self) -> str:
        return self.index.name

    def open(self, wanted: int, trial: bool = False) -> PlanStage:
        scored = TEXT_SCORE in self.metadata
        stage = TextStage(self.collection, self.index, self.search, self._prefixes, self.rest, scored, self.before)
        stage.set_spill_space(self.space)
        return stage

    def count_entries(self, unit: RecoveryUnit, limit: int) -> int:
        return min(limit, unit.records(self.collection).count())

    def share(self, equality: float, scope: float) -> float:
        return equality


class TextAccess(IndexAccess):
    def may_serve(self, index: CollectionIndex, filter: Filter, sort: SortPattern | None) -> bool:
        return False

    def candidates(
        self,
        collection: Collection,
        index: CollectionIndex,
        match: MatchExpression,
        filter: Filter,
        sort: SortPattern | None,
    ) -> list[IndexPath]:
        return []

    def hinted(
        self,
        collection: Collection,
        index: CollectionIndex,
        match: MatchExpression,
        filter: Filter,
        sort: SortPattern | None,
    ) -> AccessPath:
        raise CommandError(
            ErrorCode.NoQueryExecutionPlans,
            f"error processing query: ns={collection.namespace}: planner returned error :: caused by :: No query"
            " solutions",
        )

    def check_query(self, collection: Collection | None, hinted: bool, natural: bool) -> None:
        if hinted:
            raise CommandError(ErrorCode.BadValue, "text and hint not allowed in same query")
        if natural:
            raise CommandError(ErrorCode.BadValue, "text expression not allowed with $natural sort order")
        if collection is None:
            raise CommandError(ErrorCode.IndexNotFound, "text index required for $text query (no such collection)")

    def answering(
        self,
        collection: Collection,
        index: CollectionIndex,
        part: MatchExpression,
        match: MatchExpression,
        filter: Filter,
        sort: SortPattern | None,
    ) -> AccessPath | None:
        keys = index.keys
        assert isinstance(part, TextExpression)
        assert isinstance(keys, TextKeyGenerator)
        search = part.search_in(keys.fields)
        before: dict[str, Value] = {}
        for path in keys.before:
            found = False
            for predicate in filter.by_path.get(path.dotted, []):
                intervals = predicate.intervals
                if len(intervals) == 1 and intervals[0].is_point and not predicate.elements:
                    before[path.dotted] = intervals[0].low
                    found = True
                    break
            if not found:
                raise CommandError(
                    ErrorCode.NoQueryExecutionPlans,
                    f"error processing query: ns={collection.namespace}: planner returned error :: caused by :: failed"
                    " to use text index to satisfy $text query (if text index is compound, are equality predicates"
                    " given for all prefix fields?)",
                )
        rest = [conjunct for conjunct in filter.conjuncts if conjunct is not part]
        return TextPath(collection, index, search, before, rest)

    def lacking(self, collection: Collection) -> CommandError:
        return CommandError(ErrorCode.IndexNotFound, "text index required for $text query")
