# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Drives a `ThinkingBudgetState` as model runner V2 and its samplers do."""

from collections.abc import Sequence

import numpy as np
import torch

from tests.v1.sample.reasoning_limits_reference import Markers
from tests.v1.sample.reasoning_limits_strategies import VOCAB_SIZE, Request
from vllm import SamplingParams
from vllm.platforms import current_platform
from vllm.v1.worker.gpu.sample import thinking_budget
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext
from vllm.v1.worker.gpu.sample.thinking_budget import ThinkingBudgetState
from vllm.v1.worker.gpu.states import RequestState

DEVICE = torch.device(current_platform.device_type)
FORCED_LOGIT = 1.0e9


class CountedKernel:
    """Counts the launches of a kernel."""

    def __init__(self, kernel) -> None:
        self.kernel = kernel
        self.num_launches = 0

    def __getitem__(self, grid):
        self.num_launches += 1
        return self.kernel[grid]


class StateBatch:
    """The request slots of a model runner in front of a state."""

    def __init__(
        self,
        markers: Markers,
        num_spec_tokens: int = 0,
        max_num_reqs: int = 8,
        max_model_len: int = 256,
        vocab_size: int = VOCAB_SIZE,
    ) -> None:
        self.req_states = RequestState(
            max_num_reqs=max_num_reqs,
            max_model_len=max_model_len,
            max_num_batched_tokens=max_model_len,
            num_speculative_steps=num_spec_tokens,
            vocab_size=vocab_size,
            device=DEVICE,
        )
        self.state = ThinkingBudgetState(self.req_states, markers.config)
        self.vocab_size = vocab_size
        self.slots: dict[int, Request] = {}
        # Tokens of each request that the device holds.
        self.num_tokens: dict[int, int] = {}

    @property
    def requests(self) -> list[Request]:
        return list(self.slots.values())

    def slot_of(self, request: Request) -> int:
        return next(i for i, other in self.slots.items() if other is request)

    def remove(self, request: Request) -> None:
        """Finish or preempt a request; its slot is free for another."""
        slot = self.slot_of(request)
        self.req_states.remove_request(str(slot))
        del self.slots[slot], self.num_tokens[slot]

    def add(self, request: Request, params: SamplingParams | None = None) -> bool:
        """Start or resume a request; whether it is due from the first token."""
        slot = self.req_states.free_indices[-1]
        tokens = request.prompt + request.output
        self.req_states.add_request(
            req_id=str(slot),
            prompt_len=len(request.prompt),
            all_token_ids=tokens,
            num_computed_tokens=0,
            max_tokens=1,
        )
        self.slots[slot], self.num_tokens[slot] = request, len(tokens)
        return self.state.add_request(slot, params or request.params)

    def apply_staged_writes(self) -> None:
        self.req_states.apply_staged_writes()
        self.state.apply_staged_writes()

    def commit(self) -> None:
        """Write what the requests have sampled since, as after each step."""
        for slot, request in self.slots.items():
            tokens = request.prompt + request.output
            begin = min(self.num_tokens[slot], len(tokens))
            self.req_states.all_token_ids.stage_write(slot, begin, tokens[begin:])
            self.req_states.total_len.stage_write_elem(slot, len(tokens))
            self.num_tokens[slot] = len(tokens)
        self.req_states.apply_staged_writes()

    def context(
        self,
        requests: Sequence[Request],
        drafts: Sequence[Sequence[int]] | None = None,
        num_not_computed: Sequence[int] | None = None,
    ) -> LogitsContext:
        """Layout of a step.

        Args:
            requests: The scheduled requests, in the batch's order.
            drafts: Draft tokens of each.
            num_not_computed: Tokens of each prefill that this step leaves.

        """
        drafts = drafts or [()] * len(requests)
        num_not_computed = num_not_computed or [0] * len(requests)
        slots = [self.slot_of(request) for request in requests]
        idx: list[int] = []
        local_pos: list[int] = []
        input_ids: list[int] = []
        seq_lens: list[int] = []
        for slot, ids, num_left in zip(slots, drafts, num_not_computed):
            request = self.slots[slot]
            tokens = request.prompt + request.output
            rows = [*tokens[-1 - num_left :][:1], *ids]
            rows = rows if tokens else [0, *ids]
            idx += [slot] * len(rows)
            local_pos += range(len(rows))
            input_ids += rows
            seq_lens.append(len(tokens) - num_left + len(ids))

        def tensor(values: list[int], dtype: torch.dtype) -> torch.Tensor:
            return torch.tensor(values, dtype=dtype, device=DEVICE)

        return LogitsContext(
            expanded_idx_mapping=tensor(idx, torch.int64),
            idx_mapping=tensor(slots, torch.int64),
            idx_mapping_np=np.array(slots, dtype=np.intp),
            expanded_local_pos=tensor(local_pos, torch.int32),
            input_ids=tensor(input_ids, torch.int32),
            pos=tensor([0] * len(idx), torch.int64),
            seq_lens_upper_bound_np=np.array(seq_lens, dtype=np.int32),
        )

    def forced(
        self,
        requests: Sequence[Request],
        drafts: Sequence[Sequence[int]] | None = None,
        num_not_computed: Sequence[int] | None = None,
    ) -> list[list[int | None]]:
        """Sample once; what is forced at each request's drafts and after them."""
        context = self.context(requests, drafts, num_not_computed)
        num_rows = len(context.input_ids)
        columns = torch.arange(self.vocab_size, dtype=torch.float32, device=DEVICE)
        logits = (columns * 7 % self.vocab_size).repeat(num_rows, 1)
        logits[:, -1] = float("-inf")
        before = logits.clone()
        self.state.apply(logits, context)
        forced: list[int | None] = [None] * num_rows
        for row, token in (logits != before).nonzero().tolist():
            assert forced[row] is None, "two logits of a row were changed"
            assert logits[row, token] == FORCED_LOGIT
            forced[row] = token
        ends = np.cumsum([1 + len(ids) for ids in drafts or [()] * len(requests)])
        return [part.tolist() for part in np.split(np.array(forced, object), ends[:-1])]


def count_launches(monkeypatch) -> CountedKernel:
    """Count the launches of the module's kernel."""
    counted = CountedKernel(thinking_budget._thinking_budget_kernel)
    monkeypatch.setattr(thinking_budget, "_thinking_budget_kernel", counted)
    return counted
