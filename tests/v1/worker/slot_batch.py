# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Request slots in front of a thinking budget state of model runner V2.

Common to the states for GPUs and for CPUs: what the samplers tell them of a step,
and the run in which they are held against the naive reference.
"""

from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch

from tests.v1.sample.reasoning_limits_reference import Markers
from tests.v1.sample.reasoning_limits_strategies import Request, live_rows

FORCED_LOGIT = 1.0e9

THINK, END, TOOL, SO, FAR, TURN, WORD = range(1, 8)
VOCAB_SIZE = 16
PLAIN = Markers([THINK], [END], [END], [[TOOL]], [TURN])
PHRASE_FIRST = Markers([THINK], [SO, FAR, END], [END])
PHRASE_LAST = Markers([THINK], [END, SO, FAR], [END])


def request_of(
    markers: Markers,
    prompt: list[int],
    output: list[int] | None = None,
    budget: int | None = None,
    close_len: int | None = None,
) -> Request:
    """A request whose model says the same word for ever."""
    return Request(
        markers, prompt, [WORD], budget, close_len, output=list(output or [])
    )


class SlotBatch:
    """The request slots of a model runner in front of a state."""

    context_cls: ClassVar[Any] = SimpleNamespace
    device: ClassVar[torch.device] = torch.device("cpu")

    def __init__(self, req_states: Any, state: Any, vocab_size: int) -> None:
        self.req_states = req_states
        self.state = state
        self.vocab_size = vocab_size
        self.slots: dict[int, Request] = {}

    def store(self, slot: int, request: Request) -> None:
        """Give the request states a request that starts or resumes."""
        raise NotImplementedError

    def commit(self) -> None:
        """Write what the requests have sampled since, as after each step."""
        raise NotImplementedError

    def apply_staged_writes(self) -> None:
        """Make new requests visible to the device, if there is one."""

    def add(self, request: Request, params: Any = None) -> bool:
        """Start or resume a request; what the state says to it."""
        slot = self.req_states.free_indices[-1]
        self.store(slot, request)
        self.slots[slot] = request
        return self.state.add_request(slot, params or request.params)

    def remove(self, request: Request) -> None:
        """Finish or preempt a request; its slot is free for another."""
        slot = self.slot_of(request)
        self.req_states.remove_request(str(slot))
        del self.slots[slot]

    @property
    def requests(self) -> list[Request]:
        return list(self.slots.values())

    def slot_of(self, request: Request) -> int:
        return next(i for i, other in self.slots.items() if other is request)

    def context(
        self,
        requests: Sequence[Request],
        drafts: Sequence[Sequence[int]] | None = None,
        num_not_computed: Sequence[int] | None = None,
    ) -> Any:
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
            return torch.tensor(values, dtype=dtype, device=self.device)

        return self.context_cls(
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
        columns = torch.arange(self.vocab_size, dtype=torch.float32, device=self.device)
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

    def hold_against_reference(
        self,
        waiting: list[Request],
        num_steps: int,
        num_spec_tokens: int,
        random: Random,
    ) -> None:
        """Run requests and compare each sampled position with the reference.

        Args:
            waiting: The requests, none of which has started.
            num_steps: Steps to run.
            num_spec_tokens: Drafts that a request can have in a step.
            random: Source of preemptions, slots, order, drafts and acceptances.

        """
        num_left: dict[int, int] = {}
        for _ in range(num_steps):
            # The scheduler: preempt, start or resume in any free slot.
            for request in self.requests:
                if random.random() < 0.1:
                    self.remove(request)
                    waiting.append(request)
            random.shuffle(self.req_states.free_indices)
            random.shuffle(waiting)
            while waiting and random.random() < 0.7:
                request = waiting.pop()
                self.add(request)
                self.added(request, random)
                num_tokens = len(request.prompt + request.output)
                num_left[id(request)] = random.choice([0, num_tokens // 2])
            self.apply_staged_writes()
            self.commit()

            scheduled = [r for r in self.requests if random.random() < 0.9]
            random.shuffle(scheduled)
            if not scheduled:
                continue
            lefts = [num_left[id(request)] for request in scheduled]
            drafts = [
                request.draft(0 if left else random.randint(0, num_spec_tokens), random)
                for request, left in zip(scheduled, lefts)
            ]
            forced = self.forced(scheduled, drafts, lefts)
            for request, ids, rows, left in zip(scheduled, drafts, forced, lefts):
                num_left[id(request)] = 0
                if left == 0:
                    for i, expected in live_rows(ids, request.expected(ids)):
                        assert rows[i] == expected
                    request.accept(ids, random)

    def hold_against_holder(
        self,
        requests: list[Request],
        num_steps: int,
        num_spec_tokens: int,
        random: Random,
    ) -> None:
        """Run requests here and in a holder of model runner V1; both force the same.

        Args:
            requests: The requests, none of which has started.
            num_steps: Steps to run.
            num_spec_tokens: Drafts that a request can have in a step.
            random: Source of drafts and acceptances.

        """
        # Skips the test where there is no model runner V1.
        from tests.v1.sample.thinking_budget_driver import HolderBatch

        holder = HolderBatch(requests[0].markers, num_spec_tokens)
        holder.update(add=requests)
        for request in requests:
            self.add(request)
        self.apply_staged_writes()

        for _ in range(num_steps):
            drafts = [
                request.draft(random.randint(0, num_spec_tokens), random)
                for request in requests
            ]
            for request, ids, v1_rows, v2_rows in zip(
                requests, drafts, holder.forced(drafts), self.forced(requests, drafts)
            ):
                for i, forced in live_rows(ids, v1_rows):
                    assert v2_rows[i] == forced
                request.accept(ids, random)
            self.commit()

    def added(self, request: Request, random: Random) -> None:
        """Called once a request of `hold_against_reference` was added."""
