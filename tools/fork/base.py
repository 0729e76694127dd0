# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The released vLLMs that the fork builds on: which, for what, and where from."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

from tools.fork.errors import ForkError, UnknownBase

ROOT = Path(__file__).resolve().parents[2]
BASES_FILE = Path(__file__).with_name("bases.toml")

_HEADER = """\
# SPDX-License-Identifier: Apache-2.0
# The released vLLMs that the fork was checked against; of those for a device the
# first is the one that it is built on. Then the modules that the fork owns whole:
# on which releases they hold (since, until), and the SHA-256 of each base's module
# that they were compared with.
"""

_RANGE = ("since", "until")

# A build backend that answers with a name and a version, so that pip can verify
# and save a source distribution without the means to build it.
_BACKEND = """
from pathlib import Path

def get_requires_for_build_wheel(config_settings=None):
    return []

def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    info = Path(metadata_directory, "{name}-{version}.dist-info")
    info.mkdir()
    info.joinpath("METADATA").write_text(
        "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n"
    )
    return info.name
"""


@dataclass(frozen=True)
class Base:
    """One released vLLM.

    Attributes:
        distribution: its name on the package index.
        version: its version.
        device: the target device it is compiled for.

    """

    distribution: str
    version: str
    device: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"

    @property
    def fork_version(self) -> str:
        """The fork's version on this base.

        vLLM looks for the device in its version when it chooses a platform.
        """
        label = "reserve.cpu" if self.device == "cpu" else "reserve"
        return f"{self.version}+{label}"


def _table() -> dict:
    return tomllib.loads(BASES_FILE.read_text(encoding="utf-8"))


def known_bases() -> list[Base]:
    """The bases of ``bases.toml``."""
    return [Base(**entry) for entry in _table()["base"]]


def module_range(module: str) -> dict[str, str]:
    """The releases on which a whole module holds, as ``since`` and ``until``."""
    entry = _table().get("module", {}).get(module, {})
    return {k: v for k, v in entry.items() if k in _RANGE}


def checked_hashes(module: str) -> dict[str, str]:
    """For a replaced module: the base's name and version to upstream's SHA-256."""
    entry = _table().get("module", {}).get(module, {})
    return {k: v for k, v in entry.items() if k not in _RANGE}


def record_hashes(base: Base, hashes: dict[str, str]) -> None:
    """List the modules of a base as compared, in ``bases.toml``.

    Args:
        base: the base.
        hashes: module path to SHA-256.

    """
    table = _table()
    modules = table.get("module", {})
    for module, digest in hashes.items():
        modules.setdefault(module, {})[str(base)] = digest
    text = _HEADER
    for entry in table["base"]:
        text += "\n[[base]]\n" + "".join(f'{k} = "{v}"\n' for k, v in entry.items())
    for module, entry in sorted(modules.items()):
        text += f'\n[module."{module}"]\n'
        for key, value in entry.items():
            text += (
                f'{key} = "{value}"\n' if key in _RANGE else f'"{key}" = "{value}"\n'
            )
    BASES_FILE.write_text(text, encoding="utf-8")


def find_base(distribution: str, version: str) -> Base:
    """The known base of a distribution, or of the fork built on it.

    Raises:
        UnknownBase: the fork was never checked against it.

    """
    for base in known_bases():
        if (distribution, version) in (
            (base.distribution, base.version),
            # As vLLM labels what is built for a device.
            (base.distribution, f"{base.version}+{base.device}"),
            ("vllm", base.fork_version),
        ):
            return base
    raise UnknownBase(
        f"{distribution} {version} is no known base (known: "
        f"{', '.join(map(str, known_bases()))}). To add it, check the edits with "
        f"'python -m tools.fork check', compare the modules that the fork replaces "
        f"({', '.join(_table().get('module', {})) or 'none'}), and list both with "
        f"'python -m tools.fork record'."
    )


