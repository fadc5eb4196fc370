"""The interface by which the planner asks how indexes of one type serve queries."""

from abc import ABC, abstractmethod

from mongottl.catalog.collection import Collection, CollectionIndex
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.plan.access_path import AccessPath, IndexPath
from mongottl.exec.plan.predicates import Filter
from mongottl.query.match import MatchExpression
from mongottl.query.sort import SortPattern


class IndexAccess(ABC):
    """How indexes of one type serve queries.

    The planner checks before whether the index may be used at all (hidden, unfinished, partial). match: the whole
    filter; filter: its conjuncts and their predicates by path.
    """

    @abstractmethod
    def may_serve(self, index: CollectionIndex, filter: Filter, sort: SortPattern | None) -> bool:
        """False if there are certainly no candidates; a cheap test, since most indexes do not suit most queries."""
        raise NotImplementedError

    @abstractmethod
    def candidates(
        self,
        collection: Collection,
        index: CollectionIndex,
        match: MatchExpression,
        filter: Filter,
        sort: SortPattern | None,
    ) -> list[IndexPath]:
        """The access paths that are bounded or provide the sort; the plan ranker chooses among them.

        Each returns exactly the documents that match: what the bounds do not decide is tested on the documents.
        """
        raise NotImplementedError

    @abstractmethod
    def hinted(
        self,
        collection: Collection,
        index: CollectionIndex,
        match: MatchExpression,
        filter: Filter,
        sort: SortPattern | None,
    ) -> AccessPath:
        """The access path for a hint of this index: a full scan if the filter does not bound it."""
        raise NotImplementedError

    def check_query(  # noqa: B027 (most types check nothing)
        self, collection: Collection | None, hinted: bool, natural: bool
    ) -> None:
        """Errors of queries with a part that needs an index of this type, before indexes are looked at.

        hinted: whether the query has an index hint. natural: whether it has a sort or hint by `$natural`.
        """

    def answering(
        self,
        collection: Collection,
        index: CollectionIndex,
        part: MatchExpression,
        match: MatchExpression,
        filter: Filter,
        sort: SortPattern | None,
    ) -> AccessPath | None:
        """The access path for `part`, a conjunct that needs an index of this type (`MatchExpression.index_kinds`).

        None if this index cannot serve it.
        """
        return None

    def lacking(self, collection: Collection) -> CommandError:
        """The error if a part of a filter needs an index of this type and no index can serve it."""
        return CommandError(ErrorCode.NoQueryExecutionPlans, "error processing query: no index answers it")
