"""Reading the files that MongoDB's tools write: `mongodump` folders, and JSON documents as `mongoexport` writes them.

    folder       which files belong to which collection
    metadata     a collection's options and indexes, from NAME.metadata.json
    bson_file    documents of a .bson file
    json_file    documents of a .json, .jsonl or .ndjson file, in Extended JSON (`extended_json`)
    batches      documents in batches, with the place of each in its file

Nothing here knows a server or its catalog. Files are read in pieces, so they may be larger than memory.
"""
