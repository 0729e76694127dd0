# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""A reasoning model that runs out of `max_tokens`, without and with a reserve.

    python -m benchmarks.answer_reserve.demo

Runs the embedded model through `LLM.chat` on the same problems with the same
seeds twice, reserve unset and set, and shows what became of the requests.
"""

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from tqdm.auto import tqdm

from benchmarks.models.tiny_reasoner.problems import (
    Problem,
    extract_answer,
    held_out,
)

TINY_REASONER = os.path.relpath(Path(__file__).parents[1] / "models" / "tiny_reasoner")
MAX_TOKENS, RESERVE = 128, 16
MAX_MODEL_LEN = 1024
SHOWN_REQUESTS, SHOWN_LINES = 2, 7

QUIET = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "TRANSFORMERS_VERBOSITY": "error",
}
# One process and a small cache are enough, and start fast.
SMALL = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}

NO_FORK = """\
{found}: install the fork first.
  make install                   # into .venv; then: make demo
  python -m tools.fork apply     # or over the vLLM of this environment"""


@dataclass(frozen=True)
class Reply:
    """What one request produced."""

    token_ids: list[int]
    reasoning: str
    answer_text: str | None
    """The text after the reasoning; None if the output ended inside it."""
    is_right: bool

    @property
    def is_answered(self) -> bool:
        """Whether an answer can be extracted."""
        return extract_answer(self.answer_text) is not None


def import_fork() -> Any:
    """Import the installed vLLM.

    Raises:
        SystemExit: If there is none, or if it does not have the reserve.

    """
    for name, value in (QUIET | SMALL).items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore")
    # Some is logged before vLLM has read its own level.
    logging.getLogger("vllm").setLevel(logging.ERROR)
    try:
        import vllm
    except ModuleNotFoundError as error:
        raise SystemExit(NO_FORK.format(found=f"No vLLM here ({error})")) from None
    if "reasoning_answer_reserve" not in vllm.SamplingParams.__struct_fields__:
        found = f"vLLM {vllm.__version__} has no reasoning_answer_reserve"
        raise SystemExit(NO_FORK.format(found=found))
    return vllm


def start_engine(vllm: Any, model: str) -> Any:
    """An engine for the embedded model on any device."""
    from vllm.platforms import current_platform

    options: dict[str, Any] = {"max_model_len": MAX_MODEL_LEN}
    if current_platform.is_cpu():
        options |= {"dtype": "float32", "gpu_memory_utilization": 0.1}
    return vllm.LLM(
        model,
        reasoning_parser="qwen3",
        enforce_eager=True,
        # Every prompt fits one step: the seeded generator of a request does not
        # then depend on how its prompt was cut.
        max_num_batched_tokens=16 * MAX_MODEL_LEN,
        use_tqdm_on_load=False,
        **options,
    )


def bar(title: str) -> Callable[..., Any]:
    """A progress bar of requests for `LLM.chat`."""

    def make(rendered: Iterable | None = None, **options: Any) -> Any:
        # Prompts are rendered in no time.
        if rendered is not None:
            return rendered
        return tqdm(**(options | {"desc": title}))

    return make


def run(
    llm: Any, problems: Sequence[Problem], params: Sequence[Any], title: str
) -> list[Reply]:
    """Ask every problem and read the replies."""
    config = llm.llm_engine.vllm_config.reasoning_config
    exits = {token for ids in config.reasoning_exit_token_ids for token in ids}
    outputs = llm.chat(
        [[{"role": "user", "content": problem.question}] for problem in problems],
        list(params),
        use_tqdm=bar(title),
    )
    replies = []
    for problem, output in zip(problems, outputs, strict=True):
        sample = output.outputs[0]
        token_ids = list(sample.token_ids)
        reasoning, _, answer = sample.text.partition("</think>")
        answer_text = answer.strip() if exits.intersection(token_ids) else None
        is_right = extract_answer(answer_text) == problem.answer
        reasoning = reasoning.removeprefix("<think>").strip("\n")
        replies.append(Reply(token_ids, reasoning, answer_text, is_right))
    return replies


