"""The executor that runs the model in the engine's own process.

Enters: SchedulerOutput. Leaves: ModelRunnerOutput. Owns a Worker with weights and KV cache. Main thread only; ends
with shutdown(). An exception out of execute_model means that no step can run."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import torch
from torch import Tensor

from engine.config import EngineConfig
from engine.executor.base import Executor, ModelInfo, Progress
from engine.executor.heap import Heap, return_memory
from engine.executor.worker import Worker
from engine.messages import SamplingParams
from engine.model.attention import KVCache
from engine.model.config import ModelConfig
from engine.model.decoder import Decoder, rope_table
from engine.model.device import available_cores, choose_target, type_name
from engine.model.inputs import Row
from engine.model.loader import LayerWeights, Target, Weights, load_weights
from engine.model.native.bindings import Library
from engine.model.native.decoder import NativeDecoder
from engine.model.native.kernels import Kernels
from engine.model.quantise import BITS, round_weights
from engine.model.sampler import Sampler
from engine.model.sampler_state import SamplerState
from engine.scheduler.output import ModelRunnerOutput, SchedulerOutput

log = logging.getLogger(__name__)
_CPU_SHARE, _CPU_LIMIT_BYTES = 0.5, 4 * 1024**3
_CUDA_SHARE = 0.85
_WARM_PROMPT_TOKENS = 80
_CGROUP = Path("/sys/fs/cgroup")


class UniProcExecutor(Executor):
    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        torch.set_num_threads(config.threads or available_cores())
        self.model = ModelConfig.from_dir(config.model, config.max_model_len)
        self.target = choose_target(config.dtype, self.model.dtype, config.device)
        self.worker: Worker | None = None
        # Outlives sleep, so that the random numbers do not begin anew.
        self._sampler = Sampler(config.seed, self.target.device)
        self._bits = BITS[config.quantization]
        self._kernels = Kernels(config.kernels, self.model, self.target, self._bits)
        self._decoder: Decoder | NativeDecoder | None = None
        self._num_blocks = 0
        self._heap = Heap()
        self._profiler: torch.profiler.profile | None = None
        self._trace_path: str | None = None

    def load_model(self, progress: Progress) -> ModelInfo:
        self._load(progress)
        decoder = self._loaded()
        model, compute = self.model, self.target.compute
        is_widened = isinstance(decoder, Decoder) and compute != self.target.storage
        return ModelInfo(
            architecture=model.architecture,
            vocab_size=model.vocab_size,
            max_position_embeddings=model.max_position_embeddings,
            eos_token_ids=model.eos_token_ids,
            dtype=type_name(self.target.storage),
            compute_dtype=type_name(compute),
            kv_bytes_per_block=model.kv_bytes_per_block(self.config.block_size, self.target.storage.itemsize),
            weight_bytes=decoder.weight_bytes,
            device=str(self.target.device),
            held_as=type_name(compute) if is_widened else "",
            held_why=self._kernels.prospect if is_widened else "",
        )

    def measure_kv_memory(self) -> int:
        if self.target.device.type == "cuda":
            return int(torch.cuda.mem_get_info(self.target.device)[0] * _CUDA_SHARE)
        return min(int(available_memory_bytes() * _CPU_SHARE), _CPU_LIMIT_BYTES)

    @torch.inference_mode()
    def initialize_cache(self, num_gpu_blocks: int) -> None:
        decoder = self._loaded()
        cache = KVCache(self.model, num_gpu_blocks, self.config.block_size, self.target.storage, self.target.device)
        self.worker = Worker(decoder, cache, self._sampler)
        self._num_blocks = num_gpu_blocks

    @torch.inference_mode()
    def warm_up(self) -> None:
        """A prompt, a full batch and single rows, on blocks that nobody holds yet."""
        worker = self._ready()
        capacity = self._num_blocks * self.config.block_size
        room = min(capacity, len(worker.decoder.rope)) - 1
        prompt = min(_WARM_PROMPT_TOKENS, room, self.config.max_num_batched_tokens)
        blocks = np.arange(self._num_blocks)
        one = [Row([0], 0, 1, blocks)]
        steps = [one, one * min(8, self.config.max_num_seqs)]
        if prompt > 0:
            steps += [[Row([0] * prompt, 0, prompt, blocks)], [Row([0], prompt, 1, blocks)]]
        greedy, random = (self._warm_state(temperature) for temperature in (0.0, 1.0))
        for rows in [*steps, one]:
            logits = worker.decoder.logits(worker.run(rows)[: len(rows)])
            for state in (greedy, random):
                worker.sampler.sample(logits, [state] * len(rows), worker.decoder.draw_tokens)
        self._heap.shrink()

    @torch.inference_mode()
    def execute_model(self, step: SchedulerOutput) -> ModelRunnerOutput:
        if self._kernels.has_arrived:
            self._exchange()
        return self._ready().execute(step)

    def rest(self) -> None:
        self._heap.shrink()

    @property
    def kernels(self) -> str:
        return str(self._kernels)

    def sleep(self, level: int) -> None:
        """What is held is forgotten with its KV: the scheduler must have ended or preempted it."""
        self.worker = None
        if level >= 2:
            self._drop_decoder()
        if self.target.device.type == "cuda":
            torch.cuda.empty_cache()

    def wake_up(self) -> None:
        if self._decoder is None:
            self._load(lambda phase, detail: None)
        if self.worker is None and self._num_blocks:
            self.initialize_cache(self._num_blocks)

    def profile(self, is_start: bool, path: str | None) -> str | None:
        if is_start:
            self._start_profiler(path)
            return None
        if self._profiler is None:
            raise RuntimeError("the profiler is not running; start it first")
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        trace = path or self._trace_path or os.path.join(os.getcwd(), f"engine-trace-{os.getpid()}.json")
        profiler.export_chrome_trace(trace)
        return trace

    def shutdown(self) -> None:
        self._kernels.close()
        self.worker = None
        self._drop_decoder()

    def _start_profiler(self, path: str | None) -> None:
        if self._profiler is not None:
            raise RuntimeError("the profiler is running already; stop it first")
        activities = [torch.profiler.ProfilerActivity.CPU]
        if self.target.device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._trace_path = path
        self._profiler = torch.profiler.profile(activities=activities)
        self._profiler.start()

    @torch.inference_mode()
    def _load(self, progress: Progress) -> None:
        """Compiled if it was built before; else torch, until the compiled one arrives."""
        positions = self.config.max_model_len or self.model.max_position_embeddings
        library = self._kernels.library()
        if library is not None:
            self._decoder = self._load_native(library, positions, progress)
            return
        decoder = Decoder(self.model, round_weights(self._read_weights(self.target, progress), self._bits), positions)
        self._decoder = decoder
        self._kernels.arrive_later(lambda library: self._pack(library, decoder))

    def _read_weights(
        self, target: Target, progress: Progress, take: Callable[[int, LayerWeights], None] | None = None
    ) -> Weights:
        directory = Path(self.config.model)
        return load_weights(directory, self.model, target, lambda detail: progress("load weights", detail), take)

    def _load_native(self, library: Library, positions: int, progress: Progress) -> NativeDecoder:
        """Layer by layer: there is never a second copy of more than one, and none to compute with in torch."""
        native = self._new_native(library, rope_table(self.model, positions))
        storage = self.target.storage
        ends = self._read_weights(
            Target(storage, storage, self.target.device),
            progress,
            lambda number, layer: native.take_layer(number, layer, native.threads),
        )
        native.take_ends(ends.embedding, ends.head, ends.final_norm, native.threads)
        del ends
        return_memory()
        return native

    def _pack(self, library: Library, decoder: Decoder) -> NativeDecoder:
        """In the thread that built the library; one core at most, the others serve. Raises MemoryError: a system that
        gives memory it does not have would end the engine for it."""
        bits = self._bits or 8 * self.target.storage.itemsize
        needed = decoder.weight_bytes // self.target.compute.itemsize * bits // 8
        available = available_memory_bytes()
        if needed > available:
            raise MemoryError(
                f"{needed / 1e9:,.1f} GB for a second copy of the weights, {available / 1e9:,.1f} GB are left; "
                "the next start loads them for the compiled step alone"
            )
        native = self._new_native(library, decoder.rope)
        native.take(decoder.weights)
        return native

    def _new_native(self, library: Library, rope: Tensor) -> NativeDecoder:
        threads = self.config.threads or available_cores()
        storage, block_size = self.target.storage, self.config.block_size
        return NativeDecoder(library, self.model, rope, storage, threads, block_size, bits=self._bits)

    def _exchange(self) -> None:
        """Between two steps: what was written stays, what computes is another. Frees what torch computed with."""
        native = self._kernels.take_arrived()
        if native is None:
            return
        if isinstance(self._decoder, NativeDecoder):  # loaded anew after a sleep
            native.close()
            return
        self._decoder = native
        if self.worker is not None:
            self.worker.decoder = native
        return_memory()
        log.info("from now on steps run in compiled code (%s)", self._kernels.detail)

    def _drop_decoder(self) -> None:
        if isinstance(self._decoder, NativeDecoder):
            self._decoder.close()
        self._decoder = None

    def _loaded(self) -> Decoder | NativeDecoder:
        if self._decoder is None:
            raise RuntimeError("the weights are not loaded: call load_model, or wake_up after sleep")
        return self._decoder

    def _ready(self) -> Worker:
        if self.worker is None:
            raise RuntimeError("there is no KV cache: call initialize_cache, or wake_up after sleep")
        return self.worker

    def _warm_state(self, temperature: float) -> SamplerState:
        params = SamplingParams(temperature=temperature, top_p=0.9, seed=0)
        return SamplerState(params, [0], 1, self.model.vocab_size, self.target.device)


def available_memory_bytes(cgroup: Path = _CGROUP) -> int:
    """What the machine has left, or less where a container's limit is nearer."""
    available = int(psutil.virtual_memory().available)
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
    except (OSError, ValueError):
        return available
    return available if limit == "max" else max(0, min(available, int(limit) - used))
