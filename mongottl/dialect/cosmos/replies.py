"""Fields and texts of Cosmos DB's replies.

Source: Microsoft's feature-support articles for server versions 3.6 to 7.0.
"""

from typing import Final

# Users have seen that of buildInfo, hello and isMaster in accounts of 3.2; that later versions send them is assumed but
# for those of `BRIEF_VERSIONS`. Microsoft's pages show the others. getLastRequestStatistics has none: Microsoft's page
# of 2020 shows one, but its replies of 2023 are without (github.com/cjoakim/azure-cosmos-db, apis/mongo/java).
REPLY_TYPES: Final = {
    "buildInfo": "BuildInfoResponse",
    "createIndexes": "CreateIndexesResponse",
    "dropIndexes": "DropIndexesResponse",
    "hello": "IsMasterResponse",
    "isMaster": "IsMasterResponse",
    "shardCollection": "ShardCollectionResponse",
}

# Versions whose buildInfo is as Microsoft's samples for Python and JavaScript print it. Nothing is known of that of the
# others: it is as in an account of 3.2.
BRIEF_VERSIONS: Final = ("3.6", "4.0")
# Commands whose replies have no type in 3.6: opencb/opencga#952 (2019) has the whole reply of createIndexes.
_UNTYPED_IN_3_6: Final = ("createIndexes",)
# From replies that users have recorded, and from a product of Microsoft that compares the second.
CODE_NAMES: Final = {16500: "RequestRateTooLarge", 50: "ExceededTimeLimit"}
# From reports of users who lost cursors.
UNKNOWN_CURSOR: Final = "Unable to find cursor with id: {id}"

# A new account refuses retryable writes; one with that capability accepts them.
RETRYABLE_WRITES_REFUSAL: Final = (
    "Retryable writes are not supported. Please disable retryable writes by specifying"
    ' "retrywrites=false" in the connection string or an equivalent driver specific config.'
)
# The text is from users' reports; its code, 85, is that of MongoDB.
INDEX_CONFLICT: Final = "Index with name {name} already exists with different options."
URI_OPTIONS: Final = "retryWrites=false"

DATE_TTL_REFUSAL: Final = "The 'expireAfterSeconds' option is supported on '_ts' field only."


def reply_types(version: str) -> dict[str, str]:
    """Command to the `_t` that its replies begin with. version: that the account announces."""
    untyped: list[str] = ["buildInfo"] if version in BRIEF_VERSIONS else []
    if version == "3.6":
        untyped += _UNTYPED_IN_3_6
    return {command: name for command, name in REPLY_TYPES.items() if command not in untyped}
