"""The project's benchmark: named workloads over a socket, side by side on mongottl and on other servers.

`scripts/bench` is its command line. Nothing here is imported by the server, and nothing here imports the server: it is
measured from outside, as a process with a process id and a port, exactly as its peers are.

    documents   the deterministic documents that every workload uses
    load        a raw-socket client that is cheaper than the servers it drives
    collection  commands on a whole collection, by raw socket or by a driver's interface
    measure     CPU and memory of a process, percentiles, ratios, and the shape of a result
    peers       other servers, installed by package name
    targets     how each server is started, reached and stopped
    workloads   what is measured, and the goals
    runner      which workload runs on which server, in which order
    report      tables and JSON
    cli         options
"""
