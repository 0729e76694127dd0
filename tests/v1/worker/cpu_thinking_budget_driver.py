# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Drives a `CPUThinkingBudgetState` as model runner V2 for CPUs does.

Before vLLM 0.34.0 there is no such runner. The state needs nothing of it but the
tensors of its request states, so there the module comes from the checkout.
"""

import importlib.util
from pathlib import Path
from typing import Any

import torch

from tests.v1.sample.reasoning_limits_reference import Markers
from tests.v1.sample.reasoning_limits_strategies import VOCAB_SIZE, Request
from tests.v1.worker.slot_batch import SlotBatch

HAS_CPU_RUNNER = importlib.util.find_spec("vllm.v1.worker.cpu.states") is not None

if HAS_CPU_RUNNER:
    from vllm.v1.worker.cpu.states import CPURequestState
    from vllm.v1.worker.cpu.thinking_budget import CPUThinkingBudgetState
else:
    _path = Path(__file__).parents[3] / "vllm/v1/worker/cpu/thinking_budget.py"
    _spec = importlib.util.spec_from_file_location("cpu_thinking_budget", _path)
    assert _spec is not None and _spec.loader is not None
    _module = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_module)
    CPUThinkingBudgetState = _module.CPUThinkingBudgetState

    class CPURequestState:
        """The request states of vLLM 0.34.0, as far as the state reads them."""

        def __init__(self, max_num_reqs: int, max_model_len: int, **_: Any) -> None:
            self.max_num_reqs = max_num_reqs
            self.free_indices = list(range(max_num_reqs))
            self.all_token_ids = torch.zeros(
                max_num_reqs, max_model_len, dtype=torch.int32
            )
            self.prompt_len = torch.zeros(max_num_reqs, dtype=torch.int32)
            self.total_len = torch.zeros(max_num_reqs, dtype=torch.int32)

        def add_request(
            self, req_id: str, prompt_len: int, all_token_ids: list[int], **_: Any
        ) -> None:
            slot = self.free_indices.pop()
            assert req_id == str(slot)
            self.prompt_len[slot] = prompt_len
            self.total_len[slot] = len(all_token_ids)
            self.all_token_ids[slot, : len(all_token_ids)] = torch.tensor(all_token_ids)

        def remove_request(self, req_id: str) -> None:
            self.free_indices.append(int(req_id))


class CPUStateBatch(SlotBatch):
    """Request slots whose tokens are on the host."""

    def __init__(
        self,
        markers: Markers,
        max_num_reqs: int = 8,
        max_model_len: int = 256,
        vocab_size: int = VOCAB_SIZE,
    ) -> None:
        req_states = CPURequestState(
            max_num_reqs=max_num_reqs,
            max_model_len=max_model_len,
            max_num_batched_tokens=max_model_len,
            vocab_size=vocab_size,
            device=self.device,
        )
        state = CPUThinkingBudgetState(req_states, markers.config)
        super().__init__(req_states, state, vocab_size)

    def store(self, slot: int, request: Request) -> None:
        self.req_states.add_request(
            req_id=str(slot),
            prompt_len=len(request.prompt),
            all_token_ids=request.prompt + request.output,
            num_computed_tokens=0,
            max_tokens=1,
        )

    def commit(self) -> None:
        for slot, request in self.slots.items():
            tokens = request.prompt + request.output
            begin = int(self.req_states.total_len[slot])
            new = torch.tensor(tokens[begin:], dtype=torch.int32)
            self.req_states.all_token_ids[slot, begin : len(tokens)] = new
            self.req_states.total_len[slot] = len(tokens)
