"""Raw BSON: reading, building, validating, comparing and ordering documents in place, as bytes.

A document is `bytes` from the socket to the database and back. The modules here find fields in those bytes, and make
Python values of them only where something is computed. They know nothing of the query language, storage or time.

    types      type codes, and the classes of the values for which Python has no type of its own
    walk       finding, skipping and decoding elements
    build      encoding values and splicing raw elements into new documents
    set_path   setting values at paths
    validate   validation of BSON from clients; everything else here relies on it
    compare    MongoDB's comparison order, of decoded values and of raw BSON
    collation  sort keys of strings under a collation
    keystring  values as bytes whose byte order is MongoDB's order of values
    path       dotted field paths
    interrupt  where long computations end, or let other operations run; sorting: of long lists
    freeing    long lists, freed in slices between which others run
    bson_field errors about fields of commands, stages and options
    annotated  documents that carry metadata besides their bytes
"""
