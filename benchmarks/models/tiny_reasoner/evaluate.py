# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Measure the tiny reasoner through vLLM: the figures of its model card.

    python -m benchmarks.models.tiny_reasoner.evaluate [MODEL]

The reserve is `reasoning_answer_reserve` where the installed vLLM has it.
Elsewhere `thinking_token_budget` stands in for it: the block opens with the
first output token, so that a budget of `max_tokens - reserve - 1` closes at the
same position.
"""

import argparse
import os
from collections import Counter
from pathlib import Path
from statistics import quantiles
from typing import Any

from .problems import Problem, extract_answer, held_out

ENGINE_SEED, TEMPERATURE, AMPLE, MAX_TOKENS, RESERVE = 2026, 0.6, 900, 96, 16


def start_engine(model: str | Path, **options):
    """An `LLM` that suits this model on a CPU and knows its reasoning markers."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    from vllm import LLM

    settings: dict[str, Any] = {
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": 1024,
        "gpu_memory_utilization": 0.1,
        "seed": ENGINE_SEED,
        "reasoning_parser": "qwen3",
    }
    return LLM(model=str(model), **settings | options)


def answer_all(
    llm,
    problems: list[Problem],
    max_tokens: int,
    reserve: int | None = None,
    temperature: float = TEMPERATURE,
) -> list:
    """The `CompletionOutput` of each problem."""
    from vllm import SamplingParams

    limits: dict[str, Any] = {}
    if reserve is not None:
        if hasattr(SamplingParams, "reasoning_answer_reserve"):
            limits["reasoning_answer_reserve"] = reserve
        else:
            limits["thinking_token_budget"] = max_tokens - reserve - 1
    params = SamplingParams(max_tokens=max_tokens, temperature=temperature, **limits)
    messages = [[{"role": "user", "content": problem.question}] for problem in problems]
    return [request.outputs[0] for request in llm.chat(messages, params)]


def summarize(problems: list[Problem], outputs: list, close: int) -> dict[str, str]:
    """Shares of the outputs that end inside reasoning, answer, and are right."""
    inside = [close not in output.token_ids for output in outputs]
    said = [
        None if open_ else extract_answer(output.text.split("</think>")[-1])
        for open_, output in zip(inside, outputs)
    ]
    right = [a == problem.answer for a, problem in zip(said, problems)]
    count = len(problems)
    return {
        "inside": f"{sum(inside) / count:.1%}",
        "answered": f"{sum(a is not None for a in said) / count:.1%}",
        "right": f"{sum(right) / count:.1%}",
        "tokens": str(sum(len(output.token_ids) for output in outputs)),
    }


def _lengths(outputs: list, close: int) -> list[int]:
    """Tokens before the close of each output, all of them where it has none."""
    return [
        ids.index(close) if close in ids else len(ids)
        for ids in (list(output.token_ids) for output in outputs)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", default=Path(__file__).parent)
    parser.add_argument("-n", type=int, default=300, help="held-out problems")
    parser.add_argument("--max-tokens", type=int, default=MAX_TOKENS)
    parser.add_argument("--reserve", type=int, default=RESERVE)
    args = parser.parse_args()
    problems, limit = held_out(args.n), args.max_tokens
    llm = start_engine(args.model)
    close = llm.get_tokenizer().convert_tokens_to_ids("</think>")
    rows = {}
    for temperature in (TEMPERATURE, 0.0):
        for tokens, reserve in ((AMPLE, None), (limit, None), (limit, args.reserve)):
            outputs = answer_all(llm, problems, tokens, reserve, temperature)
            rows[temperature, tokens, reserve] = outputs
            name = f"temperature {temperature}, max_tokens {tokens}, reserve {reserve}"
            print(name, summarize(problems, outputs, close))
        unset = rows[temperature, limit, None]
        forced = [
            extract_answer(output.text) == problem.answer
            for problem, output, before in zip(
                problems, rows[temperature, limit, args.reserve], unset
            )
            if close not in before.token_ids
        ]
        print(f"  forced answers: {sum(forced)} right of {len(forced)}")
    ample = rows[TEMPERATURE, AMPLE, None]
    cuts = quantiles(_lengths(ample, close), n=20)
    shown = {percent: round(cuts[percent // 5 - 1]) for percent in (5, 25, 50, 75, 95)}
    print("reasoning tokens by percentile", shown)
    right: Counter[str] = Counter()
    count = Counter(problem.family for problem in problems)
    for problem, output in zip(problems, ample):
        right[problem.family] += extract_answer(output.text) == problem.answer
    print("right by family", {f: f"{right[f]} of {n}" for f, n in count.items()})


if __name__ == "__main__":
    main()
