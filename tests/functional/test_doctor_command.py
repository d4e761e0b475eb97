"""`verl-env doctor` as a user runs it, with faults that are really there."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import socket
import struct
import subprocess
import sys
import threading

import pytest

from doctored import as_somebody, distribution, doctor, doctor_within, ids, made_venv, of, said_by_venv

TOKEN = "hf_" + "t0ken" * 4
LINE = "ImportError: libcudart.so.13: cannot open shared object file: No such file or directory\n"


# --log


def test_log_of_a_file(tool, tmp_path):
    """A log is explained as JSON, with the exit code of findings."""
    (tmp_path / "run.log").write_text(f"INFO start\n(WorkerDict pid=7) {LINE}")
    done = doctor(tool, "--log", tmp_path / "run.log")
    first = done.json["data"]["explanations"][0]
    assert (8, "libcudart-missing", "high") == (done.code, first["class"], first["confidence"])
    assert [{"line": 2, "worker": "WorkerDict pid=7", "text": LINE.strip()}] == first["evidence"]
    assert {"cause", "remedy"} < set(first)


def test_log_on_stdin(tool):
    """`-` reads stdin."""
    child = subprocess.run(
        [sys.executable, "-m", "verl_env", "doctor", "--log", "-"],
        input=LINE,
        env=tool.variables(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (8, True) == (child.returncode, "libcudart-missing" in child.stdout)


def test_log_compressed(tool, tmp_path):
    """A log that was compressed is read."""
    (tmp_path / "run.log.gz").write_bytes(gzip.compress(LINE.encode()))
    assert 8 == doctor(tool, "--log", tmp_path / "run.log.gz").code


def test_log_not_known(tool, tmp_path):
    """A log that nothing explains says so, and exits with 0."""
    (tmp_path / "run.log").write_text("KeyError: 'prompt'\n")
    done = tool("doctor", "--log", tmp_path / "run.log")
    assert (0, True) == (done.code, done.out.startswith("not known"))


def test_log_that_is_not_there(tool):
    """A missing log is an error of the arguments."""
    done = doctor(tool, "--log", "/nonexistent/run.log")
    assert (2, "usage") == (done.code, done.json["errors"][0]["code"])


def test_log_held_against_a_described_node(tool, tmp_path):
    """A node that is described confirms, or doubts."""
    (tmp_path / "run.log").write_text("libc.so.6: version `GLIBC_2.34' not found (required by a.so)\n")
    said = [
        doctor(tool, "--log", tmp_path / "run.log", "--glibc", glibc).json["data"]["explanations"][0]
        for glibc in ("2.31", "2.39")
    ]
    assert ["high", "medium"] == [one["confidence"] for one in said]
    assert "confirmed here: glibc is 2.31" in said[0]["node"]


def test_log_hides_secrets(tool, tmp_path):
    """A token in a line of evidence is not printed."""
    (tmp_path / "run.log").write_text(f"HF_TOKEN=hf_abcdefghijklmnopqrstuv {LINE}")
    done = doctor(tool, "--log", tmp_path / "run.log")
    assert "hf_abcdefghij" not in done.out


# the shell


def test_polluted_pythonpath(tool, tmp_path):
    """A PYTHONPATH that holds a package of the stack is an error, and names it."""
    (tmp_path / "leak/torch").mkdir(parents=True)
    (tmp_path / "leak/torch/__init__.py").touch()
    path = os.pathsep.join([str(tmp_path / "leak"), tool.variables()["PYTHONPATH"]])
    finding = of(doctor(tool, "--only", "shell", PYTHONPATH=path), "pythonpath-set")
    assert ("error", True) == (finding["severity"], "it holds torch" in finding["evidence"])


def test_conda_like_library_path(tool, tmp_path):
    """A folder with an own libstdc++ and libcudart on LD_LIBRARY_PATH is named; the driver's folder is not."""
    for name in (
        "conda/lib/libstdc++.so.6",
        "conda/lib/libcudart.so.12",
        "driver/libcuda.so.1",
        "driver/libnccl-net.so",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    path = f"{tmp_path}/conda/lib:{tmp_path}/driver"
    finding = of(doctor(tool, "--only", "shell", LD_LIBRARY_PATH=path), "library-path-shadows")
    assert f"{tmp_path}/conda/lib: libcudart.so, libstdc++.so" in finding["evidence"]
    assert "driver" not in finding["evidence"]


def test_user_site(tool):
    """Packages of the stack in ~/.local are named."""
    site = tool.home / ".local/lib/python3.11/site-packages/ray"
    site.mkdir(parents=True)
    (site / "__init__.py").touch()
    assert "holds ray" in of(doctor(tool, "--only", "shell"), "user-site-leaks")["evidence"]
    assert "user-site-leaks" not in ids(doctor(tool, "--only", "shell", PYTHONNOUSERSITE="1"))


@pytest.mark.parametrize(
    ("variables", "expected", "seen"),
    [
        ({"CUDA_HOME": ":/usr/local/cuda"}, "cuda-home-broken", "a list or blanks"),
        ({"CUDA_HOME": "/nonexistent/cuda"}, "cuda-home-broken", "no such folder"),
        ({"CUDA_HOME": "/"}, "cuda-home-broken", "no bin/nvcc"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1c2d3e4f"}, "visible-devices", "GPU-1c2d3e4f"),
        ({"CUDA_VISIBLE_DEVICES": "0,0"}, "visible-devices", "twice"),
        ({"CUDA_VISIBLE_DEVICES": "MIG-1c2d3e4f"}, "visible-devices-mig", "MIG-1c2d3e4f"),
        ({"CONDA_PREFIX": "/opt/conda"}, "conda-active", "/opt/conda"),
        ({"LD_PRELOAD": ""}, None, ""),
        ({"LD_PRELOAD": "libm.so.6"}, "preload-set", "libm.so.6"),
        ({"PYTHONHOME": sys.base_prefix}, "pythonhome-set", sys.base_prefix),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, None, ""),
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, "expandable-segments", "PYTORCH_CUDA_ALLOC_CONF"),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, "allocator-blocking", "CUDA_LAUNCH_BLOCKING"),
    ],
)
def test_variables(tool, variables, expected, seen):
    """Each variable that changes what runs gives its finding, and a harmless value none."""
    done = doctor(tool, "--only", "shell", **variables)
    found = [name for name in ids(done) if name != "pythonpath-set"]
    assert ([expected] if expected else []) == found
    assert expected is None or seen in of(done, expected)["evidence"]


