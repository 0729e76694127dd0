# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Runs requests on one engine, in this process, and prints what came out as JSON.

The command line is a JSON object: ``runner`` (1 or 2; where vLLM has no model runner
V1, 1 is the one for CPUs without Triton), ``interpret`` (whether
Triton kernels are interpreted), ``options`` of the engine, ``prompt`` (the user's
text), and ``params``, the sampling parameters of each request, among them its
``text`` where that is not the rendered prompt. With interpreted kernels and
async scheduling, what the steps of the first ``num_measured`` requests do comes out
too; each of these runs once more by itself.
"""

import json
import os
import sys
from contextlib import ExitStack
from typing import Any
from unittest import mock

from tests.answer_reserve_utils import (
    ENGINE_ENV,
    ENGINE_OPTIONS,
    HAS_RUNNER_V1,
    TINY_REASONER,
    forced_end,
)
from tests.v1.worker import triton_interpreter


def main() -> None:
    job = json.loads(sys.argv[1])
    os.environ.update(ENGINE_ENV)
    if HAS_RUNNER_V1:
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = str(job["runner"] - 1)
    if job["interpret"]:
        triton_interpreter.enable()

    from tests.v1.e2e import async_scheduling
    from vllm import LLM, SamplingParams
    from vllm.platforms import current_platform
    from vllm.v1.core.sched.scheduler import Scheduler

    num_preemptions = 0
    preempt = Scheduler._preempt_request

    def count_preemption(*args, **kwargs):
        nonlocal num_preemptions
        num_preemptions += 1
        return preempt(*args, **kwargs)

    steps = None
    patches = ExitStack()
    counted = mock.patch.object(Scheduler, "_preempt_request", count_preemption)
    patches.enter_context(counted)
    if job["options"].get("async_scheduling"):
        patches.enter_context(async_scheduling.stays_on())
        if job["interpret"]:
            steps = patches.enter_context(async_scheduling.interpreted_steps())
    llm = LLM(TINY_REASONER, **{**ENGINE_OPTIONS, **job["options"]})
    config = llm.llm_engine.vllm_config
    if HAS_RUNNER_V1:
        assert config.use_v2_model_runner == (job["runner"] == 2)
    else:
        is_standalone = current_platform.uses_standalone_cpu_model_runner()
        assert is_standalone == (job["runner"] == 1)
    prompt = llm.get_tokenizer().apply_chat_template(
        [{"role": "user", "content": job["prompt"]}],
        tokenize=False,
        add_generation_prompt=True,
    )
    prompts = [params.pop("text", prompt) for params in job["params"]]
    each = [SamplingParams(temperature=0.0, **params) for params in job["params"]]
    outputs = llm.generate(prompts, each, use_tqdm=False)
    steps_of_each = []
    if steps is not None:
        for params in each[: job["num_measured"]]:
            steps.clear()
            llm.generate([prompt], params, use_tqdm=False)
            steps_of_each.append([vars(step) for step in steps])
    core_client: Any = llm.llm_engine.engine_core
    result = {
        "end": forced_end(llm),
        "num_preemptions": num_preemptions,
        "scheduler": type(core_client.engine_core.scheduler).__name__,
        "num_batches": config.max_concurrent_batches,
        "steps": steps_of_each,
        "prompt_len": len(outputs[0].prompt_token_ids),
        "outputs": [list(output.outputs[0].token_ids) for output in outputs],
    }
    print("\n" + json.dumps(result))


if __name__ == "__main__":
    main()
