"""Creating, listing, changing and dropping databases, collections, views and indexes."""
