# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Model runner V2: forces the reasoning end where one of two limits is reached.

Carries the rules of `vllm.v1.sample.reasoning_limits` to the device. The host
knows the earliest sequence length at which a token of a request could be forced;
until then nothing is launched. From then on one kernel reads each token of the
request once, keeps where the block stands, and judges each logits row by the
row's own prefix: the committed tokens and the drafts before it.

On the device lengths and positions count all tokens, prompt and output.
"""

from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from vllm.triton_utils import tl, triton
from vllm.v1.sample.reasoning_limits import (
    FORCED_LOGIT,
    NEVER_DUE,
    NO_LIMIT,
    ReasoningBlockScan,
    ReasoningLimits,
    ReasoningMarkers,
    due_slots,
)
from vllm.v1.worker.gpu.buffer_utils import UvaBackedTensor

if TYPE_CHECKING:
    from vllm.config.reasoning import ReasoningConfig
    from vllm.sampling_params import SamplingParams
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext
    from vllm.v1.worker.gpu.states import RequestState

# Tokens that the kernel reads at once.
_SCAN_BLOCK = 1024

# Columns of `request_limits`. Each request has its own number, so that a scan
# of the slot's previous request is not taken for its own.
_BUDGET = tl.constexpr(0)
_CLOSE_LEN = tl.constexpr(1)
_CLOSE_NEEDS_START_MARKER = tl.constexpr(2)
_REQUEST_NO = tl.constexpr(3)
_UNLIMITED = (NO_LIMIT, NO_LIMIT, 0, 0)

# Columns of `block_scan`: the request that was scanned, the tokens read, and
# where they stand in their block (see `ReasoningBlockScan`).
_SCANNED_NO = tl.constexpr(0)
_SCAN_POS = tl.constexpr(1)
_TURN_BEGIN = tl.constexpr(2)
_IS_INSIDE = tl.constexpr(3)
_HAS_START_MARKER = tl.constexpr(4)
_BLOCK_START = tl.constexpr(5)
_EXIT_BEGIN = tl.constexpr(6)
_EXIT_END = tl.constexpr(7)
_NUM_SCAN_FIELDS = 8

_NO_LIMIT = tl.constexpr(NO_LIMIT)
_FORCED_LOGIT = tl.constexpr(FORCED_LOGIT)


class ThinkingBudgetState:
    """Limits and block scans of the requests in model runner V2."""

    def __init__(
        self,
        req_states: "RequestState",
        reasoning_config: "ReasoningConfig | None",
    ) -> None:
        self.req_states = req_states
        markers = ReasoningMarkers.from_config(reasoning_config)
        self.enabled = markers is not None
        if markers is None:
            return

        self.markers = markers
        max_num_reqs, device = req_states.max_num_reqs, req_states.device
        # [max_num_reqs] sequence length from which on a token could be forced.
        self.due_len = np.full(max_num_reqs, NEVER_DUE, dtype=np.int64)
        self.request_limits = UvaBackedTensor(
            (max_num_reqs, len(_UNLIMITED)), dtype=torch.int32
        )
        self.request_limits.np[:] = _UNLIMITED
        self.request_limits.copy_to_uva()
        self._limits_dirty = False
        self._num_limited_requests = 0
        self.block_scan = torch.zeros(
            (max_num_reqs, _NUM_SCAN_FIELDS), dtype=torch.int32, device=device
        )
        # [max_num_reqs] tokens read of each sequence.
        self.cached_scan_pos = self.block_scan[:, _SCAN_POS.value]

        # The longest of several exits that end on the same token is read last.
        exits = sorted(markers.exits, key=len)
        self._forced_end_row = 1 + exits.index(markers.forced_end)
        self._natural_end_row = 1 + exits.index(markers.natural_end)
        self.marker_table = _marker_table([markers.start, *exits], device)
        self.turn_boundaries = torch.tensor(
            markers.turn_boundaries, dtype=torch.int32, device=device
        )

    def add_request(self, req_idx: int, sampling_params: "SamplingParams") -> bool:
        """Set the limits of the request in a slot.

        Args:
            req_idx: The slot, which `req_states` holds the request in already.
            sampling_params: Its parameters.

        Returns:
            Whether a token could be forced from the first one on. A request
            whose limits come later is asked for with `is_due`.

        """
        if not self.enabled:
            return False
        limits = ReasoningLimits.from_params(sampling_params)
        if limits is None:
            self.due_len[req_idx] = NEVER_DUE
            row = _UNLIMITED
        else:
            self.due_len[req_idx] = self._first_due_len(req_idx, limits)
            self._num_limited_requests += 1
            request_no = self._num_limited_requests % NO_LIMIT
            row = (
                limits.thinking_token_budget,
                limits.close_len,
                int(limits.close_needs_start_marker),
                request_no,
            )
        if tuple(self.request_limits.np[req_idx]) != row:
            self.request_limits.np[req_idx] = row
            self._limits_dirty = True
        return bool(self.due_len[req_idx] <= self.req_states.prefill_len.np[req_idx])

    def _first_due_len(self, req_idx: int, limits: ReasoningLimits) -> int:
        """Sequence length from which on a token of the request could be forced."""
        prompt_len = int(self.req_states.prompt_len.np[req_idx])
        prefill_len = int(self.req_states.prefill_len.np[req_idx])
        if limits.thinking_token_budget == NO_LIMIT:
            return max(prompt_len + limits.close_len, prefill_len)
        token_ids = _staged_token_ids(self.req_states, req_idx)
        if token_ids is None:
            return 0
        scan = ReasoningBlockScan(self.markers, token_ids[:prompt_len])
        scan.extend(token_ids[prompt_len:])
        return prompt_len + scan.next_due_len(limits)

    def apply_staged_writes(self) -> None:
        """Make the limits of new requests visible to the device."""
        if self.enabled and self._limits_dirty:
            self.request_limits.copy_to_uva()
            self._limits_dirty = False

    def is_due(
        self, idx_mapping_np: np.ndarray, seq_lens_upper_bound_np: np.ndarray
    ) -> bool:
        """Whether a token of any request in the batch could be forced.

        Args:
            idx_mapping_np: Slots of the batch [num_reqs].
            seq_lens_upper_bound_np: Tokens of each sequence at most, drafts
                included [num_reqs, or more where the batch is padded].

        """
        if not self.enabled:
            return False
        due = due_slots(self.due_len, idx_mapping_np, seq_lens_upper_bound_np)
        return len(due) > 0

    def apply(self, logits: torch.Tensor, ctx: "LogitsContext") -> None:
        """Raise the logit of each forced token above all others, in place.

        Args:
            logits: Logits [num_rows, vocab_size].
            ctx: Layout of the batch.

        """
        if not self.is_due(ctx.idx_mapping_np, ctx.seq_lens_upper_bound_np):
            return
        apply_thinking_budget(
            logits,
            ctx.expanded_idx_mapping,
            ctx.expanded_local_pos,
            ctx.input_ids,
            self.req_states.all_token_ids.gpu,
            self.req_states.prompt_len.gpu,
            self.req_states.total_len.gpu,
            self.request_limits.gpu,
            self.block_scan,
            self.marker_table,
            self.turn_boundaries,
            self._forced_end_row,
            self._natural_end_row,
            self.markers.starts_inside,
        )


def _marker_table(markers: list[list[int]], device: torch.device) -> torch.Tensor:
    """Markers as rows of length and tokens [num_markers, 1 + longest]."""
    width = 1 + max(map(len, markers))
    rows = [[len(m), *m] + [-1] * (width - 1 - len(m)) for m in markers]
    return torch.tensor(rows, dtype=torch.int32, device=device)


def _staged_token_ids(req_states: "RequestState", req_idx: int) -> list[int] | None:
    """Tokens of a request that is added in this step, while the host has them.

    Returns:
        The tokens; None when they are on the device already.

    """
    staged = req_states.all_token_ids
    if req_idx not in staged._staged_write_indices:
        return None
    ends = staged._staged_write_cu_lens
    i = len(ends) - 1 - staged._staged_write_indices[::-1].index(req_idx)
    begin = ends[i - 1] if i else 0
    return cast(list[int], staged._staged_write_contents[begin : ends[i]])


@triton.jit
def _load_tokens(committed_ptr, draft_ptr, total_len, pos, mask):
    """Tokens of a sequence: the committed ones, then this step's drafts."""
    is_draft = pos >= total_len
    committed = tl.load(committed_ptr + pos, mask=mask & (pos < total_len), other=-1)
    draft = tl.load(draft_ptr + (pos - total_len), mask=mask & is_draft, other=-1)
    return tl.where(is_draft, draft.to(tl.int32), committed)


