"""What is known of Cosmos DB for MongoDB beyond Microsoft's articles, as tables of commands and replies.

The numbers are those of the project's list of corrections, which is kept with its design notes and names the sources:
samples and products of Microsoft, and what users of the service report.
"""
