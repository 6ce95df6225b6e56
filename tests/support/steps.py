"""Drives an executor without the engine: a few lines of scheduling that put rows, chunks and preemptions together."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from engine.config import EngineConfig
from engine.executor.uniproc import UniProcExecutor
from engine.messages import Logprobs, SamplingParams
from engine.scheduler.output import ModelRunnerOutput, NewRequest, ScheduledRow, SchedulerOutput


def load(model: Path, blocks: int = 128, block_size: int = 16, **settings: object) -> UniProcExecutor:
    """A loaded executor with a cache, one thread, computing in torch unless told otherwise."""
    settings = {"threads": 1, "kernels": "eager", **settings}
    config = EngineConfig(model=str(model), block_size=block_size, **settings)  # type: ignore[arg-type]
    executor = UniProcExecutor(config)
    executor.load_model(lambda phase, detail: None)
    executor.initialize_cache(blocks)
    return executor


def greedy(**more: object) -> SamplingParams:
    return SamplingParams(temperature=0.0, **more)  # type: ignore[arg-type]


@dataclass
class Job:
    """One generation: `count` tokens after `prompt`. `arrives`: the step it first takes part in."""

    prompt: list[int]
    params: SamplingParams = field(default_factory=greedy)
    count: int = 8
    arrives: int = 0
    output: list[int] = field(default_factory=list)
    logprobs: list[Logprobs] = field(default_factory=list)
    prompt_logprobs: Logprobs | None = None
    error: str | None = None
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    known: bool = False
    preemptions: int = 0

    @property
    def tokens(self) -> list[int]:
        return self.prompt + self.output

    @property
    def done(self) -> bool:
        return self.error is not None or len(self.output) >= self.count


class Steps:
    """Every job's next `chunk` tokens in one step, until all are done. Counts what a test wants to have happened.
    With `preempt_every`, a third of the jobs lose their blocks that often, each twice at most."""

    def __init__(self, executor: UniProcExecutor, chunk: int = 4096, preempt_every: int = 0) -> None:
        self.executor = executor
        self.chunk = chunk
        self.preempt_every = preempt_every
        self.chunks = self.preemptions = self.mixed_steps = self.steps = 0
        self.block_size = executor.config.block_size
        worker = executor.worker
        assert worker is not None
        # From the far end, so that no table is the identity.
        self.free = list(range(worker.cache.num_blocks))

    def run(self, jobs: list[Job]) -> list[list[int]]:
        while any(not job.done for job in jobs):
            self.step(jobs)
        ended = [str(index) for index, job in enumerate(jobs) if job.known]
        self.executor.execute_model(SchedulerOutput(self.steps, [], dropped=ended))
        for job in jobs:
            self._give_back(job)
        return [job.output for job in jobs]

    def step(self, jobs: list[Job]) -> ModelRunnerOutput:
        plan = SchedulerOutput(self.steps, [])
        self._preempt(jobs, plan)
        for index, job in enumerate(jobs):
            if not job.done and job.arrives <= self.steps:
                self._schedule(str(index), job, plan)
        self.mixed_steps += len({row.num_tokens > 1 for row in plan.rows}) > 1
        result = self.executor.execute_model(plan)
        for row, token in zip(plan.rows, result.sampled, strict=True):
            self._apply(jobs[int(row.request_id)], row, token, result)
        self.steps += 1
        return result

    def _schedule(self, name: str, job: Job, plan: SchedulerOutput) -> None:
        count = min(self.chunk, len(job.tokens) - job.computed)
        end = job.computed + count
        self.chunks += end < len(job.prompt)
        needed = -(-end // self.block_size) - len(job.blocks)
        new = [self.free.pop() for _ in range(needed)]
        job.blocks += new
        if not job.known:
            wants = job.params.prompt_logprobs is not None and job.prompt_logprobs is None
            plan.new_requests.append(NewRequest(name, job.tokens, len(job.prompt), list(job.blocks), job.params, wants))
            job.known, new = True, []
        plan.rows.append(ScheduledRow(name, job.computed, count, new, samples=end == len(job.tokens)))

    def _apply(self, job: Job, row: ScheduledRow, token: int, result: ModelRunnerOutput) -> None:
        job.computed = row.start + row.num_tokens
        job.error = result.errors.get(row.request_id)
        if token >= 0:
            job.output.append(token)
        if row.request_id in result.logprobs:
            job.logprobs.append(result.logprobs[row.request_id])
        if row.request_id in result.prompt_logprobs:
            job.prompt_logprobs = result.prompt_logprobs[row.request_id]

    def _preempt(self, jobs: list[Job], plan: SchedulerOutput) -> None:
        if not self.preempt_every or self.steps % self.preempt_every != self.preempt_every - 1:
            return
        victims = [
            index for index, job in enumerate(jobs) if job.known and job.output and not job.done and job.preemptions < 2
        ]
        for index in victims[::3]:
            plan.dropped.append(str(index))
            self._give_back(jobs[index])
            jobs[index].known, jobs[index].computed = False, 0
            jobs[index].preemptions += 1
            self.preemptions += 1

    def _give_back(self, job: Job) -> None:
        self.free += job.blocks
        job.blocks = []