def target_device() -> str:
    """The device to build for: ``VLLM_TARGET_DEVICE``, else what the machine has.

    Raises:
        ForkError: the variable names a device without a base.

    """
    device = os.environ.get("VLLM_TARGET_DEVICE")
    if not device:
        return "cuda" if _has_nvidia_driver() else "cpu"
    devices = sorted({base.device for base in known_bases()})
    if device not in devices:
        raise ForkError(
            f"VLLM_TARGET_DEVICE={device}: no base for this device; set it to one of "
            f"{', '.join(devices)}"
        )
    return device


def _has_nvidia_driver() -> bool:
    return Path("/proc/driver/nvidia").exists() or bool(shutil.which("nvidia-smi"))


def base_for(device: str) -> Base:
    """The base that the fork builds on for a device: the first in ``bases.toml``."""
    return next(base for base in known_bases() if base.device == device)


def cache_dir() -> Path:
    """Where fetched bases are kept."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root, "vllm-answer-reserve")


def wheel_metadata(wheel: Path) -> Message:
    """A wheel's METADATA.

    Raises:
        ForkError: the file is no wheel.

    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            name = next(
                n for n in archive.namelist() if n.endswith(".dist-info/METADATA")
            )
            return BytesParser().parsebytes(archive.read(name))
    except (OSError, zipfile.BadZipFile, StopIteration) as e:
        raise ForkError(f"{wheel} is not a readable wheel: {e}") from e


def base_of_wheel(wheel: Path) -> Base:
    """The known base that a wheel is."""
    metadata = wheel_metadata(wheel)
    return find_base(metadata["Name"], metadata["Version"])


def _pip_download(target: Path, *args: str, env: dict[str, str] | None = None) -> None:
    target.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest"]
    done = subprocess.run(
        [*command, str(target), *args], env={**os.environ, **(env or {})}, check=False
    )
    if done.returncode:
        raise ForkError(f"pip download {' '.join(args)} failed (its output is above)")


def _fetch(pattern: str, *args: str, env: dict[str, str] | None = None) -> Path:
    """The cached file that matches, downloaded first if it is not there."""
    cache = cache_dir()
    if found := sorted(cache.glob(pattern)):
        return found[-1]
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        _pip_download(Path(scratch), *args, env=env)
        got = sorted(Path(scratch).glob(pattern))
        if not got:
            raise ForkError(f"pip download {' '.join(args)} brought no {pattern}")
        return Path(shutil.move(got[-1], cache / got[-1].name))


def fetch_wheel(base: Base) -> Path:
    """The released wheel of a base, from the cache or else through pip.

    Raises:
        ForkError: pip cannot get it, or it is another version.

    """
    name = base.distribution.replace("-", "_")
    wheel = _fetch(
        f"{name}-{base.version}-*.whl",
        "--only-binary=:all:",
        f"{base.distribution}=={base.version}",
    )
    if base_of_wheel(wheel) != base:
        raise ForkError(f"{wheel} is not {base}; delete it and fetch again")
    return wheel


def fetch_sdist(version: str) -> Path:
    """The source distribution of vLLM, from the cache or else through pip.

    pip prepares the metadata of what it downloads, which for vLLM needs its whole
    build environment; a stand-in backend answers instead.

    Raises:
        ForkError: pip cannot get it.

    """
    with tempfile.TemporaryDirectory() as scratch:
        backend = Path(scratch, "setuptools")
        backend.mkdir()
        backend.joinpath("__init__.py").touch()
        backend.joinpath("build_meta.py").write_text(
            _BACKEND.format(name="vllm", version=version)
        )
        return _fetch(
            f"vllm-{version}.tar.gz",
            "--no-binary=vllm",
            "--no-build-isolation",
            f"vllm=={version}",
            env={"PYTHONPATH": scratch},
        )


def sha256(content: bytes) -> str:
    """Hex digest of a module."""
    return hashlib.sha256(content).hexdigest()
