"""Checking documents against their collection's validator, as they are written.

Source: MongoDB's "Schema Validation" pages.
"""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.catalog.validator import Validator
from mongottl.document.build import encode
from mongottl.document.interrupt import UndividedEvaluation, begin_evaluation, end_evaluation
from mongottl.document.render import render_document
from mongottl.document.types import MISSING, Value
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode, WriteError, is_interruption
from mongottl.exec.operation.context import OperationContext
from mongottl.query.match.describe_failure import describe_failure

# Larger `errInfo` is truncated, so that it fits into a reply.
MAX_INFO_BYTES: Final = 9 * 1024 * 1024


def check_document(op: OperationContext, collection: Collection, document: bytes, before: bytes | None = None) -> None:
    """Checks a document before it is written: DocumentValidationFailure (121) with `errInfo`, or a log line.

    before: the old document of an update; with `validationLevel: "moderate"` a document that failed before passes.
    """
    validator = collection.validator
    if validator is None or op.write_options.bypass_validation:
        return
    with UndividedEvaluation():  # all who write use the same validator
        if validator.accepts(document, op.now_ms):
            return
        if before is not None and validator.moderate and not validator.accepts(before, op.now_ms):
            return
    if validator.logs:
        info = _info(validator, document, op.now_ms)
        op.service.hooks.log_invalid_document(
            op.client, collection.namespace, render_document(document), render_document(info)
        )
    if validator.refuses:
        raise InvalidDocument(validator, document, op.now_ms)


class InvalidDocument(WriteError):
    """A document that its validator refuses. The details say why, of each part of a validator of any length."""

    def __init__(self, validator: Validator, document: bytes, now_ms: int) -> None:
        super().__init__(ErrorCode.DocumentValidationFailure, "Document failed validation")
        self._validator = validator
        self._document = document
        self._now_ms = now_ms

    def complete(self) -> None:
        if self.details:
            return
        begun = begin_evaluation()
        try:
            self.details["errInfo"] = _info(self._validator, self._document, self._now_ms)
        except CommandError as error:
            if not is_interruption(error):  # which ends the operation where it next asks
                raise
        finally:
            if begun:
                end_evaluation()


def _info(validator: Validator, document: bytes, now_ms: int) -> bytes:
    """`errInfo`; without the details if they are too large for a reply."""
    identifier = get_value(document, "_id")
    details = describe_failure(validator.filter, document, now_ms, validator.collation)
    failing: Value = None if identifier is MISSING else identifier
    info = encode({"failingDocumentId": failing, "details": details})
    if len(info) <= MAX_INFO_BYTES:
        return info
    short: Value = {"operatorName": details.get("operatorName"), "truncated": True}
    return encode({"failingDocumentId": failing, "details": short})


def all_valid(op: OperationContext, collection: Collection, documents: list[bytes]) -> bool:
    """Whether all documents of a batch pass. If not, the caller calls `check_document` for each."""
    validator = collection.validator
    if validator is None or op.write_options.bypass_validation:
        return True
    with UndividedEvaluation():
        return all(validator.accepts(document, op.now_ms) for document in documents)
