"""Executing a pipeline for explain, with the statistics of each stage."""

from typing import Final

from mongottl.clock import Clock
from mongottl.document.build import encode_fields
from mongottl.document.types import Int64, Value
from mongottl.document.walk import fields
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.results.aggregation import AggregationPlan, OperationRun
from mongottl.exec.results.reading import PlanDocuments, Pull
from mongottl.exec.stages.stage import PlanStage
from mongottl.query.pipeline import DocumentSource, StageSpec

_MS_PER_S: Final = 1000


class MeasuredSource(DocumentSource):
    """Measures a stage. returned: number of its documents. elapsed_s: its time, including the stages below."""

    def __init__(self, source: DocumentSource, clock: Clock) -> None:
        self.source = source
        self._clock = clock
        self.returned = 0
        self.elapsed_s = 0.0

    def next_batch(self) -> list[bytes] | None:
        start_s = self._clock.monotonic_s()
        batch = self.source.next_batch()
        self.elapsed_s += self._clock.monotonic_s() - start_s
        if batch is not None:
            self.returned += len(batch)
        return batch

    def is_outdated(self) -> bool:
        return self.source.is_outdated()

    def close(self) -> None:
        self.source.close()


class MeasuredPipeline:
    """The stages of an aggregation after its plan. Stages that write are not executed."""

    def __init__(self, plan: AggregationPlan) -> None:
        self._plan = plan
        self._specs: list[StageSpec] = [spec for spec in plan.rest if not spec.traits.writes]
        self._measured: list[MeasuredSource] = []

    def drain(self, op: OperationContext, stage: PlanStage) -> None:
        """Executes the pipeline to its end, reading from the plan's `stage`."""
        plan = self._plan
        pull = Pull(op, False, False)
        run = OperationRun(pull, plan.plan.space is not None, self._specs, plan.metadata, plan.collation)
        source: DocumentSource = PlanDocuments(stage, plan.collection, pull, False)
        for spec in self._specs:
            measured = MeasuredSource(spec.open(source, run), op.service.clock)
            self._measured.append(measured)
            source = measured
        try:
            while source.next_batch() is not None:
                op.check_interrupt()
                op.give_way()
        finally:
            source.close()

    def describe(self) -> list[Value]:
        """The stages in full form, each followed by its statistics if it was executed."""
        described: list[Value] = []
        for i in range(len(self._plan.rest)):
            form = self._plan.rest[i].describe()
            if i >= len(self._measured) or not isinstance(form, bytes):
                described.append(form)
                continue
            measured = self._measured[i]
            described_fields = fields(form)
            described_fields.extend(measured.source.statistics().items())
            described_fields.append(("nReturned", Int64(measured.returned)))
            described_fields.append(("executionTimeMillisEstimate", Int64(int(measured.elapsed_s * _MS_PER_S))))
            described.append(encode_fields(described_fields))
        return described
