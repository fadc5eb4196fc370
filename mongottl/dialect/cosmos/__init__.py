"""The dialect `cosmos`: what Azure Cosmos DB for MongoDB (request units, 3.6 to 7.0) refuses, and how it answers.

    change_feed   the pipeline and the resume tokens of change streams
    features      commands, stages and operators that each of its versions has
    defects       what only some accounts do
    limits        bounds on documents, ids, names and time
    charges       what operations cost in request units
    throttling    the texts of throttling, timeouts and 503
    wording       the texts around errors: `Error=2, Details='…'`
    replies       fields of replies
    provisioning  databases, collections, shard keys and throughput
    transactions  which collections they may use, and for how long

Code that depends on it asks `Dialect.account` (`mongottl.account`), which is None in the dialect `mongodb`.

Source: Microsoft's documentation of the service, and where that is silent what users of it have reported. A fact that
no source gives is marked as assumed where it is decided.
"""
