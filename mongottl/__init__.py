"""mongottl: a MongoDB server whose documents expire as in Azure Cosmos DB."""
