"""`$collStats`: what a collection is, in one document, in place of the documents in it."""

from typing import Final

from mongottl.document.build import encode, encode_fields
from mongottl.document.types import Value
from mongottl.document.walk import fields
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.expr.parser import type_of
from mongottl.query.pipeline.source import DocumentSource, ListSource, RunContext
from mongottl.query.pipeline.stage import StageSpec, stage


class CollStatsSpec(StageSpec):
    """storage, count: whether these sections are asked for. scale: the unit of sizes as given, None for bytes."""

    def __init__(self, namespace: str, storage: bool, scale: Value, count: bool) -> None:
        self.name = "$collStats"
        self.first_only = True
        self.in_facet = False
        self.namespace: Final = namespace
        self.storage: Final = storage
        self.scale: Final = scale
        self.count: Final = count

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        source.close()
        sections: list[tuple[str, Value]] = run.describe_collection(self.namespace)
        if self.storage:
            sections.append(("storageStats", run.storage_statistics(self.namespace, self.scale)))
        if self.count:
            sections.append(("count", run.count_collection(self.namespace)))
        return ListSource([encode_fields(sections)])

    def describe(self) -> Value:
        described: list[tuple[str, Value]] = []
        if self.storage:
            described.append(("storageStats", encode({} if self.scale is None else {"scale": self.scale})))
        if self.count:
            described.append(("count", encode({})))
        return encode({"$collStats": encode_fields(described)})


@stage("$collStats")
def parse_coll_stats(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{storageStats: {scale: n}, count: {}}`, each or both. TypeMismatch (14) for what is no object, 40415 for more.

    CommandNotSupported (115) for `latencyStats` and `queryExecStats`, which nothing here measures.
    """
    if not isinstance(argument, bytes):
        raise CommandError(5447000, f"$collStats must take a nested object but found: {type_of(argument)}")
    storage = False
    count = False
    scale: Value = None
    for name, value in fields(argument):
        if name in ("latencyStats", "queryExecStats"):
            raise CommandError(ErrorCode.CommandNotSupported, f"$collStats.{name} is not supported: it is not measured")
        if name not in ("storageStats", "count"):
            raise CommandError(40415, f"BSON field '$collStats.{name}' is an unknown field.")
        if not isinstance(value, bytes):
            raise CommandError(
                ErrorCode.TypeMismatch,
                f"BSON field '$collStats.{name}' is the wrong type '{type_of(value)}', expected type 'object'",
            )
        if name == "count":
            count = True
        else:
            storage = True
            for option, unit in fields(value):
                if option == "scale":
                    scale = unit
                elif option not in ("verbose", "waitForLock", "numericOnly"):
                    raise CommandError(40415, f"BSON field '$collStats.storageStats.{option}' is an unknown field.")
    return [CollStatsSpec(ctx.namespace, storage, scale, count)]
