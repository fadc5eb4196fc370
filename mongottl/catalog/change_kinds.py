"""The kinds of changes: of documents, as writes record them; of collections and indexes, as the catalog reports them to
its listener. The oplog stores the numbers."""

from typing import Final

INSERT: Final = 0
UPDATE: Final = 1
DELETE: Final = 2
# From here on of collections and indexes.
CREATE: Final = 3
DROP: Final = 4
# Detail: {to: {db, coll}, dropTarget: UUID of the collection that had the new name}; the latter only if there was one.
RENAME: Final = 5
DROP_DATABASE: Final = 6
# Detail: `operationDescription` of the event, as for CREATE.
CREATE_INDEXES: Final = 7
DROP_INDEXES: Final = 8
# Detail: {operationDescription, stateBeforeChange} of the event.
MODIFY: Final = 9
# Nothing was changed. Detail: {msg: why it was logged}.
NOOP: Final = 10
