"""Commands of Cosmos DB and about its account; other dialects refuse them.

provisioning        customAction, shardCollection: databases, collections and their throughput
configuration       configureCosmos: the account itself, for tests
request_statistics  getLastRequestStatistics, getRequestUnits: what requests have cost
"""
