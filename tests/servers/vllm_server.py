"""vLLM on the CPU with a tiny model of random weights, until its input ends. Run by a Python that has vLLM.

Arguments: the port, and a folder for the model and vLLM's files. Prompts are token ids: there is no tokenizer.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}

OPTIONS = (
    "--served-model-name=chat --load-format=dummy --skip-tokenizer-init --dtype=float32 --max-model-len=512 "
    "--enforce-eager --max-num-seqs=4 --host=127.0.0.1"
)

SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}

START_SECONDS = 900


def answers(url):
    try:
        return urllib.request.urlopen(url, timeout=5).status == 200
    except OSError:
        return False


port, folder = sys.argv[1], Path(sys.argv[2])
(folder / "config.json").write_text(json.dumps(MODEL))
command = [str(Path(sys.executable).parent / "vllm"), "serve", str(folder), f"--port={port}", *OPTIONS.split()]
with (folder / "log").open("wb") as log:
    process = subprocess.Popen(
        command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=os.environ | SETTINGS | {"HOME": str(folder)}
    )
began = time.monotonic()
while process.poll() is None and not answers(f"http://127.0.0.1:{port}/health"):
    if time.monotonic() - began > START_SECONDS:
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)
if process.poll() is not None:
    sys.exit((folder / "log").read_text()[-4000:])
print("ready", flush=True)
sys.stdin.read()
process.terminate()
process.wait(60)
