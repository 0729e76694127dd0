# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What closed the reasoning of an output.

From its text alone a forced end looks like one of the model's own.

Goes when upstream's outputs say what closed a reasoning block.
"""

from tools.fork.edits import after_field, after_import, after_statement

with after_import("vllm.v1.metrics.stats"):
    from vllm.v1.sample.reasoning_limits import ReasoningClosedBy


class CompletionOutput:
    with after_field("weight_versions"):
        reasoning_closed_by: ReasoningClosedBy | None = None
        """What closed the last reasoning block: the model, the answer reserve or
        the thinking token budget. Set on the final output of a request that sets
        a limit; None if its block never closed or never opened."""


class RequestOutput:
    def add():
        with after_statement(assigns="completion.finish_reason"):
            closed_by = next_completion.reasoning_closed_by
            completion.reasoning_closed_by = closed_by
