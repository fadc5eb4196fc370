"""Which metadata a query asks for by `{$meta: …}`, which it can give, and the refusal where the two differ.

Parsers note both in `ParseContext.metadata`: `$meta` what it reads, `$text` and stages such as `$geoNear` what they
bring along. `pipeline.stage` checks the stages of a pipeline in their order, `find` its projection and sort against
its filter. Whoever executes the query annotates documents (`document.annotated`) with what is asked for, and with
nothing else.

Only what a kind of query brings along is refused elsewhere (40218). The rest is there for some documents and plans
(`sortKey` behind a sort, `indexKey` with an index), and where it is not there the field is left out, as in mongod.
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

# Keywords that only some queries know an answer to, with mongod's words for them.
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

# Keywords that a sort may be by, and whether the smaller comes first.
SORTABLE: Final[dict[str, bool]] = {
    TEXT_SCORE: False,
    RANDOM_VALUE: False,
    "score": False,
    "searchScore": False,
    "vectorSearchScore": False,
    GEO_NEAR_DISTANCE: True,
}


class MetadataUse:
    """requested: keywords that something reads. provided: those that something brings along.

    available: those that the documents have already which a stage of a pipeline reads.
    """

    def __init__(self) -> None:
        self.requested: set[str] = set()
        self.provided: set[str] = set()
        self.available: set[str] = set()

    def include(self, other: "MetadataUse") -> None:
        self.requested |= other.requested
        self.provided |= other.provided


def check_available(requested: set[str], available: set[str]) -> None:
    """40218 for what is asked for and cannot be there."""
    for keyword, words in _BROUGHT_ALONG.items():
        if keyword in requested and keyword not in available:
            raise CommandError(40218, f"query requires {words} metadata, but it is not available")
