"""The options of `scripts/fuzz`, and the loop over rounds."""

import argparse
import random
import sys
import time
from collections.abc import Sequence

from tests.fuzz.world import COMMANDS_PER_ROUND, Failure, Round, golden_commands


class Run:
    """Rounds of random commands until the time or the number of commands is over.

    seed: any number; a round alone is repeated with `first_round` and one round.
    """

    def __init__(self, seed: int, dialect: str = "mongodb") -> None:
        self.seed = seed
        self.dialect = dialect
        self.sent = 0
        self.rounds = 0
        self.slowest: tuple[float, str] = (0.0, "")
        # The first failure of each kind, and how often each was met.
        self.failures: dict[str, Failure] = {}
        self.counts: dict[str, int] = {}

    def go_on(self, seconds: float, first_round: int = 0, rounds: int = 2**31, report: bool = False) -> None:
        """Runs rounds for so many seconds; report: print each new kind of failure at once."""
        beginnings = golden_commands()
        deadline_s = time.monotonic() + seconds
        number = first_round
        while number < first_round + rounds and time.monotonic() < deadline_s:
            one = Round(f"{self.seed}:{number}", beginnings, self.dialect)
            one.run(COMMANDS_PER_ROUND, deadline_s)
            self.sent += one.sent
            self.rounds += 1
            self.slowest = max(self.slowest, one.slowest)
            for failure in one.failures:
                if failure.key not in self.failures:
                    self.failures[failure.key] = failure
                    if report:
                        print(failure.describe(), end="\n\n", flush=True)
                self.counts[failure.key] = self.counts.get(failure.key, 0) + 1
            number += 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz",
        description="Sends random commands to a server in this process. No reply may be an internal error.",
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to run (default: %(default)g)")
    parser.add_argument("--seed", type=int, help="of the run (default: a random one, which is printed)")
    parser.add_argument("--round", type=int, help="run this round alone, to see a failure again")
    parser.add_argument("--dialect", choices=["mongodb", "cosmos"], default="mongodb")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(10**9) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    run = Run(seed, options.dialect)
    started_s = time.monotonic()
    if options.round is None:
        run.go_on(options.seconds, report=True)
    else:
        run.go_on(float("inf"), options.round, 1, report=True)
    elapsed_s = time.monotonic() - started_s
    print(f"{run.sent} commands in {run.rounds} rounds, {run.sent / elapsed_s:.0f} a second")
    print(f"the longest took {run.slowest[0]:.2f} s: {run.slowest[1]}")
    for key, count in sorted(run.counts.items(), key=lambda item: -item[1]):
        print(f"{count:6} {key}  (seed {run.failures[key].seed})")
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
