"""Pipeline-style updates: `[{$set: …}, {$unset: …}]`, a pipeline whose stages output one document for one."""

from mongottl.document.types import MISSING, Value
from mongottl.document.walk import fields, first_field_name, get_value
from mongottl.errors import CommandError, ErrorCode
from mongottl.query.context import ParseContext
from mongottl.query.pipeline import STAGES, DocumentSource, RunContext, open_pipeline, parse_pipeline


class OneDocument(DocumentSource):
    """A source that returns the document that was last assigned to it.

    None of the allowed stages has a state between documents, so the pipeline is opened only once.
    """

    def __init__(self) -> None:
        self.document: bytes = b""

    def next_batch(self) -> list[bytes] | None:
        return [self.document]


def _fills_with_values(argument: Value) -> bool:
    """Whether no field of a `$fill` has a `method`, which needs other documents."""
    output = get_value(argument, "output") if isinstance(argument, bytes) else MISSING
    if not isinstance(output, bytes):
        return False
    return not any(isinstance(how, bytes) and get_value(how, "method") is not MISSING for _, how in fields(output))


class UpdatePipeline:
    """The opened stages, which can be applied to any number of documents."""

    def __init__(self, stages: list[Value], ctx: ParseContext) -> None:
        for stage in stages:
            if isinstance(stage, bytes):
                _check_allowed(stage)
        self._input = OneDocument()
        # An expression that cannot be evaluated fails only if a document is updated.
        ctx.folding_fails = False
        specs = parse_pipeline(stages, ctx)
        ctx.folding_fails = True
        self._output: DocumentSource = open_pipeline(specs, self._input, RunContext(now_ms=ctx.now_ms))

    def transform(self, doc: bytes) -> bytes:
        """The output of the stages for a document."""
        self._input.document = doc
        batch = self._output.next_batch()
        if batch is None or len(batch) != 1:
            raise AssertionError("the stages of an update turn one document into one")
        return batch[0]


def _check_allowed(stage: bytes) -> None:
    """InvalidOptions (72) for a stage that is not allowed in updates."""
    name = first_field_name(stage)
    if name == "$fill" and _fills_with_values(get_value(stage, name)):
        return  # it consists of an $addFields alone
    declaration = STAGES.known(name)
    if declaration is not None and not declaration.traits.in_update:
        raise CommandError(ErrorCode.InvalidOptions, f"{name} is not allowed to be used within an update")
