# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Drives a `ThinkingBudgetState` as model runner V2 and its samplers do."""

from random import Random

import torch

from tests.v1.sample.reasoning_limits_reference import Markers
from tests.v1.sample.reasoning_limits_strategies import VOCAB_SIZE, Request
from tests.v1.worker.slot_batch import SlotBatch
from vllm.platforms import current_platform
from vllm.v1.worker.gpu.sample import thinking_budget
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext
from vllm.v1.worker.gpu.sample.thinking_budget import ThinkingBudgetState
from vllm.v1.worker.gpu.states import RequestState

DEVICE = torch.device(current_platform.device_type)


class CountedKernel:
    """Counts the launches of a kernel."""

    def __init__(self, kernel) -> None:
        self.kernel = kernel
        self.num_launches = 0

    def __getitem__(self, grid):
        self.num_launches += 1
        return self.kernel[grid]


class StateBatch(SlotBatch):
    """Request slots whose tokens are on the device."""

    context_cls = LogitsContext
    device = DEVICE

    def __init__(
        self,
        markers: Markers,
        num_spec_tokens: int = 0,
        max_num_reqs: int = 8,
        max_model_len: int = 256,
        vocab_size: int = VOCAB_SIZE,
    ) -> None:
        req_states = RequestState(
            max_num_reqs=max_num_reqs,
            max_model_len=max_model_len,
            max_num_batched_tokens=max_model_len,
            num_speculative_steps=num_spec_tokens,
            vocab_size=vocab_size,
            device=DEVICE,
        )
        state = ThinkingBudgetState(req_states, markers.config)
        super().__init__(req_states, state, vocab_size)
        # Tokens of each request that the device holds.
        self.num_tokens: dict[int, int] = {}

    def store(self, slot: int, request: Request) -> None:
        tokens = request.prompt + request.output
        self.req_states.add_request(
            req_id=str(slot),
            prompt_len=len(request.prompt),
            all_token_ids=tokens,
            num_computed_tokens=0,
            max_tokens=1,
        )
        self.num_tokens[slot] = len(tokens)

    def added(self, request: Request, random: Random) -> None:
        if random.random() < 0.5:
            # The host cannot tell when it is due; the device can.
            self.state.due_len[self.slot_of(request)] = 0

    def apply_staged_writes(self) -> None:
        self.req_states.apply_staged_writes()
        self.state.apply_staged_writes()

    def commit(self) -> None:
        for slot, request in self.slots.items():
            tokens = request.prompt + request.output
            begin = min(self.num_tokens[slot], len(tokens))
            self.req_states.all_token_ids.stage_write(slot, begin, tokens[begin:])
            self.req_states.total_len.stage_write_elem(slot, len(tokens))
            self.num_tokens[slot] = len(tokens)
        self.req_states.apply_staged_writes()


def count_launches(monkeypatch) -> CountedKernel:
    """Count the launches of the module's kernel."""
    counted = CountedKernel(thinking_budget._thinking_budget_kernel)
    monkeypatch.setattr(thinking_budget, "_thinking_budget_kernel", counted)
    return counted
