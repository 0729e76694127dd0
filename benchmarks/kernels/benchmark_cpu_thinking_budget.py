# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Time a step of the reasoning limits, model runner V2 for CPUs: upstream and fork.

Both states follow the same batch: every request inside its block, one new token a
request and step, and a ``thinking_token_budget`` that is due for none, one or all
of them. The two are timed in turn, in one process, as CPU time of the one thread
that does the work: other load on the machine does not count. Upstream's class is
taken by itself out of the source distribution of vLLM that the fork tool fetches.

Run it from the checkout, as ``python -m`` with the name of this module.
"""

import argparse
import ast
import importlib.util
import json
import sys
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from tools.fork.base import ROOT, fetch_sdist

BASE_VERSION = "0.34.0"
BASE_MODULE = "vllm/v1/worker/cpu/sampler.py"
FORK_MODULE = "vllm/v1/worker/cpu/thinking_budget.py"
CLASS = "CPUThinkingBudgetState"
START_TOKEN_ID, END_TOKEN_ID, THOUGHT_TOKEN_ID, VOCAB_SIZE = 1, 2, 3, 8
CONFIG = SimpleNamespace(
    reasoning_start_token_ids=[START_TOKEN_ID],
    reasoning_end_token_ids=[END_TOKEN_ID],
    natural_reasoning_end_token_ids=[END_TOKEN_ID],
)
NOT_DUE = 10**6


def load_base_class() -> Any:
    """Upstream's class, with the constants beside it and without its module."""
    with tarfile.open(fetch_sdist(BASE_VERSION)) as sdist:
        file = sdist.extractfile(f"vllm-{BASE_VERSION}/{BASE_MODULE}")
        assert file is not None
        module = ast.parse(file.read())
    module.body = [
        statement
        for statement in module.body
        if isinstance(statement, ast.Assign | ast.ClassDef)
        and _name(statement) in (CLASS, "_INT32_MAX")
    ]
    # Its annotations name what is not imported here.
    module.body.insert(0, ast.parse("from __future__ import annotations").body[0])
    names = {"np": np, "torch": torch}
    exec(compile(module, f"vllm {BASE_VERSION}", "exec"), names)
    return names[CLASS]


def _name(statement: ast.Assign | ast.ClassDef) -> str:
    if isinstance(statement, ast.ClassDef):
        return statement.name
    return ast.unparse(statement.targets[0])


def load_fork_class() -> Any:
    """The fork's class, which the vLLM installed here need not have."""
    spec = importlib.util.spec_from_file_location("fork_state", ROOT / FORK_MODULE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, CLASS)


class Batch:
    """Requests in front of one state, each inside its block."""

    def __init__(
        self, state_cls: Any, num_reqs: int, num_tokens: int, num_due: int, room: int
    ) -> None:
        tokens = torch.full((num_reqs, 1 + num_tokens + room), THOUGHT_TOKEN_ID)
        tokens[:, 0] = START_TOKEN_ID
        ones = torch.ones(num_reqs, dtype=torch.int32)
        self.req_states = SimpleNamespace(
            max_num_reqs=num_reqs,
            device=torch.device("cpu"),
            all_token_ids=tokens.int(),
            prompt_len=ones,
            total_len=ones * (1 + num_tokens),
        )
        self.logits = torch.zeros(num_reqs, VOCAB_SIZE)
        self.state = state_cls(self.req_states, CONFIG)
        for slot in range(num_reqs):
            budget = num_tokens if slot < num_due else NOT_DUE
            params = SimpleNamespace(thinking_token_budget=budget)
            self.state.add_request(slot, params)
        slots = torch.arange(num_reqs)
        self.context = SimpleNamespace(
            expanded_idx_mapping=slots,
            idx_mapping=slots,
            idx_mapping_np=slots.numpy(),
            expanded_local_pos=torch.zeros(num_reqs, dtype=torch.int32),
            input_ids=torch.full((num_reqs,), THOUGHT_TOKEN_ID, dtype=torch.int32),
            # The runner's lengths grow in place.
            seq_lens_upper_bound_np=self.req_states.total_len.numpy(),
        )

    def time_steps(self, num_steps: int) -> list[float]:
        """CPU milliseconds that each of some steps takes."""
        # Only the fork's sampler asks first; upstream's always applies.
        is_due = getattr(self.state, "is_due", lambda *_: True)
        context, times = self.context, []
        for _ in range(num_steps):
            self.req_states.total_len += 1
            begin = time.thread_time()
            if is_due(context.idx_mapping_np, context.seq_lens_upper_bound_np):
                self.state.apply(self.logits, context)
            times.append((time.thread_time() - begin) * 1e3)
        return times


def quartiles(values: list[float]) -> dict[str, float]:
    """Lower quartile, median and upper quartile."""
    found = (round(float(n), 5) for n in np.percentile(values, [25, 50, 75]))
    return dict(zip(("low", "median", "high"), found))


def measure(args: argparse.Namespace, output_len: int, num_due: int) -> dict[str, Any]:
    """Time both states on one batch, in turn."""
    room = 1 + args.rounds * args.steps
    base, fork = (
        Batch(cls, args.num_reqs, output_len, num_due, room)
        for cls in (load_base_class(), load_fork_class())
    )
    # The first step reads the output so far.
    base.time_steps(1)
    fork.time_steps(1)
    base_ms: list[float] = []
    fork_ms: list[float] = []
    label = f"{output_len} output tokens, {num_due} due"
    for _ in tqdm(range(args.rounds), label, file=sys.stderr):
        base_ms += base.time_steps(1)
        fork_ms.append(float(np.median(fork.time_steps(args.steps))))
    assert base.logits[:, END_TOKEN_ID].count_nonzero() == num_due
    assert torch.equal(base.logits, fork.logits)
    return {
        "num_reqs": args.num_reqs,
        "output_len": output_len,
        "num_due": num_due,
        "base_ms": quartiles(base_ms),
        "fork_ms": quartiles(fork_ms),
        "ratio": quartiles([b / f for b, f in zip(base_ms, fork_ms)]),
    }


def _cell(values: dict[str, float], spec: str) -> str:
    low, median, high = (format(value, spec) for value in values.values())
    return f"{median} [{low}, {high}]"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num-reqs", type=int, default=256)
    lengths = [1_000, 8_000, 32_000]
    parser.add_argument("--output-len", type=int, nargs="+", default=lengths)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--steps", type=int, default=20, help="steps of the fork a round (base: 1)"
    )
    parser.add_argument("--out", type=Path, help="write the figures there as JSON")
    args = parser.parse_args()

    results = [
        measure(args, output_len, num_due)
        for num_due in (0, 1, args.num_reqs)
        for output_len in args.output_len
    ]
    print(
        f"vLLM {BASE_VERSION} and fork, {args.num_reqs} requests, a step; "
        f"median [quartiles], {args.rounds} rounds"
    )
    print("| due | output tokens | base (ms) | fork (ms) | base / fork |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for result in results:
        cells = [
            str(result["num_due"]),
            f"{result['output_len']:,}",
            _cell(result["base_ms"], ".2f"),
            _cell(result["fork_ms"], ".4f"),
            _cell(result["ratio"], ",.1f"),
        ]
        print(f"| {' | '.join(cells)} |")
    if args.out is not None:
        args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
