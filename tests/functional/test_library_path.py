"""What may stay of LD_LIBRARY_PATH, on a made tree of folders with libraries under real names; shells judge alike."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

from tiny import Site, Tool, build_wheel
from verl_env.environment.library_path import joined, judge_parts, owned_libraries
from verl_env.environment.posix_shell import sealing_functions

# The names that these folders have where they come from (CUDA's packages, DLAMI, HPC-X, GKE, conda, NGC).
FOLDERS = {
    "cuda-12.4/lib64": ["libcudart.so", "libcudart.so.12", "libcublas.so.12", "libcufft.so.11", "libnvrtc.so.12"],
    "cuda-13/lib64": ["libcudart.so.13", "libcublas.so.13"],
    "cuda-13/lib64/stubs": ["libcuda.so", "libnvidia-ml.so"],
    "cuda-12.4/stubs": ["libcuda.so", "libcuda.so.1"],
    "cuda/compat": ["libcuda.so.1", "libcuda.so.580.95.05", "libnvidia-ptxjitcompiler.so.1", "libcudadebugger.so.1"],
    "nvidia/lib64": ["libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"],
    "gke/lib64": ["libcuda.so.1", "libnccl.so.2", "libnccl-net.so"],
    "aws-ofi-nccl/lib": ["libnccl-net.so", "libnccl-ofi-tuner.so"],
    "efa/lib": ["libfabric.so.1", "libefa.so.1"],
    "hpcx/ucx/lib": ["libucp.so.0", "libucs.so.0", "libuct.so.0"],
    "hpcx/sharp/lib": ["libsharp.so.5", "libnccl-net.so", "libnccl.so.2"],
    "nccl/build/lib": ["libnccl.so.2", "libnccl.so.2.21.5"],
    "cudnn/lib": ["libcudnn.so.8", "libcudnn_ops.so.9"],
    "conda/lib": ["libmkl_core.so.2", "libpython3.10.so.1.0", "libucp.so.0"],
    "openmpi/lib": ["libmpi.so.40", "libopen-rte.so.40"],
    "gcc/lib64": ["libstdc++.so.6", "libgomp.so.2"],
    "with a blank/lib": ["libcublasLt.so.12"],
    "empty": [],
    "lookalikes": ["libcudartx.so.1", "mylibcudart.so.13", "libcudart.a", "libtorchaudio.so"],
}
KEPT = {
    "cuda/compat", "nvidia/lib64", "gke/lib64", "aws-ofi-nccl/lib", "efa/lib", "hpcx/ucx/lib", "hpcx/sharp/lib",
    "openmpi/lib", "gcc/lib64", "empty", "lookalikes",
}  # fmt: skip
OWN = {
    "nvidia/cu13/lib": ["libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libcufft.so.12", "libnvrtc.so.13"],
    "nvidia/cudnn/lib": ["libcudnn.so.9", "libcudnn_ops.so.9"],
    "nvidia/nccl/lib": ["libnccl.so.2"],
    "torch/lib": ["libtorch.so", "libc10.so", "libtorch_cuda.so"],
}


def make_library(path):
    """Make an empty library that the loader takes for one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(LIBRARY.read_bytes())


@pytest.fixture(scope="module", autouse=True)
def library(tmp_path_factory):
    """Build one library, to be put under many names."""
    from verl_env.environment.driver_stub import render_stub

    global LIBRARY  # noqa: PLW0603 - made once for the module
    LIBRARY = tmp_path_factory.mktemp("library") / "lib.so"
    LIBRARY.write_bytes(render_stub((), "x86_64"))


@pytest.fixture
def tree(tmp_path):
    """Return the folder that holds the folders."""
    for folder, names in FOLDERS.items():
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for name in names:
            make_library(tmp_path / folder / name)
    (tmp_path / "conda/conda-meta").mkdir()
    return tmp_path


@pytest.fixture
def environment(tmp_path):
    """Return the folder of an environment that brings libraries."""
    folder = tmp_path / "envs/it's $one"
    for place, names in OWN.items():
        for name in names:
            make_library(folder / "lib/python3.12/site-packages" / place / name)
    return folder


def test_what_an_environment_brings(environment):
    """Names without versions: a folder with another version of one is found first as well."""
    expected = [
        *("libc10.so", "libcublas.so", "libcublasLt.so", "libcudart.so", "libcudnn.so", "libcudnn_ops.so"),
        *("libcufft.so", "libnccl.so", "libnvrtc.so", "libtorch.so", "libtorch_cuda.so"),
    ]
    assert expected == list(owned_libraries(environment))


