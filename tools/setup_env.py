"""Install cavity into .venv, as `make` does: `python tools/setup_env.py`, or with extras such as `test,dev`.

On Linux, PyPI's build of torch brings NVIDIA's CUDA libraries. So without a GPU this installs the CPU build, which is a
tenth of the size. Whatever is large is announced before the download. A dry run of pip could tell its exact size, but
downloads all of it if the index has no separate metadata.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

OLDEST = (3, 11)
ENVIRONMENT, CONSTRAINTS = Path(".venv"), Path("constraints.txt")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
CPU_SIZE, CUDA_SIZE = "200 MB", "2.7 GB"  # downloads of torch 2.13 for Python 3.11


class Source(NamedTuple):
    """A place to install torch from: what to tell the user before the download, and the arguments of pip."""

    announcement: str
    arguments: list[str]


def torch_sources(version: str, system: str, has_gpu: bool) -> list[Source]:
    """List the places to try, in this order."""
    default = ["--constraint", str(CONSTRAINTS), f"torch=={version}"]
    if system != "Linux":  # whose builds on PyPI have no CUDA
        return [Source(f"torch {version}, about {CPU_SIZE}", default)]
    with_cuda = f"torch {version} with NVIDIA's CUDA libraries, about {CUDA_SIZE} to download"
    if has_gpu:
        return [Source(f"{with_cuda}, because this machine has a GPU", default)]
    # No dependencies: the next step installs them, from the configured index.
    cpu = ["--no-deps", "--retries", "2", "--timeout", "20", "--extra-index-url", CPU_INDEX, f"torch=={version}+cpu"]
    return [
        Source(f"the CPU build of torch {version}, about {CPU_SIZE} from {CPU_INDEX}: this machine has no GPU", cpu),
        Source(
            f"{with_cuda}, because the CPU build could not be installed.\n"
            f"To avoid this download, press Ctrl-C, install torch {version} into {ENVIRONMENT} from another place, and "
            "run the same make command again: it keeps the torch that is there",
            default,
        ),
    ]


def main(extras: str) -> None:
    """Create the environment if there is none, and install torch, cavity and its dependencies."""
    started = time.monotonic()
    if sys.version_info < OLDEST:
        sys.exit(f"cavity needs Python 3.11 or newer; this is {platform.python_version()}. Try: make PYTHON=python3.12")
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        say(f"1 of 3: {ENVIRONMENT}, with Python {platform.python_version()}")
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    install_torch(python)
    what = f"cavity[{extras}]" if extras else "cavity"
    say(f"3 of 3: {what} and the packages that it needs")
    pip(python, "--constraint", str(CONSTRAINTS), "--editable", f".[{extras}]" if extras else ".").check_returncode()
    say(f"{ENVIRONMENT} is ready after {time.monotonic() - started:.0f} s")


def install_torch(python: Path) -> None:
    """Install the version of torch in the constraints file, from the first source that has it, unless it is there."""
    version = re.findall(r"^torch==(\S+)$", CONSTRAINTS.read_text(), re.MULTILINE)[0]
    ask = "import importlib.metadata as m; print(m.version('torch').partition('+')[0])"
    found = subprocess.run([str(python), "-c", ask], capture_output=True, text=True)
    if found.stdout.strip() == version:
        say(f"2 of 3: torch {version} is installed already")
        return
    for source in torch_sources(version, platform.system(), has_gpu()):
        say(f"2 of 3: {source.announcement}")
        if pip(python, *source.arguments).returncode == 0:
            return
    sys.exit(f"torch {version} could not be installed; the messages of pip are above")


def has_gpu() -> bool:
    """Return whether NVIDIA's driver finds a GPU."""
    path = shutil.which("nvidia-smi")
    return path is not None and "GPU 0" in subprocess.run([path, "-L"], capture_output=True, text=True).stdout


def pip(python: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run `pip install`, with its progress bars and sizes on the screen."""
    return subprocess.run([str(python), "-m", "pip", "install", "--disable-pip-version-check", *arguments])


def say(text: str) -> None:
    """Print a line that stands out from those of pip, and before them."""
    print(f"\n== {text}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
