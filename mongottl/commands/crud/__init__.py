"""Reading and writing documents: find, count, distinct, aggregate, insert, update, delete, findAndModify, bulkWrite,
getMore and killCursors, and what explains and sets queries."""
