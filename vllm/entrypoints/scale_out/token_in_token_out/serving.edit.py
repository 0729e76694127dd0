# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Refuse a reserve before the response begins; what closed a choice's reasoning.

A stream that has begun can no longer answer with an error status.

Goes when upstream has `reasoning_answer_reserve`.
"""

from tools.fork.edits import after_argument, after_statement


class ServingTokens:
    def serve_tokens(self):
        with after_statement(assigns="sampling_params"):
            self.input_processor.validate_answer_reserve(sampling_params)

    def serve_tokens_full_generator(self):
        with after_argument("dict", "stop_reason"):
            reasoning_closed_by = output.reasoning_closed_by

    def serve_tokens_stream_generator(self):
        with after_argument("dict", "stop_reason"):
            reasoning_closed_by = output.reasoning_closed_by