def test_what_a_base_brings(environment, tmp_path):
    """Over a base, its libraries are the environment's own."""
    base = tmp_path / "base/site-packages"
    make_library(base / "nvidia/cusparselt/lib/libcusparseLt.so.0")
    packages = environment / "lib/python3.12/site-packages"
    (packages / "zzz_verl_env_base.pth").write_text(f"{base}\nimport sys\n")
    assert "libcusparseLt.so" in owned_libraries(environment)


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_folder(tree, environment, folder):
    """A folder that shadows goes; the driver's, an active compat's and the network's plugins stay; each has its reason."""
    (part,) = judge_parts(str(tree / folder), environment, owned_libraries(environment))
    assert (folder in KEPT) == part.kept, part.why
    assert part.why


@pytest.mark.parametrize(
    ("folder", "kept"),
    [
        pytest.param("", False, id="empty: the working folder"),
        pytest.param("lib", False, id="relative"),
        pytest.param("/nowhere/at/all", True, id="not there"),
        pytest.param("/usr/lib/x86_64-linux-gnu", True, id="the loader's own, with nothing of the environment's"),
    ],
)
def test_other_parts(environment, folder, kept):
    """What is no folder of its own does no harm, unless it is another one wherever a program starts."""
    parts = judge_parts(folder or ":/x", environment, ("libcudart.so",))
    assert kept == parts[0].kept, parts[0].why


def test_the_environments_own_folders_stay(environment):
    """Somebody who put them there gets what is loaded anyway."""
    own = environment / "lib/python3.12/site-packages/torch/lib"
    assert judge_parts(str(own), environment, owned_libraries(environment))[0].kept


SHELLS = ["dash", "bash", "zsh", "ksh", "busybox"]


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_judge_alike(tree, environment, shell):
    """The functions that activation runs in a shell keep the very folders that `run` keeps."""
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not here")
    owned = owned_libraries(environment)
    own = f"{environment}/lib/python3.12/site-packages/torch/lib"
    value = ":".join(
        [*(str(tree / it) for it in FOLDERS), "", "lib", "/usr/lib", "/nowhere", own, f"{tree}/cuda/compat/"]
    )
    words = [shutil.which(shell), *(["sh"] if shell == "busybox" else []), "-c"]
    script = f'{sealing_functions(str(environment), owned)}_verl_env_seal "$1"; printf %s "${{_verl_env_kept#:}}"'
    done = subprocess.run([*words, script, "sh", value], capture_output=True, text=True, check=True)
    expected = joined(judge_parts(value, environment, owned))
    assert "" == done.stderr
    assert [] == sorted(set(expected.split(":")) ^ set(done.stdout.split(":")))
    assert expected == done.stdout


@pytest.fixture
def installed(tmp_path, serve):
    """Return verl-env with an environment that brings a libcudart."""
    store = tmp_path / "store"
    files = {"torch/__init__.py": "", "torch/lib/libtorch.so": "x", "nvidia/cu13/lib/libcudart.so.13": "x"}
    look = {
        "look.py": "import json, os, site, sys\ndef main():\n    print(json.dumps({'env': dict(os.environ), 'path': sys.path}))\n",
        "look-1.0.dist-info/entry_points.txt": "[console_scripts]\nlook = look:main\n",
    }
    wheels = [
        build_wheel(store, "torch", "2.13.0", files=files),
        build_wheel(store, "verl", "99.0"),
        build_wheel(store, "look", "1.0", files=look),
    ]
    site = Site(folder=tmp_path / "site")
    site.add_row("tiny", wheels)
    tool = Tool(home=tmp_path / "home", work=tmp_path / "work", site=site)
    tool.home.mkdir()
    tool.work.mkdir()
    tool.index = serve(store)
    done = tool("install", "--cpu", "--row", "tiny")
    assert 0 == done.code, done.err
    return tool


@pytest.fixture
def leaks(tree, installed):
    """Return variables of a shell with modules of others, a user site, conda, and libraries that shadow."""
    minor = os.path.basename(next(installed.current.glob("lib/python*")))
    for place in (tree / "modules", installed.home / f".local/lib/{minor}/site-packages"):
        place.mkdir(parents=True)
        (place / "leaked.py").write_text("")
    folders = [tree / "cuda-12.4/lib64", tree / "nvidia/lib64", tree / "conda/lib", tree / "efa/lib"]
    return {
        "PYTHONPATH": os.pathsep.join([installed.variables()["PYTHONPATH"], str(tree / "modules")]),
        "CONDA_PREFIX": str(tree / "conda"),
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, folders)),
    }