@triton.jit
def _ends_on(marker_ptr, token, pos, begin, committed_ptr, draft_ptr, total_len):
    """Whether a marker that lies after ``begin`` ends on each token."""
    marker_len = tl.load(marker_ptr)
    marker_begin = pos + 1 - marker_len
    match = (token == tl.load(marker_ptr + marker_len)) & (marker_begin >= begin)
    for i in range(0, marker_len - 1):
        # Only where the rest matches so far is anything loaded.
        actual = _load_tokens(
            committed_ptr, draft_ptr, total_len, marker_begin + i, match
        )
        match = match & (actual == tl.load(marker_ptr + 1 + i))
    return match


@triton.jit
def _num_begun(
    marker_ptr,
    seq_len,
    max_num_tokens,
    committed_ptr,
    draft_ptr,
    total_len,
    MARKER_BLOCK: tl.constexpr,
):
    """Length of the longest proper prefix of a marker that the tokens end with."""
    num_begun = 1 + tl.arange(0, MARKER_BLOCK)
    marker_len = tl.load(marker_ptr)
    match = (num_begun < marker_len) & (num_begun <= max_num_tokens)
    for i in range(0, marker_len - 1):
        is_begun = match & (i < num_begun)
        actual = _load_tokens(
            committed_ptr, draft_ptr, total_len, seq_len - num_begun + i, is_begun
        )
        match = match & ((actual == tl.load(marker_ptr + 1 + i)) | (i >= num_begun))
    return tl.max(tl.where(match, num_begun, 0), axis=0)


