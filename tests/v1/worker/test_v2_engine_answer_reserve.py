# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The answer reserve on an engine with model runner V2, beside the runner for CPUs."""

import json
import math
from functools import cache
from typing import Any

import pytest

from tests.answer_reserve_utils import HAS_RUNNER_V1, TINY_REASONER
from tests.v1.worker.triton_interpreter import run_python
from vllm.triton_utils import HAS_TRITON

pytestmark = pytest.mark.slow_test

PROMPT = "Tom has 3 apples and buys 4 more. How many apples does he have?"
MAX_TOKENS = 24
RAW = {"text": "2 + 2 =", "ignore_eos": True}
REQUESTS: dict[str, dict[str, Any]] = {
    "unset": {"reasoning_answer_reserve": 0},
    "reserve": {"reasoning_answer_reserve": 12},
    "budget": {"thinking_token_budget": 5},
    "reserve first": {"reasoning_answer_reserve": 8, "thinking_token_budget": 20},
    "budget first": {"reasoning_answer_reserve": 8, "thinking_token_budget": 2},
    "default": {},
    "raw": RAW,
    "raw, off": RAW | {"reasoning_answer_reserve": 0},
    "raw, own": RAW | {"reasoning_answer_reserve": 8},
}
MEASURED = ("unset", "reserve")
assert tuple(REQUESTS)[: len(MEASURED)] == MEASURED

# Chunked prefill, and too few blocks for all requests at once.
OPTIONS: dict[str, Any] = {
    "max_model_len": 128,
    "max_num_seqs": len(REQUESTS),
    "max_num_batched_tokens": 16,
    "block_size": 32,
    "num_gpu_blocks_override": 6,
    "enable_prefix_caching": False,
    "reasoning_config": {"answer_reserve": 10},
}
DRAFTS = {
    "speculative_config": {
        "method": "draft_model",
        "model": TINY_REASONER,
        "num_speculative_tokens": 3,
    },
}


@cache
def _run(runner: int, drafts: bool = False, is_async: bool = False) -> dict[str, Any]:
    options = {**OPTIONS, **(DRAFTS if drafts else {})}
    if is_async:
        options["async_scheduling"] = True
    params = [{"max_tokens": MAX_TOKENS, **limits} for limits in REQUESTS.values()]
    job = {
        "runner": runner,
        "interpret": runner == 2 and not HAS_TRITON,
        "options": options,
        "prompt": PROMPT,
        "params": params,
        "num_measured": len(MEASURED),
    }
    out = run_python("-m", "tests.v1.worker.v2_engine_run", json.dumps(job))
    result = json.loads(out.splitlines()[-1])
    result["outputs"] = dict(zip(REQUESTS, result["outputs"], strict=True))
    return result


def _close_index(result: dict[str, Any], request: str) -> int | None:
    """Output index at which the reasoning end begins."""
    end, tokens = result["end"], result["outputs"][request]
    starts = range(len(tokens) - len(end) + 1)
    return next((i for i in starts if tokens[i : i + len(end)] == end), None)


@pytest.mark.parametrize("drafts", [False, True])
def test_the_reserve_closes_at_its_index(drafts):
    result = _run(2, drafts)
    assert _close_index(result, "unset") is None
    assert _close_index(result, "reserve") == MAX_TOKENS - 12
    assert _close_index(result, "reserve first") == MAX_TOKENS - 8
    assert _close_index(result, "default") == MAX_TOKENS - 10


@pytest.mark.parametrize("drafts", [False, True])
def test_the_default_leaves_raw_text_alone(drafts):
    result = _run(2, drafts)
    assert result["outputs"]["raw"] == result["outputs"]["raw, off"]
    assert _close_index(result, "raw") is None
    assert _close_index(result, "raw, own") == MAX_TOKENS - 8


@pytest.mark.skipif(
    HAS_TRITON and not HAS_RUNNER_V1, reason="this vLLM has no other model runner here"
)
@pytest.mark.parametrize("drafts", [False, True])
def test_both_model_runners_produce_the_same_tokens(drafts):
    assert _run(2, drafts)["outputs"] == _run(1)["outputs"]


def test_the_engine_preempted_requests():
    assert _run(2)["num_preemptions"] > 0


def test_async_scheduling_changes_no_token():
    asynchronous = _run(2, is_async=True)
    assert asynchronous["scheduler"] == "AsyncScheduler"
    assert asynchronous["num_batches"] == 2
    assert _run(2)["scheduler"] == "Scheduler"
    assert asynchronous["outputs"] == _run(2)["outputs"]
    assert asynchronous["num_preemptions"] > 0


@pytest.mark.skipif(HAS_TRITON, reason="counts what the interpreter launches")
def test_under_async_scheduling_no_step_waits_and_one_that_is_not_due_does_nothing():
    result = _run(2, is_async=True)
    # Each request by itself: the prompt comes in pieces, the last one is sampled.
    first = math.ceil(result["prompt_len"] / OPTIONS["max_num_batched_tokens"]) - 1
    unset, reserved = (steps[first:] for steps in result["steps"])
    kernel, close_len = "_thinking_budget_kernel", MAX_TOKENS - 12
    assert not any(step["waits"] for step in reserved + unset)
    assert reserved[:close_len] == unset[:close_len]
    assert not any(kernel in step["operations"] for step in unset)
    assert all(step["operations"][kernel] == 1 for step in reserved[close_len:])
