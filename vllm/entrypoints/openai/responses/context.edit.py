# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What closed the reasoning of the last turn.

A response is built from the context of its turns, which keeps no engine output.

Goes when upstream's outputs say what closed a reasoning block.
"""

from tools.fork.edits import after_field, after_import, since, until

with since("0.34.0"), after_import("vllm.utils.gc_utils"):
    from vllm.v1.sample.reasoning_limits import ReasoningClosedBy
with until("0.34.0"), after_import("vllm.utils"):
    from vllm.v1.sample.reasoning_limits import ReasoningClosedBy


class ConversationContext:
    with after_field("request_metrics_cover_all_generation_turns"):
        # Of the last turn.
        reasoning_closed_by: ReasoningClosedBy | None = None
