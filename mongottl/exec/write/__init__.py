"""Inserts, updates and deletes.

writes       records with their index entries, each batch in a unit of work
modifying    which records an update or a delete is about
validation   checking documents against their collection's validator
capped       keeping capped collections within their bounds
index_build  indexes over collections in use
copying      copies of collections
expiry       purging what is due, and filling the timing wheel anew
"""
