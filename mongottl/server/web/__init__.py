"""The server's page and its figures over HTTP, with `--web-port`. Imported only then.

http        HTTP/1.1 on trio: bytes to requests, responses to bytes, limits; knows nothing of MongoDB
site        which path answers what, and who may ask: host, origin, user
login       users, by HTTP's Basic authentication; command: commands that the page runs
figures     what the server knows about itself, as plain values
live        these as JSON for the page, while somebody looks; page: its HTML, CSS and JavaScript
history     the last ten minutes, second by second, which are kept also while nobody looks
documents   the documents of a collection, page by page; extended_json: one document as text
exposition  these as Prometheus's metrics, by the table metric_table
serve       the address, and the task
"""
