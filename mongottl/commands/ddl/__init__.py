"""Databases, collections, views and indexes: made, listed, changed and dropped."""
