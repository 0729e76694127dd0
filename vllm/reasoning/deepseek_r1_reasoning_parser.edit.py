# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""DeepSeek R1 reasons from its first token, also without a start marker.

A block without a start marker would be limited by nothing.

Goes when upstream's parsers declare where they start.
"""

from tools.fork.edits import after_def


class DeepSeekR1ReasoningParser:
    with after_def("end_token"):

        @property
        def starts_in_reasoning(self) -> bool:
            return True