def summary(arms: dict[str, list[Reply]]) -> Table:
    """What became of the requests of each arm."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column()
    for name in arms:
        table.add_column(name, justify="right")

    def row(name: str, count: Callable[[Reply], int]) -> None:
        totals = (sum(map(count, replies)) for replies in arms.values())
        table.add_row(name, *(f"{total:,}" for total in totals))

    row("requests", lambda reply: 1)
    row("answered", lambda reply: reply.is_answered)
    row("right", lambda reply: reply.is_right)
    row("ended inside reasoning", lambda reply: reply.answer_text is None)
    row("tokens spent", lambda reply: len(reply.token_ids))
    row(
        "spent on no answer",
        lambda reply: 0 if reply.is_answered else len(reply.token_ids),
    )
    return table


def _panel(reply: Reply, title: str, width: int) -> Panel:
    lines = reply.reasoning.split("\n")
    text = Text()
    if len(lines) > SHOWN_LINES:
        text.append(f"({len(lines) - SHOWN_LINES} lines before)\n", style="dim")
    text.append("\n".join(lines[-SHOWN_LINES:]))
    if reply.answer_text is None:
        text.append(f"\n[cut off after {len(reply.token_ids)} tokens]", style="red")
    else:
        text.append("\n</think>", style="dim")
        style = "bold green" if reply.is_right else "bold yellow"
        text.append(f"\n{reply.answer_text}", style=style)
    return Panel(text, title=title, title_align="left", width=width)


def side_by_side(
    console: Console,
    problems: Sequence[Problem],
    arms: dict[str, list[Reply]],
) -> None:
    """Show requests that were cut off without the reserve and answer with it."""
    cut = [
        (problem, replies)
        for problem, *replies in zip(problems, *arms.values(), strict=True)
        if not replies[0].is_answered and replies[1].is_answered
    ]
    # Shown right where there are such; the table above counts all of them.
    cut.sort(key=lambda entry: not entry[1][1].is_right)
    width = min(console.width, 100) // 2 - 1
    for problem, replies in cut[:SHOWN_REQUESTS]:
        question = Text(f"\n{problem.question}", style="bold")
        console.print(question.append(f" ({problem.answer})", style="not bold dim"))
        panels = [
            _panel(reply, name, width)
            for name, reply in zip(arms, replies, strict=True)
        ]
        console.print(Columns(panels))


def serving_commands(model: str, question: str, max_tokens: int, reserve: int) -> str:
    """Commands that serve the model over HTTP and query it."""
    python = Path(os.path.relpath(sys.executable))
    if ".." in python.parts:
        python = Path(sys.executable)
    return f"""\
VLLM_CPU_KVCACHE_SPACE=1 {python.with_name("vllm")} serve {model} \\
    --reasoning-parser qwen3 --dtype float32 --enforce-eager \\
    --max-model-len {MAX_MODEL_LEN} --gpu-memory-utilization 0.1

{python} - <<'EOF'
from openai import OpenAI

client = OpenAI(base_url="http://localhost:8000/v1", api_key="none")
reply = client.chat.completions.create(
    model="{model}",
    messages=[{{"role": "user", "content": {question!r}}}],
    max_tokens={max_tokens},
    extra_body={{"reasoning_answer_reserve": {reserve}}},
)
message = reply.choices[0].message
print("reasoning:", message.reasoning)
print("answer:", message.content)
EOF"""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--model", default=TINY_REASONER, help="path of the model")
    parser.add_argument("--problems", type=int, default=100, help="how many to ask")
    parser.add_argument("--max-tokens", type=int, default=MAX_TOKENS, help="a request")
    parser.add_argument(
        "--reserve", type=int, default=RESERVE, help="tokens kept for the answer"
    )
    parser.add_argument("--temperature", type=float, default=0.6, help="of sampling")
    parser.add_argument("--seed", type=int, default=2026, help="of the first request")
    return parser.parse_args()


def main() -> None:
    args = _arguments()
    console = Console(highlight=False)
    if not Path(args.model, "config.json").is_file():
        raise SystemExit(f"--model={args.model}: no model there (no config.json)")
    console.print("Starting vLLM ...")
    vllm = import_fork()

    problems = held_out(args.problems, args.seed)

    def params(reserve: int | None) -> list[Any]:
        return [
            vllm.SamplingParams(
                temperature=args.temperature,
                max_tokens=args.max_tokens,
                seed=args.seed + index,
                reasoning_answer_reserve=reserve,
            )
            for index in range(len(problems))
        ]

    names = {"reserve unset": None, f"reserve {args.reserve}": args.reserve}
    try:
        arm_params = {name: params(reserve) for name, reserve in names.items()}
    except vllm.exceptions.VLLMValidationError as error:
        raise SystemExit(str(error)) from None

    llm = start_engine(vllm, args.model)
    console.print(
        f"vLLM {vllm.__version__}, {args.model}: {len(problems)} problems, "
        f"max_tokens={args.max_tokens}, the same seeds twice"
    )
    width = max(map(len, names))
    arms = {
        name: run(llm, problems, arm_params[name], name.ljust(width)) for name in names
    }
    unset, reserved = arms.values()

    console.print(summary(arms))
    same = sum(a.token_ids == b.token_ids for a, b in zip(unset, reserved, strict=True))
    closed = [
        (a, b)
        for a, b in zip(unset, reserved, strict=True)
        if a.token_ids != b.token_ids
    ]
    console.print(
        f"{same} requests are the same in both runs, token for token. In the other "
        f"{len(closed)} reasoning was still open after {args.max_tokens} - "
        f"{args.reserve} = {args.max_tokens - args.reserve} tokens and was closed "
        f"there: right without the reserve {sum(a.is_right for a, _ in closed)}, "
        f"with it {sum(b.is_right for _, b in closed)}."
    )
    side_by_side(console, problems, arms)

    cut = (p for p, a in zip(problems, unset, strict=True) if not a.is_answered)
    question = next(cut, problems[0]).question
    console.print("\nThe same over HTTP: serve the model, then query it.\n")
    # As it is, to be copied.
    print(serving_commands(args.model, question, args.max_tokens, args.reserve))


if __name__ == "__main__":
    main()
