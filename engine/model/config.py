"""What a model directory says of its model: config.json and generation_config.json become one checked ModelConfig.

Reads small JSON files only; imports no torch. Owned by whoever asked. Every refusal is a ModelError that names the
file and what to do. Nothing in the directory is ever executed: `auto_map` and Python files are not looked at."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from engine.errors import ModelError

ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
DTYPES = ("float32", "bfloat16", "float16")
_MAX_JSON_BYTES = 16 * 1024**2
_MAX_DIMENSION = 1 << 24
"""No count in config.json may be larger: a typing error must not become an allocation."""
MAX_NUMBER = 1e300
"""JSON has numbers that no float can hold."""
Json = dict[str, object]


class RopeScaling(Struct, frozen=True, kw_only=True):
    """Llama 3's stretch of the low rope frequencies."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


class ModelConfig(Struct, frozen=True, kw_only=True):
    """The shape of a decoder. Sizes in elements."""

    architecture: str
    family: str
    """llama, mistral, qwen2 or qwen3"""
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position_embeddings: int
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    tie_word_embeddings: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    dtype: str = "bfloat16"
    """What the weights were saved in; the engine may be told another."""
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None

    @classmethod
    def from_dir(cls, path: str | Path, max_model_len: int | None = None) -> ModelConfig:
        """Reads and checks. `max_model_len` permits a sliding window that long. Raises ModelError."""
        directory = Path(path)
        _check_directory(directory)
        file = directory / "config.json"
        raw = read_json(file)
        return _build(raw, file, _generation_config(directory), max_model_len)

    def kv_bytes_per_block(self, block_size: int, dtype_bytes: int) -> int:
        """Bytes of one KV block of `block_size` tokens: keys and values of every layer."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * block_size * dtype_bytes

    @property
    def q_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim


def read_json(file: Path) -> Json:
    """A JSON object from a regular file of sane size. Raises ModelError."""
    if not file.exists():
        raise ModelError(f"{file}: missing; the model directory is incomplete, download or convert it again")
    if not file.is_file():
        raise ModelError(f"{file}: not a regular file")
    size = file.stat().st_size
    if size > _MAX_JSON_BYTES:
        raise ModelError(f"{file}: {size} bytes is too large for a JSON settings file; download it again")
    try:
        value = msgspec.json.decode(file.read_bytes())
    except OSError as error:
        raise ModelError(f"{file}: cannot be read ({error.strerror})") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"{file}: not valid JSON ({error}); download it again") from None
    if not isinstance(value, dict):
        raise ModelError(f"{file}: a JSON object was expected, not {type(value).__name__}; download it again")
    return value


def _check_directory(directory: Path) -> None:
    if not directory.exists():
        raise ModelError(f"{directory}: no such model directory; give a directory with config.json and *.safetensors")
    if directory.suffix == ".gguf" and directory.is_file():
        raise ModelError(
            f"{directory}: a GGUF file must be converted first: python -m engine.model.gguf {directory} DIR"
        )
    if not directory.is_dir():
        raise ModelError(f"{directory}: not a directory; give a directory with config.json and *.safetensors")
    if not (directory / "config.json").exists():
        raise ModelError(f"{directory / 'config.json'}: missing; is this a Hugging Face model directory?")
    names = {entry.name for entry in directory.iterdir()}
    if not any(name.endswith((".safetensors", ".safetensors.index.json")) for name in names):
        _refuse_without_weights(directory, names)
    if "tokenizer.json" not in names:
        raise ModelError(f"{directory / 'tokenizer.json'}: missing; download it too, prompts cannot be tokenised")


def _refuse_without_weights(directory: Path, names: set[str]) -> None:
    pickles = sorted(name for name in names if name.endswith((".bin", ".pt", ".pth", ".ckpt", ".pkl")))
    if pickles:
        raise ModelError(
            f"{directory / pickles[0]}: pickled weights are never loaded; get the .safetensors files of this model"
        )
    raise ModelError(f"{directory}: no *.safetensors weights; download them again")


def _generation_config(directory: Path) -> Json:
    file = directory / "generation_config.json"
    return read_json(file) if file.exists() else {}


def _build(raw: Json, file: Path, generation: Json, max_model_len: int | None) -> ModelConfig:
    architecture = _architecture(raw, file)
    family = ARCHITECTURES[architecture]
    _refuse_unsupported(raw, file)
    heads = _count(raw, "num_attention_heads", file)
    kv_heads = _count(raw, "num_key_value_heads", file, default=heads)
    hidden = _count(raw, "hidden_size", file)
    head_dim = _count(raw, "head_dim", file, default=hidden // heads)
    if heads % kv_heads or head_dim % 2:
        raise ModelError(f"{file}: {heads} heads over {kv_heads} KV heads of size {head_dim} do not divide evenly")
    max_positions = _count(raw, "max_position_embeddings", file, default=2048)
    _check_sliding_window(raw, file, min(max_positions, max_model_len or max_positions))
    theta, scaling = _rope(raw, file)
    vocab_size = _count(raw, "vocab_size", file)
    return ModelConfig(
        architecture=architecture,
        family=family,
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=_count(raw, "intermediate_size", file),
        num_layers=_count(raw, "num_hidden_layers", file),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        rms_norm_eps=_number(raw, "rms_norm_eps", file, 1e-6),
        max_position_embeddings=max_positions,
        rope_theta=theta,
        rope_scaling=scaling,
        tie_word_embeddings=raw.get("tie_word_embeddings", False) is True,
        qkv_bias=family == "qwen2" or raw.get("attention_bias") is True,
        o_bias=family != "qwen2" and raw.get("attention_bias") is True,
        qk_norm=family == "qwen3",
        dtype=_dtype(raw, file),
        eos_token_ids=_eos(raw, generation, vocab_size),
        bos_token_id=_first_id(generation.get("bos_token_id", raw.get("bos_token_id"))),
    )


def _architecture(raw: Json, file: Path) -> str:
    names = raw.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if not isinstance(name, str) or name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ModelError(f"{file}: architecture {name!r} is not supported; supported are {known}")
    return name


def _refuse_unsupported(raw: Json, file: Path) -> None:
    if raw.get("quantization_config") is not None:
        raise ModelError(f"{file}: quantised safetensors are not supported; use the unquantised model")
    if raw.get("mlp_bias") is True:
        raise ModelError(f"{file}: mlp_bias is not supported")
    if raw.get("hidden_act", "silu") != "silu":
        raise ModelError(f"{file}: activation {raw.get('hidden_act')!r} is not supported, only 'silu'")


def _check_sliding_window(raw: Json, file: Path, limit: int) -> None:
    window = raw.get("sliding_window")
    if not isinstance(window, int) or raw.get("use_sliding_window") is False or window >= limit:
        return
    raise ModelError(
        f"{file}: sliding-window attention over {window} tokens is not supported; use --max-model-len {window} or less"
    )


def _rope(raw: Json, file: Path) -> tuple[float, RopeScaling | None]:
    """transformers 5 keeps all of it in rope_parameters; older files have rope_theta and rope_scaling."""
    rope: Json = {}
    for key in ("rope_scaling", "rope_parameters"):
        value = raw.get(key)
        if isinstance(value, dict):
            rope = {**rope, **value}
    theta = _number({**raw, **rope}, "rope_theta", file, 10000.0)
    partial = _number({**raw, **rope}, "partial_rotary_factor", file, 1.0)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "llama3") or partial != 1.0:
        raise ModelError(f"{file}: rope type {kind!r} is not supported, only 'default' and 'llama3'")
    if kind == "default":
        return theta, None
    return theta, RopeScaling(
        factor=_number(rope, "factor", file),
        low_freq_factor=_number(rope, "low_freq_factor", file),
        high_freq_factor=_number(rope, "high_freq_factor", file),
        original_max_position_embeddings=_count(rope, "original_max_position_embeddings", file),
    )


def _dtype(raw: Json, file: Path) -> str:
    name = raw.get("dtype", raw.get("torch_dtype")) or "float32"
    if name not in DTYPES:
        raise ModelError(f"{file}: dtype {name!r} is not supported; one of {', '.join(DTYPES)}")
    return str(name)


def _eos(raw: Json, generation: Json, vocab_size: int) -> tuple[int, ...]:
    value = generation.get("eos_token_id")
    if value is None:
        value = raw.get("eos_token_id")
    ids = value if isinstance(value, list) else [value]
    return tuple(i for i in ids if isinstance(i, int) and 0 <= i < vocab_size)


def _first_id(value: object) -> int | None:
    if isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, int) else None


def _count(raw: Json, key: str, file: Path, default: int | None = None) -> int:
    value = raw.get(key)
    if value is None and default is not None:
        value = default
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MAX_DIMENSION:
        raise ModelError(f"{file}: {key} is {value!r}, a count from 1 to {_MAX_DIMENSION} was expected")
    return value


def _number(raw: Json, key: str, file: Path, default: float | None = None) -> float:
    value = raw.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < MAX_NUMBER:
        raise ModelError(f"{file}: {key} is {str(value)[:80]}, a positive number was expected")
    return float(value)
