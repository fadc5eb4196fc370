"""Inserts, updates and deletes.

writes       writing records and their index entries, each batch in a unit of work
modifying    running updates and deletes over the records that match
validation   checking documents against their collection's validator
capped       deleting the oldest documents of capped collections beyond their limits
index_build  building indexes over collections in use
copying      copying collections; loading: collections from files
commit       committing transactions; transaction_records: config.transactions; waiting: for what they have written
sharding     what the shard key of a collection asks of its documents
expiry       deleting expired documents, and refilling the timing wheel; schedule: when documents expire
"""
