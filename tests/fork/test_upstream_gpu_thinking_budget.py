# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Upstream's own tests of the thinking budget in model runner V2.

They come from the source distributions and run unchanged. Without a GPU the
kernels are interpreted and what keeps the tests from running there is lifted.
"""

import tarfile
from xml.etree import ElementTree

import pytest

from tests.v1.worker.triton_interpreter import run_pytest
from tools.fork.base import fetch_sdist
from vllm import __version__
from vllm.triton_utils import HAS_TRITON

# The tests of the sampler know its interface, which 0.34.0 has widened.
BEFORE_034 = __version__.startswith(("0.32.", "0.33."))
# File to the version that it comes from and the number of its tests.
FILES = {
    "test_gpu_thinking_budget.py": ("0.34.0", 13),
    "test_gpu_sampler_flags.py": ("0.33.0" if BEFORE_034 else "0.34.0", 16),
}

# Tests that fail, with the reason.
EXCEPTIONS: dict[str, str] = {}
if __version__.startswith("0.32."):
    EXCEPTIONS["test_has_topp_only_rows"] = (
        "of a sampler function that this base, 0.32.0, does not have yet"
    )


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[str, str]:
    """Test name to ``passed``, ``skipped`` or the failure."""
    folder = tmp_path_factory.mktemp("upstream")
    for name, (version, _) in FILES.items():
        with tarfile.open(fetch_sdist(version)) as sdist:
            extracted = sdist.extractfile(f"vllm-{version}/tests/v1/worker/{name}")
            assert extracted is not None
            folder.joinpath(name).write_bytes(extracted.read())

    files = [str(folder / name) for name in FILES]
    report = folder / "report.xml"
    gate = () if HAS_TRITON else ("-p", "tests.v1.worker.lift_device_gate")
    run_pytest("--noconftest", f"--junitxml={report}", *gate, *files, exit_codes=(0, 1))
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        outcome = "passed"
        for child in case:
            if child.tag in ("failure", "error", "skipped"):
                outcome = f"{child.tag}: {child.get('message')}"
        found[case.attrib["name"]] = outcome
    return found


def test_upstreams_tests_all_run(outcomes):
    assert len(outcomes) == sum(number for _, number in FILES.values())


def test_upstreams_tests_pass_but_for_the_listed_ones(outcomes):
    failed = {name: text for name, text in outcomes.items() if text != "passed"}
    assert failed.keys() == EXCEPTIONS.keys(), failed
