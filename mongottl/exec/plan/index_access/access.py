"""How the indexes of one kind serve queries: the contract that the modules of this package fulfil."""

from abc import ABC, abstractmethod

from mongottl.catalog.collection import Collection, IndexEntry
from mongottl.errors import CommandError, ErrorCode
from mongottl.exec.plan.access_path import AccessPath, IndexPath
from mongottl.exec.plan.predicates import Filter
from mongottl.query.match import MatchExpression
from mongottl.query.sort import SortPattern


class IndexAccess(ABC):
    """What the planner asks about an index of one kind.

    Whether the index may be used at all (hidden, unfinished, partial) is settled before. match: the whole filter;
    filter: its parts and what they say about paths.
    """

    @abstractmethod
    def may_serve(self, index: IndexEntry, filter: Filter, sort: SortPattern | None) -> bool:
        """False if there will be no candidates; cheap, since most indexes do not suit most queries."""
        raise NotImplementedError

    @abstractmethod
    def candidates(
        self,
        collection: Collection,
        index: IndexEntry,
        match: MatchExpression,
        filter: Filter,
        sort: SortPattern | None,
    ) -> list[IndexPath]:
        """The ways through the index that read less than all of it, or give the sort's order; the best are chosen.

        Each gives exactly the documents that match: what the bounds leave open stays as a test on the documents.
        """
        raise NotImplementedError

    @abstractmethod
    def hinted(
        self,
        collection: Collection,
        index: IndexEntry,
        match: MatchExpression,
        filter: Filter,
        sort: SortPattern | None,
    ) -> AccessPath:
        """The way through the index that a hint demands, over the whole of it if need be."""
        raise NotImplementedError

    def check_query(  # noqa: B027 (most kinds have nothing to say)
        self, collection: Collection | None, hinted: bool, natural: bool
    ) -> None:
        """Refuses a query with a part that an index of this kind must answer, whatever indexes there are.

        hinted: whether the query names an index. natural: whether it asks for the natural order.
        """

    def answering(
        self,
        collection: Collection,
        index: IndexEntry,
        part: MatchExpression,
        match: MatchExpression,
        filter: Filter,
        sort: SortPattern | None,
    ) -> AccessPath | None:
        """The way through the index that answers a part of the filter which only indexes of some kinds can answer
        (`MatchExpression.index_kinds`); None if this one cannot."""
        return None

    def lacking(self, collection: Collection) -> CommandError:
        """The error where a part of a filter needs an index of this kind, and there is none that answers it."""
        return CommandError(ErrorCode.NoQueryExecutionPlans, "error processing query: no index answers it")
