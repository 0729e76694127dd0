# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Closes reasoning blocks at sampling time, model runner V1.

What is forced at a position is derived from tokens, markers and the request's
limits (see `vllm.v1.sample.reasoning_limits`). A request costs one comparison
of lengths a step until a limit could fire, and its tokens are read once.
"""

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch

from vllm.utils.torch_utils import async_tensor_h2d
from vllm.v1.sample.logits_processor.interface import (
    BatchUpdate,
    MoveDirectionality,
)
from vllm.v1.sample.reasoning_limits import (
    FORCED_LOGIT,
    LimitedRequest,
    ReasoningLimits,
    ReasoningMarkers,
)

if TYPE_CHECKING:
    from vllm.config.reasoning import ReasoningConfig

_PLACEHOLDER_TOKEN_ID = -1


def maybe_create_thinking_budget_state_holder(
    reasoning_config: "ReasoningConfig | None",
    max_num_seqs: int,
    num_spec_tokens: int,
    device: torch.device,
    is_pin_memory: bool,
) -> "ThinkingBudgetStateHolder | None":
    """Create the holder, or None when the engine has no reasoning config."""
    if reasoning_config is None:
        return None
    return ThinkingBudgetStateHolder(
        reasoning_config, max_num_seqs, num_spec_tokens, device, is_pin_memory
    )


class _TrackedRequest(LimitedRequest):
    """A request of the batch that sets a limit."""

    forced: dict[int, int]
    """What this step forces: draft offset (the bonus token last) to token."""

    def __getitem__(self, name: str) -> Any:
        return getattr(self.limits, name)

    def read_sampled(self, output_token_ids: list[int]) -> None:
        """Read the output up to the tokens that are not known yet."""
        num_tokens = len(output_token_ids)
        if num_tokens and output_token_ids[-1] == _PLACEHOLDER_TOKEN_ID:
            num_tokens = output_token_ids.index(_PLACEHOLDER_TOKEN_ID)
        self.read(output_token_ids, num_tokens)

    def idle_lens(self, num_spec_tokens: int) -> tuple[int, int]:
        """Output lengths, from and to, at which no position of a step can be due.

        A shorter output is one whose tokens were taken back.
        """
        return self.scan.num_tokens, self.next_due_len - num_spec_tokens


class ThinkingBudgetStateHolder:
    """Forces the reasoning end of the requests in a batch that are due.

    A request is tracked when it sets ``thinking_token_budget`` or carries a
    resolved ``reasoning_answer_reserve``. Each sampling step calls
    `update_state`, then `apply_to_logits` once for each block of logits.

    Args:
        reasoning_config: Source of the markers that open and leave a block.
        max_num_seqs: Requests a batch can hold.
        num_spec_tokens: Draft tokens a request can have in a step.
        device: Device of the logits.
        is_pin_memory: Unused; kept for parity with logits processors.

    """

    def __init__(
        self,
        reasoning_config: "ReasoningConfig | None",
        max_num_seqs: int,
        num_spec_tokens: int,
        device: torch.device,
        is_pin_memory: bool,
    ):
        del max_num_seqs, is_pin_memory
        self.is_enabled = reasoning_config is not None
        self.num_spec_tokens = num_spec_tokens
        self.in_spec_mode = num_spec_tokens > 0
        self.device = device
        self.markers = ReasoningMarkers.from_config(reasoning_config)
        self.think_start_token_ids = self.markers.start if self.markers else []
        self.think_end_token_ids = self.markers.forced_end if self.markers else []

        # Tracked requests by batch index.
        self._state: dict[int, _TrackedRequest] = {}
        # Output lengths that need no look at a tracked request: from the tokens
        # it was read up to, to where a limit could fire.
        self._idle_lens: dict[int, tuple[int, int]] = {}
        # Tracked requests with a forced token in the current step.
        self._due: list[int] = []

    def has_tracked_requests(self) -> bool:
        """Whether a request of the batch sets a limit."""
        return bool(self._state)

    def sync_batch(self, batch_update: BatchUpdate | None) -> None:
        """Follow the requests that left, joined and moved within the batch."""
        if self.markers is None or not batch_update:
            return
        state = self._state
        for index in batch_update.removed:
            state.pop(index, None)

        for index, params, prompt_token_ids, output_token_ids in batch_update.added:
            state.pop(index, None)
            if (limits := ReasoningLimits.from_params(params)) is not None:
                request = _TrackedRequest(self.markers, limits, prompt_token_ids)
                request.read_sampled(output_token_ids)
                state[index] = request

        for source, target, direction in batch_update.moved:
            moved, replaced = state.pop(source, None), state.pop(target, None)
            if moved is not None:
                state[target] = moved
            if replaced is not None and direction == MoveDirectionality.SWAP:
                state[source] = replaced

        self._due.clear()
        self._idle_lens = {
            index: request.idle_lens(self.num_spec_tokens)
            for index, request in state.items()
        }

    def update_state(
        self,
        output_token_ids: list[list[int]],
        spec_token_ids: list[list[int]] | None,
        repeat_indices: torch.Tensor | None = None,
    ) -> None:
        """Find what this step has to force.

        Args:
            output_token_ids: Output tokens of each batch row. A tail of -1
                stands for tokens that are not known yet.
            spec_token_ids: Draft tokens of each request, or None.
            repeat_indices: Request of each row of ``output_token_ids`` when
                rows are repeated; the last row of a request counts.
                Shape: [num_rows].

        """
        self._due.clear()
        if not self._state:
            return
        rows = output_token_ids
        if repeat_indices is not None:
            last_rows = dict(zip(repeat_indices.tolist(), output_token_ids))
            rows = [last_rows.get(i, []) for i in range(max(last_rows, default=-1) + 1)]

        for index in self._rows_to_check(rows):
            if repeat_indices is not None and index not in last_rows:
                continue
            request = self._state[index]
            request.read_sampled(rows[index])
            drafts = _row(spec_token_ids, index) if self.in_spec_mode else []
            request.forced = request.forced_tokens(drafts)
            self._idle_lens[index] = request.idle_lens(self.num_spec_tokens)
            if request.forced:
                self._due.append(index)

    def is_due(self, output_token_ids: list[list[int]]) -> bool:
        """Whether a limit could fire in a step with outputs of these lengths."""
        return bool(self._rows_to_check(output_token_ids))

    def _rows_to_check(self, rows: list[list[int]]) -> list[int]:
        num_rows = len(rows)
        return [
            index
            for index, (idle_from, idle_to) in self._idle_lens.items()
            if index < num_rows and not idle_from <= len(rows[index]) < idle_to
        ]

    def apply_to_logits(
        self,
        logits: torch.Tensor,
        predict_bonus_token: bool,
        spec_token_ids: list[list[int]] | None,
    ) -> torch.Tensor:
        """Force the reasoning end in the rows that are due.

        Args:
            logits: Changed in place. One row a request, or, with drafts and
                for the target model's verdict on them, one row a draft.
                Shape: [num_rows, vocab_size].
            predict_bonus_token: The rows stand for the token after each
                request's drafts.
            spec_token_ids: Draft tokens of each request, or None.

        Returns:
            The same logits.

        """
        if not self._due:
            return logits
        num_drafts: list[int] = []
        if self.in_spec_mode:
            num_drafts = [len(ids) for ids in spec_token_ids or ()]
        first_rows = [0, *accumulate(num_drafts)]
        has_draft_rows = not predict_bonus_token and first_rows[-1] > 0

        forced_rows: list[int] = []
        forced_token_ids: list[int] = []
        for index in self._due:
            bonus_offset = num_drafts[index] if index < len(num_drafts) else 0
            for offset, token_id in self._state[index].forced.items():
                # The draft rows and the row after them come in separate calls.
                if has_draft_rows == (offset == bonus_offset):
                    continue
                row = first_rows[index] + offset if has_draft_rows else index
                if row < logits.shape[0]:
                    forced_rows.append(row)
                    forced_token_ids.append(token_id)
        if forced_rows:
            _force(logits, forced_rows, forced_token_ids)
        return logits


def _row(rows: list[list[int]] | None, index: int) -> list[int]:
    return rows[index] if rows is not None and index < len(rows) else []


def _force(logits: torch.Tensor, rows: list[int], token_ids: list[int]) -> None:
    """Raise one logit in each of some rows, without a device-host sync."""
    if logits.is_contiguous():
        # A flat index: two-dimensional writes have faulted on ROCm.
        vocab_size = logits.shape[1]
        flat = [row * vocab_size + token for row, token in zip(rows, token_ids)]
        index = async_tensor_h2d(flat, dtype=torch.long, device=logits.device)
        logits.view(-1).index_fill_(0, index, FORCED_LOGIT)
        return
    indices = tuple(
        async_tensor_h2d(ids, dtype=torch.long, device=logits.device)
        for ids in (rows, token_ids)
    )
    logits.index_put_(indices, logits.new_full((len(rows),), FORCED_LOGIT))
