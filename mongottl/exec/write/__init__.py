"""Inserts, updates and deletes.

writes       writing records and their index entries, each batch in a unit of work
modifying    running updates and deletes over the records that match
validation   checking documents against their collection's validator
capped       deleting the oldest documents of capped collections beyond their limits
index_build  building indexes over collections in use
copying      copying collections
expiry       deleting expired documents, and refilling the timing wheel
"""
