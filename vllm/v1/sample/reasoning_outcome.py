# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How the reasoning of a finished output ended.

By the rules of `vllm.v1.sample.reasoning_limits` a close is forced exactly when
the block is open at the length at which a limit closes it. So what closed a
block follows from the token ids, and the frontend needs no word from the worker.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vllm.v1.sample.reasoning_limits import (
    NO_LIMIT,
    ReasoningBlockScan,
    ReasoningClosedBy,
    ReasoningLimits,
    ReasoningMarkers,
)


@dataclass(frozen=True)
class ReasoningOutcome:
    """The last reasoning block of one finished output that had a limit."""

    closed_by: ReasoningClosedBy | None
    """What closed it; None if it never closed in the output or never opened."""
    ended_inside: bool
    """Whether the output ended inside it."""
    num_answer_tokens: int
    """Output tokens after its end, in tokens."""
    has_answer_reserve: bool
    """Whether the request carried a reserve, of its own or by default."""

    @classmethod
    def derive(
        cls,
        markers: ReasoningMarkers,
        limits: ReasoningLimits,
        prompt_token_ids: Sequence[int] | None,
        output_token_ids: Sequence[int],
    ) -> "ReasoningOutcome | None":
        """Read a finished output once.

        Args:
            markers: Of the engine.
            limits: Of the request.
            prompt_token_ids: None where the prompt is embeddings.
            output_token_ids: All of them, as the client receives them.

        Returns:
            How it ended; None where no limit holds without a start marker and
            there was none.

        """
        scan = ReasoningBlockScan(markers, prompt_token_ids)
        scan.extend(output_token_ids)
        limits = scan.block_limits(limits)
        if limits.is_unlimited:
            return None
        return cls(
            closed_by=scan.closed_by(limits),
            ended_inside=scan.inside,
            num_answer_tokens=0 if scan.inside else scan.num_tokens - scan.exit_end,
            has_answer_reserve=limits.close_len != NO_LIMIT,
        )
