# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Requests that set a reasoning limit say how their reasoning ended.

From its text alone a forced end looks like one of the model's own.

Goes when upstream's outputs say what closed a reasoning block.
"""

from tools.fork.edits import (
    after_argument,
    after_import,
    after_parameter,
    after_statement,
    at_end,
    before_statement,
)

with after_import("vllm.v1.outputs"):
    from vllm.v1.sample.reasoning_limits import ReasoningLimits, ReasoningMarkers
    from vllm.v1.sample.reasoning_outcome import ReasoningOutcome


class RequestState:
    def __init__(self):
        with at_end():
            # Set for a request that limits its reasoning.
            self.reasoning_markers: ReasoningMarkers | None = None
            self.reasoning_limits: ReasoningLimits | None = None
            # Set when it finishes.
            self.reasoning_outcome: ReasoningOutcome | None = None

    def _new_completion_output(self):
        with before_statement(returns="CompletionOutput"):
            if finished and self.reasoning_limits is not None:
                assert self.reasoning_markers is not None
                self.reasoning_outcome = ReasoningOutcome.derive(
                    self.reasoning_markers,
                    self.reasoning_limits,
                    self.prompt_token_ids,
                    self.detokenizer.output_token_ids,
                )
            outcome = self.reasoning_outcome

        with after_argument("CompletionOutput", "weight_versions"):
            reasoning_closed_by = outcome.closed_by if outcome is not None else None


class OutputProcessor:
    def __init__(self):
        with after_parameter("admission_stats"):
            reasoning_markers: ReasoningMarkers | None = None
        with at_end():
            self.reasoning_markers = reasoning_markers

    def add_request(self):
        with after_statement(calls="RequestState.from_new_request"):
            # The tokens of a streaming input session are not one sequence.
            if self.reasoning_markers is not None and not request.resumable:
                req_state.reasoning_markers = self.reasoning_markers
                req_state.reasoning_limits = ReasoningLimits.from_params(
                    request.sampling_params
                )

    def _update_stats_from_finished(self):
        with after_argument(
            "iteration_stats.update_from_finished_request", "num_cached_tokens"
        ):
            reasoning_outcome = req_state.reasoning_outcome
