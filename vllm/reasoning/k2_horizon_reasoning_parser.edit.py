# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""K2 Horizon leaves reasoning for its tool calls without an end marker.

Nothing may be forced inside a tool call, which only the parser tells from reasoning.

Goes when upstream's parsers declare what leaves a reasoning block
(vllm-project/vllm#44676 asks for it).
"""

from tools.fork.edits import after_def


class K2HorizonReasoningParser:
    with after_def("__init__"):

        @property
        def implicit_end_token_ids(self) -> list[int]:
            tool_calls_start_id = self._tool_calls_start_id
            return [] if tool_calls_start_id is None else [tool_calls_start_id]
