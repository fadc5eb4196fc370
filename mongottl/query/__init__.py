"""MongoDB's query language: parsed once into trees of typed nodes, evaluated on raw documents.

    match/      filters           parse_match(filter) -> MatchExpression, .matches(document)
    expr/       expressions       parse_expression(value) -> Expression, .evaluate(context)
    update/     updates           parse_update(update) -> UpdateDriver, .apply(document)
    pipeline/   aggregation       parse_pipeline(stages) -> StageSpec list; DocumentSource pulls batches
    projection  inclusion, exclusion, computed fields
    sort        sort patterns and sort keys
    metadata    what `{$meta: …}` may ask for, and whether a query can give it
    context     what parsing depends on besides the text: the operation's time, `let` variables
    timestamps  the timestamps that the server makes
    collation   collation documents, checked and completed; icu: the library behind them
    registry    the tables of operators, supported and known-but-unsupported

Nothing here knows storage, catalogues, sockets or the time of day.
"""