# room


@pytest.fixture
def small_tmpfs(tmp_path):
    """Mount a tmpfs of 1 MB; skip where that is not allowed."""
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("this user may not mount a tmpfs")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_full_temporary_folder(tool, small_tmpfs):
    """A temporary folder that is full cannot be written, and nothing of the probe stays."""
    (small_tmpfs / "fill").write_bytes(b"x" * (1 << 20))
    done = doctor(tool, "--only", "room", "--only", "build", TMPDIR=str(small_tmpfs))
    finding = of(done, "tmp-not-writable")
    assert "compiler-broken" not in ids(done)
    assert ("No space left on device", ["fill"]) == (finding["evidence"].rpartition(": ")[2], os.listdir(small_tmpfs))


def test_small_temporary_folder(tool, small_tmpfs):
    """A temporary folder with little room is named with what is free."""
    assert "1.0 MB free" in of(doctor(tool, "--only", "room", TMPDIR=str(small_tmpfs)), "tmp-full")["evidence"]


def test_small_folders_of_environments_and_models(tool, small_tmpfs):
    """Environments and models in places with little room are named with what is free."""
    folder = str(small_tmpfs)
    done = doctor(tool, "--only", "room", "--only", "huggingface", VERL_ENV_HOME=folder, HF_HOME=folder)
    assert f"{small_tmpfs}/environments: 1.0 MB free" in of(done, "home-full")["evidence"]
    assert f"{small_tmpfs}/hub: 1.0 MB free" in of(done, "hf-full")["evidence"]


