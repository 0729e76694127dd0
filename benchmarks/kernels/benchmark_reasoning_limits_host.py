# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Host time a step of the reasoning limits, model runner V1: upstream and fork.

Both holders follow the same batch: every request inside its block with a
``thinking_token_budget`` that is not due, one new token a request and step. The
two are timed in turn, in one process, as CPU time of the one thread that does the
work: other load on the machine does not count. Upstream's module is loaded from
``--base-module`` or from the base wheel of the fork tool.
"""

import argparse
import importlib.util
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from vllm.v1.sample import thinking_budget_state as fork_module
from vllm.v1.sample.logits_processor.interface import BatchUpdate

MODULE = "vllm/v1/sample/thinking_budget_state.py"
START_TOKEN_ID, END_TOKEN_ID, THOUGHT_TOKEN_ID = 1, 2, 3
CPU = torch.device("cpu")


def load_base_module(path: Path | None) -> ModuleType:
    """Load upstream's module from a file, or from the base wheel."""
    if path is not None:
        return _load(path)
    from tools.fork.base import base_for, fetch_wheel, target_device

    with (
        tempfile.TemporaryDirectory() as folder,
        zipfile.ZipFile(fetch_wheel(base_for(target_device()))) as wheel,
    ):
        return _load(Path(wheel.extract(MODULE, folder)))


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("base_thinking_budget_state", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if hasattr(module, "ReasoningBlockScan"):
        raise SystemExit(f"{path} is the fork's own module, not upstream's.")
    return module


class Batch:
    """Requests in one holder, each inside a block that is not due."""

    def __init__(self, module: ModuleType, num_reqs: int, num_tokens: int) -> None:
        config = SimpleNamespace(
            reasoning_start_token_ids=[START_TOKEN_ID],
            reasoning_end_token_ids=[END_TOKEN_ID],
        )
        params = SimpleNamespace(thinking_token_budget=10**6, _reasoning_close_len=None)
        self.outputs = [[THOUGHT_TOKEN_ID] * num_tokens for _ in range(num_reqs)]
        self.spec_token_ids: list[list[int]] = [[] for _ in range(num_reqs)]
        self.logits = torch.zeros(num_reqs, 8)
        self.holder = module.ThinkingBudgetStateHolder(config, num_reqs, 0, CPU, False)
        added: list[Any] = [
            (i, params, [START_TOKEN_ID], output)
            for i, output in enumerate(self.outputs)
        ]
        self.holder.sync_batch(BatchUpdate(num_reqs, (), added, ()))

    def time_steps(self, num_steps: int) -> list[float]:
        """CPU milliseconds that each of some steps takes."""
        times = []
        for _ in range(num_steps):
            for output in self.outputs:
                output.append(THOUGHT_TOKEN_ID)
            begin = time.thread_time()
            self.holder.update_state(self.outputs, self.spec_token_ids)
            self.holder.apply_to_logits(self.logits, False, self.spec_token_ids)
            times.append((time.thread_time() - begin) * 1e3)
        return times


def spread(values: list[float], spec: str) -> str:
    """Median and quartiles."""
    low, median, high = np.percentile(values, [25, 50, 75])
    return f"{median:{spec}} [{low:{spec}}, {high:{spec}}]"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base-module", type=Path, help="path of upstream's module")
    parser.add_argument("--num-reqs", type=int, default=256)
    parser.add_argument("--output-len", type=int, nargs="+", default=[1000, 8000])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument(
        "--steps", type=int, default=200, help="steps of the fork a round (base: 1)"
    )
    args = parser.parse_args()
    base_module = load_base_module(args.base_module)

    rows = []
    for output_len in args.output_len:
        base, fork = (
            Batch(module, args.num_reqs, output_len)
            for module in (base_module, fork_module)
        )
        # The first step reads the output so far.
        base.time_steps(1)
        fork.time_steps(1)
        base_ms: list[float] = []
        fork_ms: list[float] = []
        rounds = tqdm(
            range(args.rounds), f"{output_len} output tokens", file=sys.stderr
        )
        for _ in rounds:
            base_ms += base.time_steps(1)
            fork_ms.append(float(np.median(fork.time_steps(args.steps))))
        ratios = [b / f for b, f in zip(base_ms, fork_ms)]
        rows.append((output_len, base_ms, fork_ms, ratios))

    print(f"{args.num_reqs} requests, a step; median [quartiles], {args.rounds} rounds")
    print("| output tokens | base (ms) | fork (ms) | base / fork |")
    print("| ---: | ---: | ---: | ---: |")
    for output_len, base_ms, fork_ms, ratios in rows:
        cells = [spread(base_ms, ".1f"), spread(fork_ms, ".4f"), spread(ratios, ",.0f")]
        print(f"| {output_len:,} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