@triton.jit(do_not_specialize=["num_rows"])
def _thinking_budget_kernel(
    logits_ptr,  # [num_rows, vocab_size]
    logits_stride,
    num_rows,
    expanded_idx_mapping_ptr,  # [num_rows]
    expanded_local_pos_ptr,  # [num_rows]
    input_ids_ptr,  # [num_rows]
    all_token_ids_ptr,  # [max_num_reqs, max_model_len]
    all_token_ids_stride,
    prompt_len_ptr,  # [max_num_reqs]
    total_len_ptr,  # [max_num_reqs]
    request_limits_ptr,  # [max_num_reqs, NUM_LIMITS]
    block_scan_ptr,  # [max_num_reqs, NUM_SCAN_FIELDS]
    marker_table_ptr,  # [1 + NUM_EXITS, marker_stride]
    marker_stride,
    turn_boundaries_ptr,  # [NUM_TURN_BOUNDARIES]
    NUM_LIMITS: tl.constexpr,
    NUM_SCAN_FIELDS: tl.constexpr,
    NUM_EXITS: tl.constexpr,
    NUM_TURN_BOUNDARIES: tl.constexpr,
    FORCED_END_ROW: tl.constexpr,
    NATURAL_END_ROW: tl.constexpr,
    STARTS_INSIDE: tl.constexpr,
    MARKER_BLOCK: tl.constexpr,
    SCAN_BLOCK: tl.constexpr,
):
    # The program of a request's first row goes through all of its rows, so that
    # each draft is read once and extends what was read before it.
    first_row = tl.program_id(0).to(tl.int64)
    if tl.load(expanded_local_pos_ptr + first_row) != 0:
        return
    req_idx = tl.load(expanded_idx_mapping_ptr + first_row).to(tl.int64)
    if req_idx < 0:
        return
    limits_ptr = request_limits_ptr + req_idx * NUM_LIMITS
    budget = tl.load(limits_ptr + _BUDGET)
    close_len = tl.load(limits_ptr + _CLOSE_LEN)
    needs_start_marker = tl.load(limits_ptr + _CLOSE_NEEDS_START_MARKER) != 0
    request_no = tl.load(limits_ptr + _REQUEST_NO)
    if (budget == _NO_LIMIT) & (close_len == _NO_LIMIT):
        return

    prompt_len = tl.load(prompt_len_ptr + req_idx)
    total_len = tl.load(total_len_ptr + req_idx)
    committed_ptr = all_token_ids_ptr + req_idx * all_token_ids_stride
    # Row 0 holds the last committed token; the drafts follow it.
    draft_ptr = input_ids_ptr + first_row + 1

    scan_ptr = block_scan_ptr + req_idx * NUM_SCAN_FIELDS
    scan_pos = tl.load(scan_ptr + _SCAN_POS)
    goes_on = (tl.load(scan_ptr + _SCANNED_NO) == request_no) & (scan_pos <= total_len)
    scan_pos = tl.where(goes_on, scan_pos, 0)
    turn_begin = tl.where(goes_on, tl.load(scan_ptr + _TURN_BEGIN), 0)
    is_inside = tl.where(goes_on, tl.load(scan_ptr + _IS_INSIDE) != 0, STARTS_INSIDE)
    has_start_marker = goes_on & (tl.load(scan_ptr + _HAS_START_MARKER) != 0)
    block_start = tl.where(goes_on, tl.load(scan_ptr + _BLOCK_START), prompt_len)
    exit_begin = tl.where(goes_on, tl.load(scan_ptr + _EXIT_BEGIN), prompt_len)
    exit_end = tl.where(goes_on, tl.load(scan_ptr + _EXIT_END), prompt_len)

    row = first_row
    is_own_row = row == first_row
    while is_own_row:
        seq_len = total_len + (row - first_row).to(tl.int32)

        for block_begin in range(scan_pos, seq_len, SCAN_BLOCK):
            pos = block_begin + tl.arange(0, SCAN_BLOCK)
            is_read = pos < seq_len
            token = _load_tokens(committed_ptr, draft_ptr, total_len, pos, is_read)

            if NUM_TURN_BOUNDARIES > 0:
                is_boundary = pos < 0
                for i in range(0, NUM_TURN_BOUNDARIES):
                    is_boundary |= token == tl.load(turn_boundaries_ptr + i)
                is_boundary &= pos < prompt_len
                boundary_end = tl.max(tl.where(is_boundary, pos + 1, 0), axis=0)
                if boundary_end > 0:
                    # What came before this turn opened no block.
                    turn_begin = boundary_end
                    is_inside = tl.where(boundary_end > 0, STARTS_INSIDE, is_inside)
                    has_start_marker = has_start_marker & (boundary_end <= 0)
                    block_start = prompt_len
                    exit_begin = prompt_len
                    exit_end = prompt_len

            is_start = is_read & _ends_on(
                marker_table_ptr,
                token,
                pos,
                turn_begin,
                committed_ptr,
                draft_ptr,
                total_len,
            )
            # [SCAN_BLOCK] length of the longest exit that ends on each token.
            exit_len = tl.zeros((SCAN_BLOCK,), dtype=tl.int32)
            for i in range(1, NUM_EXITS + 1):
                exit_ptr = marker_table_ptr + i * marker_stride
                is_exit = is_read & _ends_on(
                    exit_ptr,
                    token,
                    pos,
                    turn_begin,
                    committed_ptr,
                    draft_ptr,
                    total_len,
                )
                exit_len = tl.where(is_exit, tl.load(exit_ptr), exit_len)

            # Go from marker to marker: the first start outside, the first exit
            # inside. An exit that ends where a start does is read after it.
            cursor = block_begin
            more_markers = tl.max((is_start | (exit_len > 0)).to(tl.int32), axis=0) > 0
            while more_markers:
                start = tl.min(tl.where(is_start & (pos >= cursor), pos, seq_len))
                # A block open from the beginning is counted from its first start
                # marker.
                is_counted = is_inside & has_start_marker
                if (is_counted == 0) & (start < seq_len):
                    # No exit before the start of a block leaves it.
                    cursor = tl.where(is_inside, cursor, start)
                    is_inside = is_inside | (start < seq_len)
                    has_start_marker = has_start_marker | (start < seq_len)
                    block_start = start + 1
                leave = tl.min(tl.where((exit_len > 0) & (pos >= cursor), pos, seq_len))
                more_markers = is_inside & (leave < seq_len)
                if more_markers:
                    is_inside = is_inside & (leave >= seq_len)
                    exit_end = leave + 1
                    length = tl.sum(tl.where(pos == leave, exit_len, 0), axis=0)
                    exit_begin = exit_end - length
                    cursor = exit_end
        scan_pos = seq_len

        if row == first_row:
            # The drafts may be rejected: only what is committed is kept.
            tl.store(scan_ptr + _SCANNED_NO, request_no)
            tl.store(scan_ptr + _SCAN_POS, scan_pos)
            tl.store(scan_ptr + _TURN_BEGIN, turn_begin)
            tl.store(scan_ptr + _IS_INSIDE, is_inside.to(tl.int32))
            tl.store(scan_ptr + _HAS_START_MARKER, has_start_marker.to(tl.int32))
            tl.store(scan_ptr + _BLOCK_START, block_start)
            tl.store(scan_ptr + _EXIT_BEGIN, exit_begin)
            tl.store(scan_ptr + _EXIT_END, exit_end)

        # Differences of lengths cannot overflow; a length plus a limit could.
        # The close of a block that was left was forced if the block was due
        # when the last token of the exit was chosen.
        judged_len = tl.where(is_inside, seq_len, exit_end - 1)
        is_reserve_due = (judged_len - prompt_len >= close_len) & (
            has_start_marker | (needs_start_marker == 0)
        )
        is_due = is_reserve_due | (judged_len - block_start >= budget)
        if is_due & (is_inside | (exit_end > prompt_len)):
            forced_end_ptr = marker_table_ptr + FORCED_END_ROW * marker_stride
            num_forced = _num_begun(
                forced_end_ptr,
                seq_len,
                seq_len - block_start,
                committed_ptr,
                draft_ptr,
                total_len,
                MARKER_BLOCK,
            )
            forced_ptr = forced_end_ptr + 1 + num_forced
            if FORCED_END_ROW != NATURAL_END_ROW:
                # A natural end that the model has begun by itself is continued.
                natural_end_ptr = marker_table_ptr + NATURAL_END_ROW * marker_stride
                num_natural = _num_begun(
                    natural_end_ptr,
                    seq_len,
                    seq_len - block_start,
                    committed_ptr,
                    draft_ptr,
                    total_len,
                    MARKER_BLOCK,
                )
                if is_inside & (num_natural > num_forced):
                    forced_ptr = natural_end_ptr + 1 + num_natural
            # The forced end may hold an exit and go on after it.
            is_window = (num_forced > 0) & (seq_len - num_forced <= exit_begin)
            if is_inside | is_window:
                forced_token = tl.load(forced_ptr)
                tl.store(logits_ptr + row * logits_stride + forced_token, _FORCED_LOGIT)

        row += 1
        is_row = row < num_rows
        next_req_idx = tl.load(expanded_idx_mapping_ptr + row, mask=is_row, other=-1)
        next_pos = tl.load(expanded_local_pos_ptr + row, mask=is_row, other=0)
        is_own_row = (next_req_idx == req_idx) & (next_pos == row - first_row)


