"""The kinds of changes of collections and indexes, as the catalog tells its listener and the oplog notes them."""

from typing import Final

CREATE: Final = 3
DROP: Final = 4
# Detail: the new namespace.
RENAME: Final = 5
DROP_DATABASE: Final = 6
# Detail of these three: the `operationDescription` of the event.
CREATE_INDEXES: Final = 7
DROP_INDEXES: Final = 8
MODIFY: Final = 9
