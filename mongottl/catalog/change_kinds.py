"""The kinds of changes of collections and indexes, as the catalog tells its listener and the oplog notes them."""

from typing import Final

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
