"""The metadata that a query requests by `{$meta: …}` and that it provides, and the check that it provides all of it.

Parsers record both in `ParseContext.metadata`: `$meta` what it requests, `$text` and stages such as `$geoNear` what
they provide. `pipeline.stage` checks the stages of a pipeline in their order, `find` its projection and sort against
its filter. The execution of the query annotates documents (`document.annotated`) only with the requested metadata.

A request is refused (40218) only for metadata of a certain kind of query. Other metadata exists for some documents and
plans (`sortKey` after a sort, `indexKey` with an index); if it does not, the field is left out, as in mongod.
"""

from typing import Final

from mongottl.errors import CommandError

TEXT_SCORE: Final = "textScore"
SORT_KEY: Final = "sortKey"
RECORD_ID: Final = "recordId"
INDEX_KEY: Final = "indexKey"
RANDOM_VALUE: Final = "randVal"
GEO_NEAR_DISTANCE: Final = "geoNearDistance"
GEO_NEAR_POINT: Final = "geoNearPoint"

# Keywords that only some kinds of queries provide, with mongod's descriptions of them.
_BROUGHT_ALONG: Final[dict[str, str]] = {
    TEXT_SCORE: "text score",
    GEO_NEAR_DISTANCE: "$geoNear distance",
    GEO_NEAR_POINT: "$geoNear point",
    "score": "score",
    "scoreDetails": "scoreDetails",
}

KEYWORDS: Final = frozenset(
    {
        *_BROUGHT_ALONG,
        SORT_KEY,
        RECORD_ID,
        INDEX_KEY,
        RANDOM_VALUE,
        "searchScore",
        "searchHighlights",
        "searchScoreDetails",
        "searchSequenceToken",
        "timeseriesBucketMinTime",
        "timeseriesBucketMaxTime",
        "vectorSearchScore",
        "stream",
    }
)

# Keywords that can be sorted by, and whether smaller values come first.
SORTABLE: Final[dict[str, bool]] = {
    TEXT_SCORE: False,
    RANDOM_VALUE: False,
    "score": False,
    "searchScore": False,
    "vectorSearchScore": False,
    GEO_NEAR_DISTANCE: False,
}


class MetadataUse:
    """The metadata keywords of a parsed query or stage.

    requested: keywords that are read. provided: keywords that the query provides.

    available: keywords that the input documents of a pipeline already have.
    """

    def __init__(self) -> None:
        self.requested: set[str] = set()
        self.provided: set[str] = set()
        self.available: set[str] = set()

    def include(self, other: "MetadataUse") -> None:
        self.requested |= other.requested
        self.provided |= other.provided


def check_available(requested: set[str], available: set[str]) -> None:
    """40218 for a requested keyword that is not available."""
    for keyword, words in _BROUGHT_ALONG.items():
        if keyword in requested and keyword not in available:
            raise CommandError(40218, f"query requires {words} metadata, but it is not available")
