"""Raw BSON: reading, building, validating, comparing and ordering documents in place, as bytes.

A document is `bytes` from the socket to the database and back. The modules here find fields in those bytes, and make
Python values of them only where something is computed. They know no query language, no storage and no time.

    types      type codes, and the classes of the values that Python has no type of its own for
    walk       finding, stepping over and decoding elements
    build      encoding values and splicing raw elements into new documents
    set_path   a value put at a path
    validate   checking bytes from outside; everything else here trusts that this was done
    compare    MongoDB's order of values, on decoded values and in place
    collation  how strings compare otherwise than by their bytes
    keystring  values as bytes whose byte order is MongoDB's order of values
    path       dotted field paths
    bson_field what is wrong with a field of a command, stage or option
    annotated  documents that carry metadata besides their bytes
"""
