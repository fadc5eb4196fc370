"""What a fail point that is set for a command does before it, and to its reply."""

from mongottl.commands import CommandSpec
from mongottl.document.build import encode_fields
from mongottl.document.walk import fields, get_value
from mongottl.errors import RETRYABLE_WRITE_LABEL
from mongottl.exec.operation.context import OperationContext
from mongottl.exec.running.signal import Signal
from mongottl.exec.running.steps import Wait
from mongottl.exec.state.failpoints import FailCommand
from mongottl.server.error_replies import is_error, labels_of


def begin_failing(fail_point: FailCommand, op: OperationContext) -> None:
    """Does what a fail point that is set for the command does before it: its session does not record it, so that a
    retry runs again."""
    if fail_point.labels is not None:
        op.adds_labels = False  # only the labels that the fail point names are set
    if fail_point.block_s > 0:
        op.waits_for = Signal()
        op.service.stacks.wait(Wait(fail_point.block_s, op.waits_for))  # which counts as its work
        op.waits_for = None
        op.check_interrupt()
    fail_point.fail()


def with_additions(fail_point: FailCommand, spec: CommandSpec, op: OperationContext, reply: bytes) -> bytes:
    """The reply to a command for which a fail point is set."""
    additions = fail_point.reply_additions()
    if not additions or is_error(reply):
        return reply
    failed = additions.get("writeConcernError")
    if isinstance(failed, bytes):
        code = get_value(failed, "code")
        if isinstance(code, int) and RETRYABLE_WRITE_LABEL in labels_of(spec.name, op, code):
            additions["errorLabels"] = [RETRYABLE_WRITE_LABEL]
    return encode_fields([*fields(reply), *additions.items()])
