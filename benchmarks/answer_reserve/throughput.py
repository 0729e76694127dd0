# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Does the reserve cost anything while it does not fire?

    python -m benchmarks.answer_reserve.throughput RESULTS --base PYTHON

Times the requests of an evaluation that close their reasoning by themselves, with
the parameter unset and set, in alternating order. `evaluate` does so in its own
engine; this command adds the base vLLM that another interpreter has. The figures
hold for one machine and are compared within one run only.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.answer_reserve.clients import (
    Client,
    EngineOptions,
    Sampling,
    open_client,
)
from benchmarks.answer_reserve.tasks import Message

MAX_REQUESTS = 256
WARM_UP = "warm-up"

Requests = tuple[list[list[Message]], list[int]]
"""Conversations and the sampling seed of each."""


@dataclass(frozen=True)
class TimedRun:
    """One timed pass over the requests."""

    arm: str
    round: int
    num_tokens: int
    seconds: float
    cpu_seconds: float
    """Processor time of this process: what the engine takes where it runs on one."""

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.seconds


def timed_run(
    client: Client,
    requests: Requests,
    sampling: Sampling,
    arm: str,
    round: int,
    reserve: int | None,
) -> TimedRun:
    """Generate once and take the time."""
    begin, cpu_begin = time.perf_counter(), time.process_time()
    completions = client.generate(*requests, sampling, reserve)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    num_tokens = sum(len(completion.token_ids) for completion in completions)
    return TimedRun(arm, round, num_tokens, seconds, cpu_seconds)


Arm = Callable[[str, int], TimedRun]
"""Times one run, given its name and round."""


def alternate(arms: dict[str, Arm], rounds: int) -> list[TimedRun]:
    """Time the arms in rounds, in one order and then in the other.

    A round that is not counted warms the engines up.
    """
    names = list(arms)
    for name in names:
        arms[name](WARM_UP, -1)
    return [
        arms[name](name, round)
        for round in range(rounds)
        for name in (names if round % 2 == 0 else reversed(names))
    ]


def summary(runs: Sequence[TimedRun]) -> dict[str, Any]:
    """Medians, spread, and each arm's ratio to the first arm of the same round."""
    arms = list(dict.fromkeys(run.arm for run in runs))
    by_arm = {
        arm: sorted((r for r in runs if r.arm == arm), key=_round) for arm in arms
    }
    first = by_arm[arms[0]]
    return {
        "rounds": len(first),
        "tokens_per_second": {
            arm: _spread([run.tokens_per_second for run in ran])
            for arm, ran in by_arm.items()
        },
        "cpu_ms_per_token": {
            arm: _spread([1000 * run.cpu_seconds / run.num_tokens for run in ran])
            for arm, ran in by_arm.items()
        },
        "compared_to": arms[0],
        "ratio": {
            arm: _spread(
                [
                    this.tokens_per_second / other.tokens_per_second
                    for this, other in zip(by_arm[arm], first, strict=True)
                ]
            )
            for arm in arms[1:]
        },
        "runs": [asdict(run) for run in runs],
    }


def _round(run: TimedRun) -> int:
    return run.round


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": median(values), "low": min(values), "high": max(values)}


class Worker:
    """An engine under another interpreter."""

    def __init__(self, python: str, settings: dict[str, Any], requests: Requests):
        command = [python, "-m", "benchmarks.answer_reserve.throughput", "--worker"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._say(settings)
        self._say(requests)

    def _say(self, value: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def run(self, arm: str, round: int, reserve: int | None) -> TimedRun:
        """Time one run.

        Raises:
            RuntimeError: If the worker ends instead.

        """
        self._say((arm, round, reserve))
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("RUN "):
                return TimedRun(**json.loads(line[4:]))
        raise RuntimeError(f"The engine of arm {arm!r} ended; its error stands above.")

    def close(self) -> None:
        """Let the engine end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _work() -> None:
    """Answer each line of standard input with a timed run."""
    settings, requests = json.loads(sys.stdin.readline()), sys.stdin.readline()
    sampling = Sampling(**settings["sampling"])
    with open_client(
        EngineOptions(**settings["engine"]), settings["batch_size"]
    ) as client:
        for line in sys.stdin:
            run = timed_run(client, json.loads(requests), sampling, *json.loads(line))
            print("RUN", json.dumps(asdict(run)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path, help="folder of an evaluation")
    parser.add_argument("--base", required=True, help="Python that has the base vLLM")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    from benchmarks.answer_reserve.evaluate import Settings, quiet_requests
    from benchmarks.answer_reserve.records import read_records

    settings = Settings.load(args.results)
    reserve = min(settings.reserves)
    requests = quiet_requests(settings, read_records(args.results), reserve)
    shared = {
        "engine": asdict(settings.engine),
        "sampling": asdict(settings.sampling),
        "batch_size": settings.batch_size,
    }
    base, fork = (Worker(p, shared, requests) for p in (args.base, sys.executable))
    arms: dict[str, Arm] = {
        "base": lambda arm, round: base.run(arm, round, None),
        "unset": lambda arm, round: fork.run(arm, round, None),
        "set": lambda arm, round: fork.run(arm, round, reserve),
    }
    try:
        result = summary(alternate(arms, args.rounds))
    finally:
        base.close()
        fork.close()
    result |= {"requests": len(requests[1]), "reserve": reserve}
    (args.results / "throughput_base.json").write_text(json.dumps(result, indent=1))
    print(json.dumps({k: v for k, v in result.items() if k != "runs"}, indent=1))


if __name__ == "__main__":
    if sys.argv[1:] == ["--worker"]:
        _work()
    else:
        main()
