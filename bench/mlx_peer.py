"""mlx-lm by itself, as a program: `densify FROM TO`, `loop MODEL TOKENS`, `server MODEL PORT`.

Run by bench/serve.py, with the matrix library that exo's own runners use.
"""

# pyright: basic
# mlx-lm has no types worth checking against.

import json
import shutil
import sys
import time
from pathlib import Path

from exo.runners.blas import load_blas

load_blas()

import mlx.core as mx  # noqa: E402 - the matrix library must be chosen first
from mlx.utils import tree_flatten, tree_map  # noqa: E402
from mlx_lm import load, server, stream_generate  # noqa: E402
from mlx_lm.sample_utils import make_sampler  # noqa: E402
from mlx_lm.utils import dequantize_model  # noqa: E402

PROMPT = "Explain in three sentences why the sky is blue. Variant 0."


def densify(source: Path, target: Path) -> None:
    """Write the weights as dense float32, as exo's loader computes with them on a CPU."""
    model = load(str(source))[0]
    model = dequantize_model(model)
    model.update(tree_map(lambda weight: weight.astype(mx.float32), model.parameters()))
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors*"))
    config = json.loads((source / "config.json").read_text())
    config.pop("quantization", None)
    config.pop("quantization_config", None)
    (target / "config.json").write_text(json.dumps(config))
    mx.save_safetensors(str(target / "model.safetensors"), dict(tree_flatten(model.parameters())), {"format": "mlx"})


def loop(model_path: str, tokens: int) -> None:
    """Print the decode speed of one stream without any server, in tokens per second."""
    model, tokenizer = load(model_path)[:2]
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": PROMPT}], add_generation_prompt=True)
    speeds: list[float] = []
    for _ in range(2):
        times = [
            time.perf_counter()
            for _ in stream_generate(model, tokenizer, prompt, max_tokens=tokens, sampler=make_sampler(temp=0.0))
        ]
        speeds.append((len(times) - 1) / (times[-1] - times[0]))
    print(json.dumps({"tokens_per_second": speeds[-1]}))


def main() -> None:
    """Do what the command line says."""
    verb, first, second = sys.argv[1:4]
    if verb == "densify":
        densify(Path(first), Path(second))
    elif verb == "loop":
        loop(first, int(second))
    else:
        sys.argv = ["mlx_lm.server", "--model", first, "--host", "127.0.0.1", "--port", second]
        server.main()


if __name__ == "__main__":
    main()
