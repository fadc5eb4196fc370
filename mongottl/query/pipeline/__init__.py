"""Aggregation pipelines: a list of parsed stages, opened on a stream of documents.

    specs = optimise(parse_pipeline(stages, ctx), ctx)
    source = open_pipeline(specs, ListSource(documents), run)
    while (batch := source.next_batch()) is not None: …

    source        DocumentSource, RunContext       stage         StageSpec, registry, parse_pipeline
    optimise      rewriting                        accumulators  what $group computes
    basic, sort, group, …: the stages, by family

A stage is added where its family lives, by `@stage`, an accumulator by `@accumulator`.
"""

from mongottl.query.pipeline import (  # registers the stages
    basic,
    bucket,
    change_stream,
    densify,
    documents,
    facet,
    fusion,
    graph_lookup,
    group,
    lookup,
    near,
    output,
    project,
    ranked,
    redact,
    reshape,
    sample,
    script,
    server_metadata,
    sort,
    statistics,
    union_with,
    unwind,
    window,
)
from mongottl.query.pipeline.accumulators import ACCUMULATORS
from mongottl.query.pipeline.optimise import optimise
from mongottl.query.pipeline.run_context import RunContext
from mongottl.query.pipeline.source import BATCH_SIZE, DocumentSource, ListSource, drain
from mongottl.query.pipeline.stage import (
    STAGES,
    StageSpec,
    StageTraits,
    check_length,
    check_stage_names,
    is_stable,
    open_pipeline,
    parse_pipeline,
    parse_stage,
    traits_of,
)

__all__ = [
    "ACCUMULATORS",
    "BATCH_SIZE",
    "STAGES",
    "DocumentSource",
    "ListSource",
    "RunContext",
    "StageSpec",
    "StageTraits",
    "basic",
    "bucket",
    "change_stream",
    "check_length",
    "check_stage_names",
    "densify",
    "documents",
    "drain",
    "facet",
    "fusion",
    "graph_lookup",
    "group",
    "is_stable",
    "lookup",
    "near",
    "open_pipeline",
    "optimise",
    "output",
    "parse_pipeline",
    "parse_stage",
    "project",
    "ranked",
    "redact",
    "reshape",
    "sample",
    "script",
    "server_metadata",
    "sort",
    "statistics",
    "traits_of",
    "union_with",
    "unwind",
    "window",
]