LEAK = "import importlib.util as u; print(u.find_spec('leaked') is not None)"


def test_nothing_leaks_into_run(installed, leaks, tree):
    """`run` gives the program what may stay; `-v` and `env --json` say what stays, what goes, and why."""
    kept = f"{tree}/nvidia/lib64:{tree}/efa/lib"
    seen = installed("run", "--", "look", **leaks).json["env"]
    assert (kept, False, False) == (seen["LD_LIBRARY_PATH"], "PYTHONPATH" in seen, "CONDA_PREFIX" in seen)
    assert "False\n" == installed("run", "--", "python", "-c", LEAK, **leaks).out
    said = installed("run", "-v", "--", "true", **leaks).err
    assert f"{tree}/cuda-12.4/lib64 goes: it has libcudart.so, which the environment brings" in said
    assert f"{tree}/nvidia/lib64 stays" in said
    assert said == installed("env", "-v", **leaks).err
    lists = installed("env", "--json", **leaks).json["data"]["library_path"]
    assert [f"{tree}/nvidia/lib64", f"{tree}/efa/lib"] == [it["folder"] for it in lists["kept"]]
    assert [f"{tree}/cuda-12.4/lib64", f"{tree}/conda/lib"] == [it["folder"] for it in lists["dropped"]]
    assert "conda's" == lists["dropped"][1]["why"]


def test_inherit_lets_everything_in(installed, leaks):
    """`--inherit` leaves the caller's variables, modules and user site as they are."""
    seen = installed("run", "--inherit", "--", "look", **leaks).json["env"]
    assert leaks == {name: seen[name] for name in leaks}
    assert "True\n" == installed("run", "--inherit", "--", "python", "-c", LEAK, **leaks).out


@pytest.mark.parametrize("shell", [*SHELLS, "fish"])
def test_nothing_leaks_into_a_shell(installed, leaks, tree, shell):
    """After activation a shell has what may stay, and after `deactivate` what it had; `exports.sh` does the same."""
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not here")
    form = "fish" if shell == "fish" else "sh"
    text = installed("env", "--format", form, **leaks).out
    assert text == (installed.current / f"exports.{form}").read_text()
    show = "python -c 'import json, os; print(json.dumps(dict(os.environ)))'"
    words = [shutil.which(shell), *{"busybox": ["sh"], "fish": ["--no-config"], "zsh": ["-f"]}.get(shell, []), "-c"]
    script = f'{text}\n{show}\npython -c "{LEAK}"\ndeactivate\n{show}'
    variables = {name: value for name, value in installed.variables(**leaks).items() if name != "VERL_ENV_MATRIX"}
    done = subprocess.run([*words, script], env=variables, capture_output=True, text=True, check=False)
    assert ("", 0) == (done.stderr, done.returncode)
    active, leaked, after = done.stdout.splitlines()
    active, after = json.loads(active), json.loads(after)
    assert f"{tree}/nvidia/lib64:{tree}/efa/lib" == active["LD_LIBRARY_PATH"]
    assert ("False", False, False) == (leaked, "PYTHONPATH" in active, "CONDA_PREFIX" in active)
    assert leaks == {name: after[name] for name in leaks}
    assert {"VIRTUAL_ENV", "PYTHONNOUSERSITE"}.isdisjoint(after)


def test_a_loader_takes_what_stays(tree, environment):
    """The real loader, given the filtered list, finds the driver's library and none of another toolkit's."""
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler is here")
    program = tree / "program"
    source = '#include <dlfcn.h>\n#include <stdio.h>\nint main(int n, char **a) { void *h = dlopen(a[1], RTLD_LAZY); puts(h ? "found" : "not found"); return 0; }\n'
    subprocess.run([compiler, "-x", "c", "-", "-o", program, "-ldl"], input=source, text=True, check=True)
    value = f"{tree}/cuda-12.4/lib64:{tree}/nvidia/lib64"
    kept = joined(judge_parts(value, environment, owned_libraries(environment)))

    def found(name, path):
        done = subprocess.run(
            [program, name], env={"LD_LIBRARY_PATH": path}, capture_output=True, text=True, check=True
        )
        return "found" == done.stdout.strip()

    assert (True, True) == (found("libcudart.so.12", value), found("libcuda.so.1", value))
    assert (False, True) == (found("libcudart.so.12", kept), found("libcuda.so.1", kept))
