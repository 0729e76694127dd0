# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The rules by which an open reasoning block is closed, shared by both runners.

Two limits close a block: ``thinking_token_budget`` (tokens of one block) and
``reasoning_answer_reserve`` (output tokens kept for the answer). This module
holds their arithmetic and, for the host, the matching of reasoning markers.
Model runner V2 repeats the matching in its Triton kernel and nothing else.

Lengths and positions count output tokens: position ``k`` is the output token
chosen when ``k`` output tokens exist, and a prompt token has a negative one.
"""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np

    from vllm.config.reasoning import ReasoningConfig
    from vllm.sampling_params import SamplingParams

ReasoningClosedBy = Literal["model", "answer_reserve", "thinking_token_budget"]

NO_LIMIT = 2**31 - 1
"""A length that is never reached: the limit is off (fits the int32 kernels)."""

NEVER_DUE = 2**63 - 1
"""A sequence length from which on no token is forced, in an int64 array."""

FORCED_LOGIT = 1e9
"""Outweighs every other logit, and stays finite when divided by a temperature."""


def effective_max_tokens(max_tokens: int, max_model_len: int, prompt_len: int) -> int:
    """Output tokens a request can really produce.

    Args:
        max_tokens: Output tokens the request may produce.
        max_model_len: Tokens of context, prompt and output together.
        prompt_len: Tokens of the prompt.

    Returns:
        The smaller of ``max_tokens`` and what the context leaves, in tokens.

    """
    return min(max_tokens, max_model_len - prompt_len)


def default_answer_reserve(default: int | float, num_output_tokens: int) -> int:
    """The reserve of a request that leaves it to the server's default.

    Args:
        default: In tokens; below 1 a fraction of ``num_output_tokens``.
        num_output_tokens: Output tokens the request can really produce.

    Returns:
        The reserve in tokens: the default, and at most half of the output.

    """
    tokens = default if default >= 1 else default * num_output_tokens
    return min(int(tokens), num_output_tokens // 2)


def reserve_close_len(
    answer_reserve: int, num_output_tokens: int, num_close_tokens: int
) -> int | None:
    """Output length at which the answer reserve closes an open block.

    Args:
        answer_reserve: Output tokens kept for the close and the answer.
        num_output_tokens: Output tokens the request can really produce.
        num_close_tokens: Tokens of the forced reasoning end.

    Returns:
        The output length, in tokens, from which on an open block is closed.
        None when the close does not fit: it would end inside the marker.

    """
    if num_output_tokens <= num_close_tokens:
        return None
    return max(num_output_tokens - answer_reserve, 0)


@dataclass(frozen=True)
class ReasoningLimits:
    """The two limits of one request, in tokens; `NO_LIMIT` where unset."""

    thinking_token_budget: int = NO_LIMIT
    """Tokens a block may hold, counted from its first start marker."""
    close_len: int = NO_LIMIT
    """Output length from which on the answer reserve closes a block."""
    close_needs_start_marker: bool = False
    """Whether the answer reserve closes only a block that a start marker opened."""

    @classmethod
    def from_params(cls, params: "SamplingParams | None") -> "ReasoningLimits | None":
        """Read the limits of a request; None when it sets neither."""
        budget = _as_int(getattr(params, "thinking_token_budget", None))
        close_len = _as_int(getattr(params, "_reasoning_close_len", None))
        if budget is None and close_len is None:
            return None
        return cls(
            NO_LIMIT if budget is None else min(budget, NO_LIMIT),
            NO_LIMIT if close_len is None else min(close_len, NO_LIMIT),
            getattr(params, "_reasoning_needs_start_marker", False) is True,
        )

    @cached_property
    def unmarked(self) -> "ReasoningLimits":
        """The limits of a block that no start marker opened."""
        if not self.close_needs_start_marker:
            return self
        return replace(self, close_len=NO_LIMIT)

    @property
    def is_unlimited(self) -> bool:
        """Whether both limits are off."""
        return self.thinking_token_budget == self.close_len == NO_LIMIT

    def block_close_len(self, block_start: int) -> int:
        """Output length from which on a block is closed.

        Args:
            block_start: Position after the block's first start marker.

        Returns:
            The length at which the earlier of the two limits closes it.

        """
        return min(block_start + self.thinking_token_budget, self.close_len)

    def next_block_close_len(self, num_tokens: int) -> int:
        """Earliest length at which a block not yet open could be closed.

        Args:
            num_tokens: Output tokens so far, with no block open. The next one
                can complete a start marker at the soonest.

        Returns:
            A lower bound of the output length at which a close could start.

        """
        return max(self.block_close_len(num_tokens + 1), num_tokens + 1)


def _as_int(value: Any) -> int | None:
    is_int = isinstance(value, int) and not isinstance(value, bool)
    return value if is_int else None


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


@dataclass(frozen=True)
class ReasoningMarkers:
    """Token sequences that open and leave a reasoning block."""

    start: list[int]
    """Opens a block."""
    forced_end: list[int]
    """Forced to close a block; may hold a phrase besides the natural end."""
    natural_end: list[int]
    """Emitted by the model to close a block."""
    implicit_ends: list[list[int]]
    """Leave a block as well, such as a tool-call opener."""
    turn_boundaries: list[int]
    """Tokens that begin a turn: earlier prompt tokens open no block."""
    starts_inside: bool
    """Whether output is reasoning before any start marker."""

    @classmethod
    def from_config(cls, config: "ReasoningConfig | None") -> "ReasoningMarkers | None":
        """Read the markers; None when the config defines no block to close."""
        start = _as_list(getattr(config, "reasoning_start_token_ids", None))
        forced_end = _as_list(getattr(config, "reasoning_end_token_ids", None))
        if not start or not forced_end:
            return None
        natural_end = _as_list(getattr(config, "natural_reasoning_end_token_ids", None))
        exits = _as_list(getattr(config, "reasoning_exit_token_ids", None))
        return cls(
            start=start,
            forced_end=forced_end,
            natural_end=natural_end or forced_end,
            implicit_ends=exits[1:],
            turn_boundaries=_as_list(getattr(config, "turn_boundary_token_ids", None)),
            starts_inside=getattr(config, "starts_in_reasoning", False) is True,
        )

    @cached_property
    def exits(self) -> list[list[int]]:
        """Every sequence that leaves a block, each once.

        The forced end is one of them even where it holds no natural end, so
        that a completed close is never started again.
        """
        ends = [self.natural_end, *self.implicit_ends, self.forced_end]
        return [end for i, end in enumerate(ends) if end not in ends[:i]]

    @cached_property
    def max_len(self) -> int:
        """Tokens of the longest marker."""
        return max(map(len, [self.start, *self.exits]))

    def current_turn(self, prompt_token_ids: Sequence[int]) -> list[int]:
        """The prompt after its last turn boundary."""
        turn = list(prompt_token_ids)
        for boundary in self.turn_boundaries:
            if boundary in turn:
                turn = turn[len(turn) - turn[::-1].index(boundary) :]
        return turn


def _match_ends(
    token_ids: list[int], marker: list[int], begin: int
) -> Iterator[tuple[int, int]]:
    """Yield (end, length) of each match that ends after ``begin``."""
    last, length = marker[-1], len(marker)
    try:
        while True:
            end = token_ids.index(last, begin) + 1
            if end >= length and token_ids[end - length : end] == marker:
                yield end, length
            begin = end
    except ValueError:
        return


class ReasoningBlockScan:
    """Where a token sequence stands in its reasoning block.

    Reads each token once. What is forced at the current position follows from
    the block it read and two limits; no decision is kept.
    """

    def __init__(
        self, markers: ReasoningMarkers, prompt_token_ids: Sequence[int] | None = None
    ) -> None:
        self.markers = markers
        self.inside = markers.starts_inside
        # Position after the first start marker of the current or last block.
        self.block_start = 0
        self._has_start_marker = False
        # The exit that left the last block, as begin and end positions.
        self._exit_begin = self.exit_end = 0
        self._tail: list[int] = []

        turn = markers.current_turn(prompt_token_ids or [])
        self.num_tokens = -len(turn)
        self.extend(turn)

    def block_limits(self, limits: ReasoningLimits) -> ReasoningLimits:
        """What of a request's limits holds for the current or last block."""
        return limits if self._has_start_marker else limits.unmarked

    def fork(self) -> "ReasoningBlockScan":
        """A copy that can read draft tokens on its own."""
        # `extend` replaces the tail instead of changing it.
        return copy(self)

    def extend(self, token_ids: Sequence[int]) -> None:
        """Read the next tokens of the sequence."""
        num_tail = len(self._tail)
        tokens = [*self._tail, *token_ids]
        offset = self.num_tokens - num_tail
        matches = [
            (end, True, length)
            for marker in self.markers.exits
            for end, length in _match_ends(tokens, marker, num_tail)
        ]
        matches += [
            (end, False, length)
            for end, length in _match_ends(tokens, self.markers.start, num_tail)
        ]
        # Where both end on the same token the exit is read last and holds; of
        # several exits the longest does.
        for end, is_exit, length in sorted(matches):
            position = offset + end
            if is_exit:
                self._leave_block(position - length, position)
            else:
                self._enter_block(position)
        self.num_tokens += len(token_ids)
        self._tail = tokens[max(len(tokens) - self.markers.max_len + 1, 0) :]

    def _enter_block(self, position: int) -> None:
        # A start marker inside an open block changes nothing, except that a
        # block open from the beginning is counted from its first marker.
        if not self.inside or not self._has_start_marker:
            self.inside = self._has_start_marker = True
            self.block_start = position

    def _leave_block(self, begin: int, end: int) -> None:
        if self.inside or end == self.exit_end:
            self.inside = False
            self._exit_begin, self.exit_end = begin, end

    def forced_token(self, limits: ReasoningLimits) -> int | None:
        """The token forced at the current position, if any."""
        close_len = self.block_limits(limits).block_close_len(self.block_start)
        if self.inside:
            if self.num_tokens < close_len:
                return None
            # A close the model has begun by itself is continued.
            forced_end, natural_end = self.markers.forced_end, self.markers.natural_end
            num_forced = self._num_begun(forced_end)
            num_natural = self._num_begun(natural_end)
            if num_natural > num_forced:
                return natural_end[num_natural]
            return forced_end[num_forced]
        # The forced end may hold an exit and go on after it. The close was
        # forced if the block was due when that exit's last token was chosen;
        # an exit before that, or in the prompt, was not and is left alone.
        if self.exit_end > max(close_len, 0):
            num_forced = self._num_begun(self.markers.forced_end)
            if num_forced > 0 and self.num_tokens - num_forced <= self._exit_begin:
                return self.markers.forced_end[num_forced]
        return None

    def closed_by(self, limits: ReasoningLimits) -> ReasoningClosedBy | None:
        """What closed the last block; None while it is open or if the output
        closed none.

        A close is forced exactly when the block is open at the length at which
        a limit closes it, so this follows from the tokens alone.
        """
        if self.inside or self.exit_end <= 0:
            return None
        limits = self.block_limits(limits)
        close_len = limits.block_close_len(self.block_start)
        if self.exit_end <= close_len:
            return "model"
        if close_len == limits.close_len:
            return "answer_reserve"
        return "thinking_token_budget"

    def next_due_len(self, limits: ReasoningLimits) -> int:
        """Earliest output length at which a token could be forced."""
        if self.forced_token(limits) is not None:
            return self.num_tokens
        if self.inside and self._has_start_marker:
            return limits.block_close_len(self.block_start)
        due_len = limits.next_block_close_len(self.num_tokens)
        if self.inside:
            # Its first start marker may still come and bring the reserve with it.
            own_limits = self.block_limits(limits)
            due_len = min(due_len, own_limits.block_close_len(self.block_start))
        return due_len

    def _num_begun(self, marker: list[int]) -> int:
        """Length of the longest proper prefix of a marker that the block ends with."""
        longest = min(
            len(marker) - 1, len(self._tail), self.num_tokens - self.block_start
        )
        for length in range(longest, 0, -1):
            if self._tail[-length:] == marker[:length]:
                return length
        return 0