def test_few_open_files(tool):
    """A low limit of open files is named."""
    done = doctor_within(tool, ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh"], "--only", "room")
    assert "ulimit -n is 256" in of(done, "open-files-low")["evidence"]


# environments


def test_no_environment(tool):
    """Without an environment in use, that is said, with how to get one."""
    assert ["no-environment"] == ids(doctor(tool, "--only", "environment"))


def test_python_by_path(tool):
    """Any Python can be looked at; one that starts and has nothing of the stack gives no error."""
    done = doctor(tool, sys.executable, "--only", "environment")
    assert [] == [it["id"] for it in done.json["data"]["findings"] if it["severity"] == "error"]


def test_python_without_headers(tool, tmp_path):
    """A Python whose Python.h is missing is named."""
    folder = made_venv(
        tmp_path,
        said_by_venv(include="/nonexistent/include"),
    )
    assert "/nonexistent/include/Python.h" in of(doctor(tool, folder, "--only", "build"), "python-headers")["evidence"]


def test_python_of_two_versions(tool, tmp_path):
    """A Python that names a libpython of another minor is an error."""
    folder = made_venv(
        tmp_path,
        said_by_venv(shared=True, library="libpython3.12.so.1.0", libdir="/"),
    )
    assert "libpython3.12.so.1.0" in of(doctor(tool, folder, "--only", "environment"), "python-libpython")["evidence"]


def test_python_that_does_not_start(tool, tmp_path):
    """A Python that ends with an error is named with its words."""
    folder = made_venv(tmp_path, "", "echo 'error while loading shared libraries: libpython3.11.so.1.0' >&2; exit 127")
    assert "libpython3.11.so.1.0" in of(doctor(tool, folder, "--only", "environment"), "environment-broken")["evidence"]


def test_two_cuda_majors(tool, tmp_path):
    """Packages of two CUDA majors in one environment are an error that names them."""
    folder = made_venv(tmp_path, said_by_venv())
    distribution(folder, "torch", "2.9.1+cu128")
    distribution(folder, "nvidia-cuda-runtime-cu12", "12.8.90")
    distribution(folder, "nvidia-cuda-runtime", "13.0.96")
    assert "two-cuda-majors" in ids(doctor(tool, folder, "--only", "environment"))


def test_flashinfer_versions(tool, tmp_path):
    """Packages of flashinfer of different versions are an error."""
    folder = made_venv(tmp_path, said_by_venv())
    for name, version in (("torch", "2.11.0+cu130"), ("flashinfer-python", "0.6.12"), ("flashinfer-cubin", "0.6.9")):
        distribution(folder, name, version)
    assert "flashinfer-versions" in of(doctor(tool, folder, "--only", "environment"), "set-incoherent")["evidence"]


def test_cpu_torch_where_a_gpu_is(tool, tmp_path):
    """A CPU torch is an error on a node with a GPU."""
    folder = made_venv(tmp_path, said_by_venv())
    distribution(folder, "torch", "2.13.0+cpu")
    done = doctor(tool, folder, "--only", "environment", "--driver", "580.95.05", "--gpu", "h200")
    assert "torch 2.13.0+cpu" in of(done, "torch-cpu-on-gpu")["evidence"]


def test_no_compiler(tool, tmp_path):
    """Without gcc and clang on PATH, that is said; a CC that is not there too."""
    assert "neither gcc nor clang" in of(doctor(tool, "--only", "build", PATH=str(tmp_path)), "no-compiler")["evidence"]
    assert "CC=`nocc`" in of(doctor(tool, "--only", "build", CC="nocc"), "no-compiler")["evidence"]


def test_broken_compiler(tool, tmp_path):
    """A compiler that cannot compile is named with its words."""
    fake = tmp_path / "gcc"
    said = ["probe.c:1:10: fatal error: stdint.h: No such file or directory", "compilation terminated."]
    fake.write_text(f"#!/bin/sh\nprintf '%s\\n' '{said[0]}' '{said[1]}' >&2; exit 1\n")
    fake.chmod(0o755)
    done = doctor(tool, "--only", "build", PATH=str(tmp_path))
    assert f"{fake}: {said[0]}" == of(done, "compiler-broken")["evidence"]


# Hugging Face


def test_unwritable_cache(tool, tmp_path):
    """A cache that may not be written is an error that names variable and folder."""
    folder = tmp_path / "hf"
    folder.mkdir(mode=0o555)
    done = doctor_within(tool, as_somebody(), "--only", "huggingface", HF_HOME=str(folder))
    assert f"{folder} (HF_HOME): Permission denied" == of(done, "hf-home-not-writable")["evidence"]


def test_cache_on_a_read_only_place(tool):
    """A cache on a file system that nobody can write, root neither, is an error."""
    done = doctor(tool, "--only", "huggingface", HF_HOME="/proc/hf")
    assert ["hf-home-not-writable"] == ids(done)
    assert "/proc/hf" in of(done, "hf-home-not-writable")["evidence"]


def test_cache_that_is_a_file(tool, tmp_path):
    """A file where the cache should be is an error."""
    (tmp_path / "hf").touch()
    assert (
        "is not a folder"
        in of(doctor(tool, "--only", "huggingface", HF_HOME=str(tmp_path / "hf")), "hf-home-not-writable")["evidence"]
    )


def test_two_caches_and_flags(tool, tmp_path):
    """Models in the default cache while HF_HOME is elsewhere, offline flags and old variables are named."""
    (tool.home / ".cache/huggingface/hub/models--a--b").mkdir(parents=True)
    done = doctor(
        tool,
        "--only",
        "huggingface",
        HF_HOME=str(tmp_path / "hf"),
        HF_HUB_OFFLINE="1",
        TRANSFORMERS_CACHE="/x",
        HUGGING_FACE_HUB_TOKEN=TOKEN,
    )
    assert {"hf-two-caches", "hf-offline", "hf-legacy-variable"} <= set(ids(done))
    assert TOKEN not in done.out


def tensors(path, size, *, cut=0):
    """Write a safetensors file with one tensor."""
    header = json.dumps({"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * (size - cut))


def model(folder, **config):
    """Lay out a model's folder."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "tiny", **config}))
    (folder / "tokenizer.json").write_text("{}")
    return folder


def test_model_whole(tool, tmp_path):
    """A whole model gives no finding."""
    folder = model(tmp_path / "m")
    tensors(folder / "model.safetensors", 10)
    assert (0, []) == ((done := doctor(tool, "--only", "gpu", "--hf-model", folder)).code, ids(done))


def test_model_incomplete(tool, tmp_path):
    """Shards that the index names and are missing, cut off or empty are named; code of its own too."""
    folder = model(tmp_path / "m", auto_map={"AutoModel": "modeling.M"})
    tensors(folder / "s1.safetensors", 10, cut=3)
    (folder / "s3.safetensors").touch()
    shards = {"a": "s1.safetensors", "b": "s2.safetensors", "c": "s3.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    done = doctor(tool, "--only", "gpu", "--hf-model", folder)
    evidence = of(done, "hf-model-incomplete")["evidence"]
    assert ["hf-model-incomplete", "hf-model-code"] == ids(done)
    assert all(
        words in evidence for words in ("s1.safetensors has", "s2.safetensors is missing", "s3.safetensors is empty")
    )


def test_model_in_the_cache(tool, tmp_path):
    """A cached model is found through its refs; an unfinished download is named."""
    hub = tmp_path / "hf/hub/models--org--tiny"
    snapshot = model(hub / "snapshots/abc")
    tensors(snapshot / "model.safetensors", 10)
    (hub / "refs").mkdir()
    (hub / "refs/main").write_text("abc")
    assert [] == ids(doctor(tool, "--only", "gpu", "--hf-model", "org/tiny", HF_HOME=str(tmp_path / "hf")))
    (hub / "blobs").mkdir()
    (hub / "blobs/x.incomplete").write_bytes(b"12345")
    done = doctor(tool, "--only", "gpu", "--hf-model", "org/tiny", HF_HOME=str(tmp_path / "hf"))
    assert "1 unfinished downloads, 5 B" in of(done, "hf-model-incomplete")["evidence"]


def test_model_absent_and_offline(tool, tmp_path):
    """A model that is not cached while downloads are off is an error."""
    done = doctor(tool, "--only", "gpu", "--hf-model", "org/none", HF_HOME=str(tmp_path), HF_HUB_OFFLINE="1")
    assert "HF_HUB_OFFLINE=1" in of(done, "hf-model-missing")["evidence"]


@pytest.fixture
def hub():
    """Serve a hub on loopback that answers what it is told."""
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.seen.append(self.headers.get("authorization"))
            self.send_response(self.server.status)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.seen, server.status = [], 200
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "expected"),
    [(200, "hf-model-missing"), (401, "hf-no-token"), (403, "hf-no-token"), (404, "hf-model-missing")],
)
def test_model_of_a_hub(tool, tmp_path, hub, status, expected):
    """What the hub answers becomes the finding; the token is sent and never shown."""
    hub.status = status
    endpoint = f"http://127.0.0.1:{hub.server_port}"
    done = doctor(
        tool,
        "--only",
        "gpu",
        "--hf-model",
        "org/gated",
        HF_HOME=str(tmp_path),
        HF_ENDPOINT=endpoint,
        HF_TOKEN=TOKEN,
    )
    assert ([expected], [f"Bearer {TOKEN}"]) == (ids(done), hub.seen)
    assert TOKEN not in done.out + done.err


def test_hub_out_of_reach(tool, tmp_path):
    """A hub that refuses connections is out of reach."""
    done = doctor(tool, "--only", "gpu", "--hf-model", "org/x", HF_HOME=str(tmp_path), HF_ENDPOINT="http://127.0.0.1:9")
    assert ["hf-unreachable"] == ids(done)


# Ray


def test_dashboard_port(tool):
    """RAY_ADDRESS with the dashboard's port is named, with what belongs there."""
    finding = of(doctor(tool, "--only", "ray", RAY_ADDRESS="http://10.0.0.1:8265"), "ray-dashboard-port")
    assert "10.0.0.1:6379" in finding["action"]


@pytest.fixture
def listen():
    """Return a function that gives an address where each greeting has one answer."""
    servers = []

    def start(answer):
        servers.append(socket.create_server(("127.0.0.1", 0)))
        threading.Thread(target=serve, args=(servers[-1], answer), daemon=True).start()
        return f"127.0.0.1:{servers[-1].getsockname()[1]}"

    yield start
    for server in servers:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def serve(server, answer):
    """Answer everybody until the server is closed."""
    with contextlib.suppress(OSError):
        while True:
            with server.accept()[0] as stream:
                stream.recv(1024)
                stream.sendall(answer)


SETTINGS = b"\0\0\0\x04\0\0\0\0\0"  # of HTTP/2, as a gRPC server begins


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(SETTINGS, None), (b"HTTP/1.1 400 Bad Request\r\n\r\n", "somebody else"), (b"", "somebody else")],
    ids=["head", "web-server", "hangs-up"],
)
def test_who_answers(tool, listen, answer, expected):
    """Only what speaks as a Ray head does is taken for one."""
    found = {it["id"]: it["evidence"] for it in ray_findings(tool, RAY_ADDRESS=listen(answer))}
    assert (expected is not None) == ("ray-unreachable" in found)
    assert expected is None or expected in found["ray-unreachable"]


def test_nobody_answers(tool):
    """A head that refuses is an error."""
    found = {it["id"]: it["evidence"] for it in ray_findings(tool, RAY_ADDRESS="127.0.0.1:9")}
    assert "RAY_ADDRESS=`127.0.0.1:9`: Connection refused" == found["ray-unreachable"]


def test_loopback_in_a_container(tool):
    """In a container, a head at loopback that does not answer is the container itself."""
    variables = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "RAY_ADDRESS": "127.0.0.1:9"}
    assert {"ray-address-loopback", "ray-unreachable"} <= {it["id"] for it in ray_findings(tool, **variables)}


