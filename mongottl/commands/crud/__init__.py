"""Reading and writing documents: find, count, distinct, aggregate, insert, update, delete, findAndModify, bulkWrite,
getMore, killCursors, explain and query settings."""
