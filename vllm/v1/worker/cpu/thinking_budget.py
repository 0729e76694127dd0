# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Model runner V2 for CPUs: forces the reasoning end where a limit is reached.

Carries the rules of `vllm.v1.sample.reasoning_limits` to the CPU's logits. A
request costs its share of one comparison of lengths a step until a limit could
fire. From then on its new tokens are read, each once, and each logits row is
judged by its own prefix: the committed tokens and the drafts before it.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch

from vllm.v1.sample.reasoning_limits import (
    FORCED_LOGIT,
    NEVER_DUE,
    LimitedRequest,
    ReasoningLimits,
    ReasoningMarkers,
    due_slots,
)

if TYPE_CHECKING:
    from vllm.config.reasoning import ReasoningConfig
    from vllm.sampling_params import SamplingParams
    from vllm.v1.worker.cpu.logits_processors import LogitsContext
    from vllm.v1.worker.cpu.states import CPURequestState


class CPUThinkingBudgetState:
    """Limits and block scans of the requests in model runner V2 for CPUs."""

    def __init__(
        self,
        req_states: "CPURequestState",
        reasoning_config: "ReasoningConfig | None",
    ) -> None:
        self.markers = ReasoningMarkers.from_config(reasoning_config)
        self.enabled = self.markers is not None
        self._all_token_ids = req_states.all_token_ids.numpy()
        self._prompt_len = req_states.prompt_len.numpy()
        self._total_len = req_states.total_len.numpy()
        # Requests that set a limit, by slot.
        self._requests: dict[int, LimitedRequest] = {}
        # [max_num_reqs] sequence length from which on a token could be forced.
        self.due_len = np.full(req_states.max_num_reqs, NEVER_DUE, dtype=np.int64)

    def add_request(self, req_idx: int, sampling_params: "SamplingParams") -> bool:
        """Set the limits of the request in a slot.

        Args:
            req_idx: The slot, which the request states hold the request in already.
            sampling_params: Its parameters.

        Returns:
            False: no step needs its logits processed for a limit, except those
            that `is_due` tells.

        """
        self._requests.pop(req_idx, None)
        self.due_len[req_idx] = NEVER_DUE
        limits = ReasoningLimits.from_params(sampling_params)
        if self.markers is not None and limits is not None:
            prompt = self._all_token_ids[req_idx, : self._prompt_len[req_idx]]
            request = LimitedRequest(self.markers, limits, prompt.tolist())
            self._requests[req_idx] = request
            self._read(req_idx)
        return False

    def _read(self, req_idx: int) -> None:
        """Read the new tokens of a limited request and see when it is due."""
        prompt_len = int(self._prompt_len[req_idx])
        request = self._requests[req_idx]
        # Slices of a memory view are sequences of Python's own integers.
        output_token_ids = memoryview(self._all_token_ids[req_idx])[prompt_len:]
        request.read(output_token_ids, int(self._total_len[req_idx]) - prompt_len)
        self.due_len[req_idx] = prompt_len + request.next_due_len

    def _due_slots(
        self, idx_mapping_np: np.ndarray, seq_lens_upper_bound_np: np.ndarray
    ) -> list[int]:
        """Slots of the batch with a limit that could force a token in this step."""
        # The lengths of a step leave out what a prefill in chunks has not reached.
        total_lens = self._total_len[idx_mapping_np]
        seq_lens = np.maximum(seq_lens_upper_bound_np[: len(total_lens)], total_lens)
        due = due_slots(self.due_len, idx_mapping_np, seq_lens)
        if len(due) > 0:
            # What was sampled since can have moved the limits away.
            for req_idx in due.tolist():
                self._read(req_idx)
            due = due_slots(self.due_len, idx_mapping_np, seq_lens)
        return due.tolist()

    def is_due(
        self, idx_mapping_np: np.ndarray, seq_lens_upper_bound_np: np.ndarray
    ) -> bool:
        """Whether a token of any request in the batch could be forced.

        Args:
            idx_mapping_np: Slots of the batch [num_reqs].
            seq_lens_upper_bound_np: Tokens of each sequence at most, drafts
                included [num_reqs].

        """
        return bool(self._due_slots(idx_mapping_np, seq_lens_upper_bound_np))

    def apply(self, logits: torch.Tensor, ctx: "LogitsContext") -> None:
        """Raise the logit of each forced token above all others, in place.

        Args:
            logits: Logits [num_rows, vocab_size].
            ctx: Layout of the batch.

        """
        due = self._due_slots(ctx.idx_mapping_np, ctx.seq_lens_upper_bound_np)
        if not due:
            return
        # [num_rows] the slot of each row, -1 for padding.
        slots = ctx.expanded_idx_mapping.numpy()
        input_ids = ctx.input_ids.numpy()
        forced_rows: list[int] = []
        forced_token_ids: list[int] = []
        for req_idx in due:
            # The first row's input is the last committed token; drafts follow.
            rows = np.flatnonzero(slots == req_idx)
            drafts = input_ids[rows[1:]].tolist()
            forced = self._requests[req_idx].forced_tokens(drafts)
            forced_rows += rows[list(forced)].tolist()
            forced_token_ids += forced.values()
        if forced_rows:
            logits[forced_rows, forced_token_ids] = FORCED_LOGIT
