"""Checking documents against their collection's validator, as they are written.

Source: MongoDB's "Schema Validation" pages.
"""

from typing import Final

from mongottl.catalog.collection import Collection
from mongottl.catalog.validator import Validator
from mongottl.document.build import encode
from mongottl.document.interrupt import UndividedEvaluation, begin_evaluation, end_evaluation
from mongottl.document.types import MISSING, Value
from mongottl.document.walk import get_value
from mongottl.errors import CommandError, ErrorCode, WriteError, is_interruption
from mongottl.exec.operation.context import OperationContext
from mongottl.query.match.describe_failure import describe_failure

# Larger `errInfo` is truncated, so that it fits into a reply.
MAX_INFO_BYTES: Final = 9 * 1024 * 1024


def check_document(
    op: OperationContext, collection: Collection, document: bytes, before: bytes | None = None
) -> "InvalidDocument | None":
    """Checks a document before it is written: DocumentValidationFailure (121) with `errInfo`, or a log line. Others may
    run meanwhile if it takes long (`Validator.takes_long`).

    before: the old document of an update; with `validationLevel: "moderate"` a document that failed before passes.
    Returns what is to be logged when the document has been written (`complete`), if that may take long.
    """
    validator = collection.validator
    if validator is None or op.write_options.bypass_validation:
        return None
    if accepts(op, validator, document):
        return None
    if before is not None and validator.moderate and not accepts(op, validator, before):
        return None
    invalid = InvalidDocument(op, collection.namespace, validator, document)
    if validator.logs and not validator.is_long:
        invalid.complete()
    if validator.refuses:
        raise invalid
    if not validator.logs or not validator.is_long:
        return None
    op.service.stacks.require()  # after the write there is no turning back to a stack, and `complete` takes long
    return invalid


def accepts(op: OperationContext, validator: Validator, document: bytes) -> bool:
    """Whether a document passes. Others may run meanwhile if it takes long."""
    if not validator.takes_long(document):
        with UndividedEvaluation():  # all who write use the same validator
            return validator.accepts(document, op.now_ms)
    begun = begin_evaluation()
    try:
        lent = validator.lend()
        accepted = lent.accepts(document, op.now_ms)
        validator.take_back(lent)
        return accepted
    finally:
        if begun:
            end_evaluation()


class InvalidDocument(WriteError):
    """A document that its validator does not accept. The details say why, of each part of a validator of any length:
    `complete` makes them, and logs them if that is to be done, where others may run."""

    def __init__(self, op: OperationContext, namespace: str, validator: Validator, document: bytes) -> None:
        super().__init__(ErrorCode.DocumentValidationFailure, "Document failed validation")
        self._op = op
        self._namespace = namespace
        self._validator = validator
        self._document = document
        self._is_logged = not validator.logs

    def complete(self) -> None:
        if self.details:
            return
        begun = begin_evaluation()
        try:
            self.details["errInfo"] = _info(self._validator, self._document, self._op.now_ms)
            if not self._is_logged:
                self._log()
        except CommandError as error:
            if not is_interruption(error):  # which ends the operation where it next asks
                raise
        finally:
            if begun:
                end_evaluation()

    def _log(self) -> None:
        self._is_logged = True
        info = self.details["errInfo"]
        assert isinstance(info, bytes)
        self._op.service.hooks.log_invalid_document(self._op.client, self._namespace, self._document, info)


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
    """Whether all documents of a batch pass, if none of them takes long. If not, the caller calls `check_document` for
    each."""
    validator = collection.validator
    if validator is None or op.write_options.bypass_validation:
        return True
    if any(validator.takes_long(document) for document in documents):
        return False
    with UndividedEvaluation():
        return all(validator.accepts(document, op.now_ms) for document in documents)
