"""The project's benchmark: named workloads over a socket, on mongottl and on other servers for comparison.

`scripts/bench` is its command line. The server imports nothing from here, and nothing here imports the server: it is
measured as a process with a process id and a port, exactly as its peers are.

    documents   the deterministic documents that every workload uses
    load        a raw-socket client that needs less CPU than the servers
    collection  commands on a whole collection, by raw socket or by a driver's interface
    builds      earlier commits of mongottl, installed to be measured as well
    measure     CPU and memory of a process, percentiles, ratios, and the shape of a result
    peers       other servers, installed by package name
    targets     how each server is started, reached and stopped
    workloads   what is measured, and the goals
    runner      which workload runs on which server, in which order
    report      tables and JSON
    cli         options
"""
