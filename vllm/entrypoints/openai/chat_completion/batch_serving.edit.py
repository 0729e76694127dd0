# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What closed the reasoning of a choice.

A batch builds its choices apart from the chat server.

Goes when upstream's outputs say what closed a reasoning block.
"""

from tools.fork.edits import after_argument


class OpenAIServingChatBatch:
    def chat_completion_full_generator_batch(self):
        with after_argument("ChatCompletionResponseChoice", "stop_reason"):
            reasoning_closed_by = output.reasoning_closed_by