def ray_findings(tool, **variables):
    """Return what doctor finds of Ray, whatever this machine's own Ray left."""
    return doctor(tool, "--only", "ray", RAY_TMPDIR=str(tool.work), **variables).json["data"]["findings"]


def test_stale_session(tool, tmp_path):
    """A remembered cluster that does not answer is named with the file that remembers it."""
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray/ray_current_cluster").write_text("127.0.0.1:9")
    finding = of(doctor(tool, "--only", "ray", RAY_TMPDIR=str(tmp_path)), "ray-stale-session")
    assert finding["evidence"].startswith(f"{tmp_path}/ray/ray_current_cluster says 127.0.0.1:9: ")


def test_long_temporary_path(tool, tmp_path):
    """A temporary folder that leaves no room for a socket's name is an error."""
    assert ["ray-temp-path"] == ids(doctor(tool, "--only", "ray", RAY_TMPDIR=str(tmp_path / ("x" * 60))))


# the command itself


def test_clean(tool):
    """Nothing wrong: exit code 0, and where was looked."""
    done = tool("doctor", "--deep", "--only", "gpu", "--driver", "580.95.05", "--gpu", "h200")
    assert (0, "nothing found\nlooked at: gpu\n") == (done.code, done.out)


def test_skip(tool):
    """An area that is skipped is not looked at."""
    done = doctor(tool, "--skip", "environment", "--skip", "shell", "--skip", "node", "--skip", "gpu")
    assert ["room", "build", "huggingface", "ray"] == done.json["data"]["areas"]


def test_text_has_every_part(tool):
    """A finding is told with what, where, why and what to do, and counted."""
    done = tool("doctor", "--only", "environment")
    assert ["warning: no environment", "  seen  ", "  why   ", "  do    "] == [
        line[:23] if number == 0 else line[:8] for number, line in enumerate(done.out.splitlines()[:4])
    ]
    assert "1 warning" in done.out


def test_request_for_an_administrator():
    """Where only an administrator can act, the request is written out."""
    from verl_env.commands.doctor import plain
    from verl_env.node.facts import Finding

    finding = Finding(id="fabric-manager", severity="error", what="w", evidence="cuInit: 802", why="y", action="a")
    assert "Please install nvidia-fabricmanager" in plain(finding)["request"]
    assert "cuInit: 802" in plain(finding)["request"]


def test_nothing_is_left(tool):
    """Doctor writes nothing into the home, and leaves no process."""
    before = sorted(str(it) for it in tool.home.rglob("*"))
    doctor(tool)
    assert before == sorted(str(it) for it in tool.home.rglob("*"))
