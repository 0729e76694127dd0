# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Stream a reasoning model's answer and say what closed its reasoning.

With `reasoning_answer_reserve` the reasoning ends in time for an answer: when
only that many output tokens are left and the model still reasons, the reasoning
end is forced. The last chunk says whether that happened.

Start a server of any reasoning model, for example:

```bash
vllm serve Qwen/Qwen3-0.6B --reasoning-parser qwen3
```

and ask it something that it reasons about at length:

```bash
python examples/reasoning/openai_chat_completion_answer_reserve_streaming.py \
    --max-tokens 512 --answer-reserve 128
```
"""

import argparse

from openai import OpenAI

CAUSES = {
    "model": "the model ended its reasoning by itself",
    "answer_reserve": "the answer reserve ended the reasoning",
    "thinking_token_budget": "the thinking token budget ended the reasoning",
    None: "the reasoning never ended, or there was none",
}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base-url", default="http://localhost:8000/v1")
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument(
        "--answer-reserve",
        type=int,
        default=128,
        help="output tokens kept for the answer, 0 to turn it off",
    )
    parser.add_argument(
        "question", nargs="?", default="How many primes are there below 200?"
    )
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    client = OpenAI(api_key="EMPTY", base_url=args.base_url)
    stream = client.chat.completions.create(
        model=client.models.list().data[0].id,
        messages=[{"role": "user", "content": args.question}],
        max_completion_tokens=args.max_tokens,
        stream=True,
        # Fields that the openai client does not know go into the body.
        extra_body={"reasoning_answer_reserve": args.answer_reserve},
    )

    section = None
    for chunk in stream:
        (choice,) = chunk.choices
        for name in ("reasoning", "content"):
            text = getattr(choice.delta, name, None)
            if not text:
                continue
            if section != name:
                print(f"\n[{name}]")
                section = name
            print(text, end="", flush=True)
        if choice.finish_reason is not None:
            closed_by = getattr(choice, "reasoning_closed_by", None)
            print(f"\n[{choice.finish_reason}: {CAUSES[closed_by]}]")


if __name__ == "__main__":
    main()