class LimitedRequest:
    """A request that sets a limit: its tokens, read once, and what they force.

    Args:
        markers: Markers of the engine.
        limits: The request's limits.
        prompt_token_ids: Its prompt.

    """

    def __init__(
        self,
        markers: ReasoningMarkers,
        limits: ReasoningLimits,
        prompt_token_ids: Sequence[int] | None,
    ) -> None:
        self.limits = limits
        self._prompt_scan = ReasoningBlockScan(markers, prompt_token_ids)
        self.scan = self._prompt_scan.fork()
        self.next_due_len = self.scan.next_due_len(limits)
        """Earliest output length at which a token could be forced."""

    def read(self, output_token_ids: Sequence[int], num_tokens: int) -> None:
        """Bring the scan up to the sampled tokens.

        Args:
            output_token_ids: Output tokens, of which only unread ones are looked at.
            num_tokens: How many of them are sampled.

        """
        if num_tokens == self.scan.num_tokens:
            return
        if num_tokens < self.scan.num_tokens:
            # Tokens were taken back, as after a failed KV transfer.
            self.scan = self._prompt_scan.fork()
        self.scan.extend(output_token_ids[self.scan.num_tokens : num_tokens])
        self.next_due_len = self.scan.next_due_len(self.limits)

    def forced_tokens(self, draft_token_ids: list[int]) -> dict[int, int]:
        """What is forced at each draft position and the position after them.

        Args:
            draft_token_ids: Draft tokens that follow the ones read.

        Returns:
            Position, counted from the first draft's, to token.

        """
        forced: dict[int, int] = {}
        if self.next_due_len > self.scan.num_tokens + len(draft_token_ids):
            return forced
        scan = self.scan.fork()
        for offset, draft in enumerate([*draft_token_ids, None]):
            token_id = scan.forced_token(self.limits)
            if token_id is not None:
                forced[offset] = token_id
            if draft is None or token_id not in (None, draft):
                # A draft that is not the forced token is rejected, and what
                # follows it is never sampled.
                break
            scan.extend([draft])
        return forced


def due_slots(
    due_len: "np.ndarray",
    idx_mapping_np: "np.ndarray",
    seq_lens_upper_bound_np: "np.ndarray",
) -> "np.ndarray":
    """Slots of a batch whose sequences reach the length at which they are due.

    Args:
        due_len: Sequence length from which on a token of each slot could be
            forced [max_num_reqs].
        idx_mapping_np: Slots of the batch [num_reqs].
        seq_lens_upper_bound_np: Tokens of each sequence at most, drafts
            included [num_reqs, or more where the batch is padded].

    """
    num_reqs = len(idx_mapping_np)
    is_due = seq_lens_upper_bound_np[:num_reqs] >= due_len[idx_mapping_np]
    return idx_mapping_np[is_due]
