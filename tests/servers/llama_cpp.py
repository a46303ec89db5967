"""llama.cpp's server with a tiny random model, until its input ends. Run by a Python that has xllamacpp and gguf.

Arguments: the port, a folder for the model, and how many requests it works on at a time (2).
"""

import sys
from pathlib import Path

import gguf
import numpy as np
import xllamacpp

WORDS, WIDTH, LAYERS, HEADS, INNER = 512, 64, 2, 4, 128


def write_model(path):
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(2048)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(WORDS)
    writer.add_file_type(0)
    tokens = [b"<unk>", b"<s>", b"</s>", *(f"<0x{i:02X}>".encode() for i in range(256))]
    words = [f"\u2581w{i}".encode() for i in range(WORDS - len(tokens))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*tokens, *words])
    writer.add_token_scores([0.0] * 3 + [-1000.0] * 256 + [-float(i) for i in range(len(words))])
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * len(words))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)

    def random(name, *shape):
        writer.add_tensor(name, (0.05 * rng.standard_normal(shape)).astype(np.float32))

    random("token_embd.weight", WORDS, WIDTH)
    random("output.weight", WORDS, WIDTH)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for layer in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(WIDTH, np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            random(f"blk.{layer}.{name}.weight", WIDTH, WIDTH)
        random(f"blk.{layer}.ffn_gate.weight", INNER, WIDTH)
        random(f"blk.{layer}.ffn_up.weight", INNER, WIDTH)
        random(f"blk.{layer}.ffn_down.weight", WIDTH, INNER)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


port, folder = int(sys.argv[1]), Path(sys.argv[2])
write_model(folder / "tiny.gguf")
params = xllamacpp.CommonParams()
params.model.path = str(folder / "tiny.gguf")
params.n_parallel = int((*sys.argv, 2)[3])
params.n_ctx, params.cpuparams.n_threads = 2048 * params.n_parallel, 1
params.endpoint_metrics = True
params.hostnames, params.port = ["127.0.0.1"], port
server = xllamacpp.Server(params)
print("ready", flush=True)
sys.stdin.read()
