# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What closed the reasoning of a choice."""

from tools.fork.edits import after_argument


class ServingTokens:
    def serve_tokens_full_generator(self):
        with after_argument("dict", "stop_reason"):
            reasoning_closed_by = output.reasoning_closed_by

    def serve_tokens_stream_generator(self):
        with after_argument("dict", "stop_reason"):
            reasoning_closed_by = output.reasoning_closed_by
