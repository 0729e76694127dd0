# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What closed the reasoning of a response."""

from tools.fork.edits import after_argument, after_statement


class OpenAIServingResponses:
    def _generate_with_builtin_tools(self):
        with after_statement(assigns="context.request_metrics"):
            context.reasoning_closed_by = res.outputs[0].reasoning_closed_by

    def responses_full_generator(self):
        with after_argument("ResponsesResponse.from_request", "ec_transfer_params"):
            reasoning_closed_by = context.reasoning_closed_by
