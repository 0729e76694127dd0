# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""How reasoning ended is one of the stats of a finished request.

The metrics are fed from the stats, which hold no tokens.

Goes when upstream counts what closed reasoning blocks.
"""

from tools.fork.edits import (
    after_argument,
    after_field,
    after_import,
    after_parameter,
)

with after_import("vllm.v1.metrics.perf"):
    from vllm.v1.sample.reasoning_outcome import ReasoningOutcome


class FinishedRequestStats:
    with after_field("num_cached_tokens"):
        reasoning_outcome: ReasoningOutcome | None = None
        """Set for requests that limit their reasoning."""


class IterationStats:
    def update_from_finished_request(self):
        with after_parameter("num_cached_tokens"):
            reasoning_outcome: ReasoningOutcome | None = None
        with after_argument("FinishedRequestStats", "num_cached_tokens"):
            reasoning_outcome = reasoning_outcome
