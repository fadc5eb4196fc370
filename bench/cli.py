"""The options of `scripts/bench`."""

from __future__ import annotations

import argparse
import fnmatch
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import builds, peers, report
from bench.measure import Result
from bench.runner import run
from bench.targets import Launcher, MongomockLauncher, MongottlLauncher, PeerLauncher, RunningLauncher
from bench.workloads import WORKLOADS, Workload

_SERVER_CORE, _CLIENT_CORE = 0, 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Named workloads on mongottl, and the same on other servers in turn, with the ratios.",
    )
    parser.add_argument(
        "--workload", nargs="+", metavar="NAME", default=["*"], help="names or patterns such as 'ttl-*' (default: all)"
    )
    parser.add_argument("--list", action="store_true", help="list the workloads with their goals, and stop")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long to measure each (default: %(default)g)")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor on the numbers of documents, 0.01 for a quick look"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there")
    parser.add_argument("--server", metavar="URI", help="use this running mongottl; else one is started per workload")
    parser.add_argument("--server-pid", type=int, metavar="PID", help="its process, for CPU and memory")
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="URI|NAME",
        help=f"compare with this server, or install and start one ({', '.join(_server_peers())}); repeatable",
    )
    parser.add_argument(
        "--peer-pid", action="append", type=int, default=[], metavar="PID", help="process of each --peer URI, in order"
    )
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="COMMIT",
        help="compare with mongottl as of this commit, installed from this repository's history; repeatable",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=1,
        help="how often the servers take turns at each workload; the medians are shown (default: %(default)d)",
    )
    parser.add_argument("--mongomock", action="store_true", help="compare with mongomock in process")
    parser.add_argument("--no-main", action="store_true", help="run the peers alone")
    parser.add_argument("--python", default=sys.executable, help="interpreter that runs mongottl (default: this one)")
    parser.add_argument("--from-source", action="store_true", help="run the sources here, not the installed package")
    parser.add_argument(
        "--server-args", default="", metavar="ARGS", help="further options for the mongottl started here"
    )
    parser.add_argument("--durable", action="store_true", help="start mongottl with a --data-dir for every workload")
    parser.add_argument(
        "--store",
        action="store_true",
        help="run mongottl on a private PostgreSQL, and compare it with mongottl on a --data-dir; pings during each"
        " workload. For FerretDB on PostgreSQL: --peer ferretdb-postgresql",
    )
    parser.add_argument("--pin", action="store_true", help="keep servers on one core and the client on another")
    return parser


def _server_peers() -> list[str]:
    return [name for name, peer in peers.PEERS.items() if peer.command is not None]


def chosen_workloads(patterns: Sequence[str]) -> list[Workload]:
    """In the order of their declaration, which keeps those with a common fixture together. ValueError for no match."""
    for pattern in patterns:
        if not fnmatch.filter(WORKLOADS, pattern):
            raise ValueError(f"no workload is called {pattern}; --list shows them")
    return [w for name, w in WORKLOADS.items() if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]


def _launchers(options: argparse.Namespace) -> list[Launcher]:
    core = _SERVER_CORE if options.pin else None
    launchers: list[Launcher] = []
    if not options.no_main:
        if options.server:
            launchers.append(RunningLauncher("mongottl", options.server, options.server_pid))
        else:
            kinds = [("mongottl", False)]
            if options.store:
                kinds = [(report.STORE, True), ("mongottl-folder", False)]
            for name, on_postgresql in kinds:
                launchers.append(
                    MongottlLauncher(
                        options.python,
                        name=name,
                        from_source=options.from_source,
                        durable=options.durable or options.store,
                        on_postgresql=on_postgresql,
                        arguments=shlex.split(options.server_args),
                        core=core,
                    )
                )
    for revision in options.against:
        commit = builds.commit_id(revision)
        launchers.append(
            MongottlLauncher(
                builds.installed(commit),
                name=f"mongottl@{commit}",
                durable=options.durable,
                on_postgresql=options.store,
                arguments=shlex.split(options.server_args),
                core=core,
            )
        )
    pids = iter(options.peer_pid)
    for peer in options.peer:
        if "://" in peer:
            launchers.append(RunningLauncher(peer.split("://", 1)[1].rstrip("/"), peer, next(pids, None)))
        elif peer in _server_peers():
            peers.installed(peer)
            launchers.append(PeerLauncher(peer, core))
        else:
            raise ValueError(f"{peer} is neither a URI nor one of {', '.join(_server_peers())}")
    if options.mongomock:
        peers.installed("mongomock")
        launchers.append(MongomockLauncher())
    if not launchers:
        raise ValueError("nothing to run: --no-main without a peer")
    return launchers


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark. Exit code 1 if a workload failed on the main server, 2 for invalid options."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        workloads = chosen_workloads(options.workload)
        if options.list:
            for workload in workloads:
                chosen = workload.store_goals if options.store else workload.goals
                goals = f" (goal: {', '.join(map(str, chosen))})" if chosen else ""
                print(f"{workload.name:26} {workload.help}{goals}")
            return 0
        launchers = _launchers(options)
        if options.rounds < 1:
            raise ValueError("--rounds must be at least 1")
    except (ValueError, builds.BuildError, peers.PeerError) as error:
        parser.error(str(error))
    if options.pin:
        os.sched_setaffinity(0, {_CLIENT_CORE})
    servers = {launcher.name: launcher.describe() for launcher in launchers}
    for description in servers.values():
        print(description, file=sys.stderr)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # Unwinds, and so stops the servers started here.
    results: list[Result] = []
    try:
        results = run(launchers, workloads, options.seconds, options.scale, options.rounds, _show, options.store)
    finally:
        if options.json:
            settings = {
                "seconds": options.seconds,
                "scale": options.scale,
                "rounds": options.rounds,
                "durable": options.durable,
                "store": options.store,
                "pinned": options.pin,
            }
            options.json.write_text(report.as_json(results, settings, servers))
    main_name = launchers[0].name
    print(report.table(results, main_name))
    if len(launchers) > 1:
        print(f"\nTimes {main_name} is better, speed / CPU:\n\n{report.ratio_table(results, main_name)}")
    failed = [r for r in results if r.target == main_name and r.problem and not r.problem.startswith("skipped")]
    return 1 if failed else 0


def _show(result: Result) -> None:
    """Prints each result on standard error as soon as it is measured, since a whole run takes many minutes."""
    if result.problem:
        print(f"  {result.workload} on {result.target}: {result.problem}", file=sys.stderr, flush=True)
        return
    figures = [
        f"{name}={value:,.6g}"
        for name in ("per_s", "cpu_us", "p50_ms", "p99_ms", "peak_mb", "client_share")
        if (value := result.figure(name)) is not None
    ]
    figures += [f"{name}={value:,.6g}" for name, value in result.extra.items()]
    print(f"  {result.workload} on {result.target}: {' '.join(figures)}", file=sys.stderr, flush=True)
