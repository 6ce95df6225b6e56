"""Which code computes the steps, and how the compiled one comes to be without anybody waiting for it.

Enters: the setting (auto, native, eager), the model, what the machine computes in. Leaves: a checked Library, at once
or by a thread `native-build` that ends by itself. Whatever fails is one line in the log, and the eager path stays.
Main thread only, but for `state` and `detail`, which anybody may read."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import torch

from engine.errors import EngineError, ModelError
from engine.model.config import ModelConfig
from engine.model.loader import Target
from engine.model.native.bindings import Library
from engine.model.native.build import Build, BuildError, find_compiler, find_library, levels
from engine.model.native.check import check_library
from engine.model.native.decoder import NativeDecoder, can_run

log = logging.getLogger(__name__)
_JOIN_LIMIT_S = 5.0
Pack = Callable[[Library], NativeDecoder]


class Kernels:
    """`state`: eager, building or native; `detail`: the kind of CPU code, or why there is none."""

    def __init__(self, setting: str, config: ModelConfig, target: Target, bits: int = 0) -> None:
        """`bits`: of quantise.py."""
        self.state = "eager"
        self.detail = "as set"
        self._setting = setting
        self._storage = target.storage
        self._bits = bits
        self._wanted = setting != "eager"
        self._thread: threading.Thread | None = None
        self._build: Build | None = None
        self._closed = False
        self._arrived: NativeDecoder | None = None
        if self._wanted and (target.device.type != "cpu" or not can_run(config, target.storage)):
            self._refuse(f"not made for {config.architecture} in {target.storage} on {target.device.type}")
            self._wanted = False

    def __str__(self) -> str:
        return f"{self.state} ({self.detail})"

    @property
    def prospect(self) -> str:
        """Why torch computes, and until when, as a remark; empty while it does not."""
        if self.state == "native":
            return ""
        if self.state == "building":
            return "until kernels are compiled"
        return "kernels=eager" if self._setting == "eager" else self.detail

    def library(self) -> Library | None:
        """One that was built before; with the setting `native` it is built now. Raises ModelError then."""
        for level in levels() if self._wanted else []:
            try:
                file = find_library(level)
                if file is None and self._setting == "native":
                    file = Build(level).run()
                if file is not None:
                    library = self._use(file)
                    self.state, self.detail = "native", library.description().decode()
                    return library
            except EngineError as error:
                self._refuse(str(error))
        if self._setting == "native":
            raise ModelError(f"the compiled step cannot be had: {self.detail}; use kernels=auto or eager")
        return None

    def arrive_later(self, pack: Pack) -> None:
        """Builds in a thread, unless eager was asked for or nothing can build; `pack` is called there with the
        library."""
        if not self._wanted or self._thread is not None:
            return
        try:
            find_compiler()
        except BuildError as error:
            self._refuse(str(error))
            self._give_up()
            return
        self.state, self.detail = "building", "eager until it is there"
        self._thread = threading.Thread(target=self._work, args=(pack,), name="native-build", daemon=True)
        self._thread.start()

    def take_arrived(self) -> NativeDecoder | None:
        """The packed decoder, once, when the thread has made it. Costs nothing while it has not."""
        if self._arrived is None:
            return None
        decoder, self._arrived = self._arrived, None
        self._thread = None
        self.state, self.detail = "native", decoder.description
        return decoder

    @property
    def has_arrived(self) -> bool:
        return self._arrived is not None

    def close(self) -> None:
        """Ends a compilation that is under way. Blocks for a moment at most."""
        self._closed = True
        if self._build is not None:
            self._build.cancel()
        if self._thread is not None:
            self._thread.join(_JOIN_LIMIT_S)

    def _work(self, pack: Pack) -> None:
        try:
            with torch.inference_mode():
                library = self._build_any()
                if library is not None and not self._closed:
                    self._arrived = pack(library)
        except Exception as error:  # an optional thing must not end the engine
            self._refuse(f"{type(error).__name__}: {error}")
            self._give_up()

    def _build_any(self) -> Library | None:
        for level in levels():
            if self._closed:
                return None
            self._build = Build(level)
            if self._closed:  # by then close() may have cancelled the one before
                return None
            try:
                return self._use(self._build.run())
            except EngineError as error:
                self._refuse(str(error))
        self._give_up()
        return None

    def _use(self, file: Path) -> Library:
        """Raises EngineError when it cannot be loaded or counts wrongly."""
        try:
            library = Library(file)
        except (OSError, AttributeError) as error:
            raise BuildError(f"{file.name} cannot be loaded: {error}") from None
        check_library(library, self._storage, bits=self._bits)
        return library

    def _refuse(self, why: str) -> None:
        """One attempt failed; there may be another."""
        self.detail = why
        log.debug("no compiled step: %s", why)

    def _give_up(self) -> None:
        self.state = "eager"
        if not self._closed:
            log.warning("the compiled step is not used, torch is: %s", self.detail)