def apply_thinking_budget(
    logits: torch.Tensor,
    expanded_idx_mapping: torch.Tensor,
    expanded_local_pos: torch.Tensor,
    input_ids: torch.Tensor,
    all_token_ids: torch.Tensor,
    prompt_len: torch.Tensor,
    total_len: torch.Tensor,
    request_limits: torch.Tensor,
    block_scan: torch.Tensor,
    marker_table: torch.Tensor,
    turn_boundaries: torch.Tensor,
    forced_end_row: int,
    natural_end_row: int,
    starts_inside: bool,
) -> None:
    """Force tokens where a limit is reached, and advance the block scans.

    Args:
        logits: Logits [num_rows, vocab_size], changed in place.
        expanded_idx_mapping: Slot of each row [num_rows].
        expanded_local_pos: Place of each row in its request [num_rows].
        input_ids: Token fed to the model at each row [num_rows].
        all_token_ids: Committed tokens [max_num_reqs, max_model_len].
        prompt_len: Tokens of each prompt [max_num_reqs].
        total_len: Committed tokens of each sequence [max_num_reqs].
        request_limits: Budget, output length of the close, whether that needs a
            start marker, and number of each request [max_num_reqs, 4].
        block_scan: Where each scan stands [max_num_reqs, 8], changed in place.
        marker_table: Length and tokens of the start marker, then of each exit
            from short to long [1 + num_exits, 1 + longest].
        turn_boundaries: Tokens that begin a turn [num_turn_boundaries].
        forced_end_row: Row of the forced end in the table.
        natural_end_row: Row of the natural end in the table.
        starts_inside: Whether output is reasoning before any start marker.

    """
    num_rows = logits.shape[0]
    _thinking_budget_kernel[(num_rows,)](
        logits,
        logits.stride(0),
        num_rows,
        expanded_idx_mapping,
        expanded_local_pos,
        input_ids,
        all_token_ids,
        all_token_ids.stride(0),
        prompt_len,
        total_len,
        request_limits,
        block_scan,
        marker_table,
        marker_table.stride(0),
        turn_boundaries,
        NUM_LIMITS=request_limits.shape[1],
        NUM_SCAN_FIELDS=block_scan.shape[1],
        NUM_EXITS=marker_table.shape[0] - 1,
        NUM_TURN_BOUNDARIES=turn_boundaries.shape[0],
        FORCED_END_ROW=forced_end_row,
        NATURAL_END_ROW=natural_end_row,
        STARTS_INSIDE=starts_inside,
        MARKER_BLOCK=triton.next_power_of_2(marker_table.shape[1] - 1),
        SCAN_BLOCK=_SCAN_BLOCK,
    )
