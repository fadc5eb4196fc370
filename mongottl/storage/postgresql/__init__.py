"""Keeping data in a PostgreSQL server: the engine, its client, and the private server of `local-postgresql:DIR`.

    engine            the database as a whole; registered as "postgresql"
      ├─ catalog_table   catalog entries
      ├─ store_table     the stores by their idents, and their numbers
      │    ├─ records       record stores, in the table `records`
      │    ├─ sorted_data   sorted data, in the tables `entries` and `unique_entries`
      │    └─ citus_spread  both, spread over several places
      ├─ units        units of work, which the one connection that writes commits together
      │    └─ turns   who may begin one, or hold others off
      ├─ isolation    transactions of several statements, and snapshots of reads outside them
      │    ├─ transactions   each over a connection of its own, which commits it or rolls it back
      │    └─ snapshots      stores bound to one snapshot
      ├─ access       how these reach the database
      ├─ nodes        the servers that have the database open
      │
      ├─ pool             at most 16 connections in turn, those of transactions; reconnects, repeats within a time
      │    └─ connection  makes one without blocking, gives it its settings, cancels and drains what was abandoned
      │         ├─ address    the hosts of a libpq URI, looked up one by one
      │         └─ pipeline   one exchange: all calls of a unit are sent, then all answers read
      │              ├─ statements   what is sent: prepared by name, parameters in binary; and the rows that come back
      │              └─ failures     what may go wrong, by SQLSTATE, and what the engine has to do about it
      ├─ schema           the tables, their version, and what the server and the user must be able to do
      └─ local_cluster    starts and stops a private server
           └─ binaries    finds PostgreSQL's programs

A unit of work is one list of calls, which the server commits at its end or not at all:

    [read, changed] = connection.run([FETCH.with_(…), UPDATE.with_(…)], must_end=True)
    for document, ts, ttl in read.rows(): …

All of these wait by asking a `Waiter` (`storage.waiting`), and know no event loop.

Over psycopg's `pq`, a thin layer on libpq. Only modules of this package import it, so that nobody else needs it.
"""
