# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Drives a `ThinkingBudgetStateHolder` as input batch and samplers do.

A test that imports this is skipped where vLLM has no model runner V1.
"""

from collections.abc import Sequence

import pytest
import torch

from tests.v1.sample.reasoning_limits_reference import Markers
from tests.v1.sample.reasoning_limits_strategies import VOCAB_SIZE, Request

pytest.importorskip(
    "vllm.v1.sample.thinking_budget_state",
    reason="this vLLM has no model runner V1",
)

from vllm.v1.sample.logits_processor.interface import MoveDirectionality
from vllm.v1.sample.logits_processor.state import BatchUpdateBuilder
from vllm.v1.sample.thinking_budget_state import (
    maybe_create_thinking_budget_state_holder,
)


class HolderBatch:
    """A persistent batch of requests in front of a holder."""

    def __init__(
        self,
        markers: Markers,
        num_spec_tokens: int = 0,
        max_num_seqs: int = 8,
        vocab_size: int = VOCAB_SIZE,
    ) -> None:
        self.requests: list[Request] = []
        self.num_spec_tokens = num_spec_tokens
        self.vocab_size = vocab_size
        holder = maybe_create_thinking_budget_state_holder(
            markers.config, max_num_seqs, num_spec_tokens, torch.device("cpu"), False
        )
        assert holder is not None
        self.holder = holder

    def update(
        self,
        remove: Sequence[Request] = (),
        add: Sequence[Request] = (),
        swaps: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Remove, add, close the gaps, then swap: the order of the model runner."""
        builder = BatchUpdateBuilder()
        slots: list[Request | None] = list(self.requests)
        for request in remove:
            index = _index(slots, request)
            builder.removed_append(index)
            slots[index] = None
        for request in add:
            index = builder.pop_removed()
            if index is None:
                index = len(slots)
                slots.append(None)
            slots[index] = request
            builder.added.append(
                (index, request.params, request.prompt, request.output)
            )
        while any(slots) and (gap := builder.peek_removed()) is not None:
            last = max(i for i, request in enumerate(slots) if request)
            if gap > last:
                break
            builder.pop_removed()
            builder.moved.append((last, gap, MoveDirectionality.UNIDIRECTIONAL))
            slots[gap], slots[last] = slots[last], None
        self.requests = [request for request in slots if request]
        for i, j in swaps:
            builder.moved.append((i, j, MoveDirectionality.SWAP))
            order = self.requests
            order[i], order[j] = order[j], order[i]
        self.holder.sync_batch(builder.get_and_reset(len(self.requests)))

    def forced(
        self, drafts: Sequence[list[int]] | None = None
    ) -> list[list[int | None]]:
        """Sample once; what is forced at each request's drafts and after them."""
        num_reqs = len(self.requests)
        spec_token_ids = [list(ids) for ids in drafts or [[]] * num_reqs]
        if not self.holder.has_tracked_requests():
            return [[None] * (len(ids) + 1) for ids in spec_token_ids]

        # The sampler, for the next or the bonus tokens.
        has_drafts = any(spec_token_ids)
        self.holder.update_state(
            [request.output for request in self.requests],
            spec_token_ids,
            repeat_indices=None,
        )
        last = self._apply(num_reqs, has_drafts, spec_token_ids)
        if not has_drafts:
            return [[token] for token in last]
        # The rejection sampler, for the target's tokens at the drafts.
        num_drafts = sum(map(len, spec_token_ids))
        targets = iter(self._apply(num_drafts, False, spec_token_ids))
        return [
            [next(targets) for _ in ids] + [token]
            for ids, token in zip(spec_token_ids, last)
        ]

    def _apply(
        self, num_rows: int, predict_bonus_token: bool, spec_token_ids: list[list[int]]
    ) -> list[int | None]:
        columns = torch.arange(self.vocab_size, dtype=torch.float32)
        logits = (columns * 7 % self.vocab_size).repeat(num_rows, 1)
        logits[:, -1] = float("-inf")
        before = logits.clone()
        after = self.holder.apply_to_logits(logits, predict_bonus_token, spec_token_ids)
        forced: list[int | None] = [None] * num_rows
        for row, token in (after != before).nonzero().tolist():
            assert forced[row] is None, "two logits of a row were changed"
            assert after[row].softmax(-1)[token] == 1.0, "not forced for certain"
            forced[row] = token
        return forced


def _index(slots: Sequence[Request | None], request: Request) -> int:
    return next(i for i, slot in enumerate(slots) if slot is request)
