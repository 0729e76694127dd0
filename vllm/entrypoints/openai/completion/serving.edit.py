# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What closed the reasoning of a choice."""

from tools.fork.edits import after_argument


class OpenAIServingCompletion:
    def completion_stream_generator(self):
        with after_argument("CompletionResponseStreamChoice", "stop_reason"):
            reasoning_closed_by = output.reasoning_closed_by

    def request_output_to_completion_response(self):
        with after_argument("CompletionResponseChoice", "stop_reason"):
            reasoning_closed_by = output.reasoning_closed_by
