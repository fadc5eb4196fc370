"""createIndexes, listIndexes, dropIndexes."""
