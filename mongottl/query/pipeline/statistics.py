"""`$collStats`: statistics of a collection, in one document."""

from typing import Final

from mongottl.document.bson_field import unknown_field, wrong_type
from mongottl.document.build import encode, encode_fields
from mongottl.document.types import Value
from mongottl.document.walk import fields, fields_by_name, is_empty
from mongottl.errors import CommandError
from mongottl.query.context import ParseContext
from mongottl.query.expr.parser import type_of
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.source import DocumentSource, ListSource
from mongottl.query.pipeline.stage import StageSpec, StageTraits, stage
from mongottl.versions import OLDEST

NOT_EMPTY: Final = 31170
_SECTIONS: Final = ("latencyStats", "storageStats", "count", "queryExecStats")


class CollStatsSpec(StageSpec):
    """`$collStats`.

    sections: the options of each requested section.
    """

    def __init__(self, namespace: str, sections: dict[str, bytes]) -> None:
        self.name = "$collStats"
        self.first_only = True
        self.namespace: Final = namespace
        self.sections: Final = sections

    def open(self, source: DocumentSource, run: RunContext) -> DocumentSource:
        source.close()
        output: list[tuple[str, Value]] = run.describe_collection(self.namespace)
        for name in _SECTIONS:
            options = self.sections.get(name)
            if options is not None:
                output.append((name, self._section(name, fields_by_name(options), run)))
        return ListSource([encode_fields(output)])

    def _section(self, name: str, options: dict[str, Value], run: RunContext) -> Value:
        if name == "latencyStats":
            return run.latency_statistics(self.namespace, options.get("histograms") is True)
        if name == "storageStats":
            return run.storage_statistics(self.namespace, options.get("scale"))
        if name == "count":
            return run.count_collection(self.namespace)
        return run.execution_statistics(self.namespace)

    def describe(self) -> Value:
        described: list[tuple[str, Value]] = []
        for name in _SECTIONS:
            if name in self.sections:
                described.append((name, self.sections[name]))
        return encode({"$collStats": encode_fields(described)})


@stage(
    "$collStats",
    StageTraits(in_facet=False, stable_argument="count", actions=("collStats",), in_transaction=False),
    since=OLDEST,
)
def parse_coll_stats(argument: Value, ctx: ParseContext) -> list[StageSpec]:
    """`{latencyStats: {histograms: bool}, storageStats: {scale: n}, count: {}, queryExecStats: {}}`, or some of them.

    TypeMismatch (14) for a section that is not an object, 40415 for an unknown section or option, 31170 for options of
    a section without options. A section that is null is left out.
    """
    if not isinstance(argument, bytes):
        raise CommandError(5447000, f"$collStats must take a nested object but found: {type_of(argument)}")
    sections: dict[str, bytes] = {}
    for name, value in fields(argument):
        if name not in _SECTIONS:
            raise unknown_field(f"$collStats.{name}")
        if value is None:
            continue
        if not isinstance(value, bytes):
            raise wrong_type(f"$collStats.{name}", value, "object")
        _check_options(name, value)
        sections[name] = value
    return [CollStatsSpec(ctx.namespace, sections)]


def _check_options(section: str, options: bytes) -> None:
    if section == "latencyStats":
        for option, value in fields(options):
            if option != "histograms":
                raise unknown_field(f"$collStats.{section}.{option}")
            if not isinstance(value, bool):
                raise wrong_type(f"$collStats.{section}.{option}", value, "bool")
    elif section != "storageStats" and not is_empty(options):
        raise CommandError(NOT_EMPTY, f"the {section} argument to $collStats must be an empty object")
