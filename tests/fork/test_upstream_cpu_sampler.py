# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Upstream's own tests of the sampler in model runner V2 for CPUs.

They come from the source distribution and run unchanged, in a process in which
this CPU counts as one of those that the model runner is for.
"""

import tarfile
from xml.etree import ElementTree

import pytest

from tests.v1.worker.cpu_thinking_budget_driver import HAS_CPU_RUNNER
from tests.v1.worker.triton_interpreter import run_python
from tools.fork.base import fetch_sdist

pytestmark = pytest.mark.skipif(
    not HAS_CPU_RUNNER, reason="this vLLM has no model runner V2 for CPUs"
)

VERSION = "0.34.0"
NUM_TESTS = 33

# Tests that fail, with the reason.
EXCEPTIONS = {
    "test_cpu_thinking_budget_scans_new_committed_tokens_incrementally": (
        "of a cursor that the fork's state does not have; that it reads each token "
        "once is in tests/v1/worker/test_cpu_reasoning_limits.py"
    ),
}


def test_upstreams_tests_pass_but_for_the_listed_ones(tmp_path):
    file, report = tmp_path / "test_cpu_sampler.py", tmp_path / "report.xml"
    with tarfile.open(fetch_sdist(VERSION)) as sdist:
        member = f"vllm-{VERSION}/tests/v1/worker/cpu/{file.name}"
        extracted = sdist.extractfile(member)
        assert extracted is not None
        file.write_bytes(extracted.read())

    options = ("-q", "-p", "no:cacheprovider", "--noconftest")
    run_python(
        *("-m", "pytest", *options, f"--junitxml={report}", str(file)),
        exit_codes=(1,),
    )
    cases = list(ElementTree.parse(report).iter("testcase"))
    assert len(cases) == NUM_TESTS
    assert {case.attrib["name"] for case in cases if len(case)} == EXCEPTIONS.keys()
