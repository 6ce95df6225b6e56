"""Every bound on what a peer may send, in one place. Checked before anything is allocated in proportion to it."""

from __future__ import annotations

MAX_FRAME_BYTES = 256 * 1024**2
"""MAXMSGSIZE of every socket: libzmq drops the connection of a peer that sends more in one frame."""
MAX_BODY_BYTES = 32 * 1024**2
"""A longer request body is not decoded; it is answered by its id."""
RECEIVE_HIGH_WATER_MARK = 256
"""Messages that libzmq takes from one client before engine-in reads them."""
MAX_QUEUED_BYTES = 8 * 1024**2
"""Messages of one client that wait for the loop; more stay with their sender until the next step."""
MAX_LIVE_REQUEST_BYTES = 64 * 1024**2
"""Request bodies of all live requests, running and waiting, together; more are refused. As objects they take up to
twelve times as much."""
MAX_FRAMES = 64
"""Frames in one message, type byte and body included."""
MAX_DEPTH = 32
"""Nested arrays and maps inside fields whose shape is free (utility arguments, extra_args, ...)."""
MAX_FREE_FIELD_BYTES = 1024**2
"""One field whose shape is free; also the arguments of one utility call together."""

MAX_REQUEST_ID_BYTES = 1024
MAX_METHOD_NAME_BYTES = 256
MAX_UTILITY_ARGS = 32
MAX_ABORT_IDS = 200_000
MAX_PROMPT_TOKENS = 1_048_576
"""Ids in a prompt, whatever the model's own limit."""
MAX_CACHE_SALT_BYTES = 4096
MAX_SAMPLING_KEYS = 128

MAX_STOP_TOKEN_IDS = 4096
MAX_LOGIT_BIAS = 4096
MAX_BAD_WORDS = 4096
MAX_BAD_WORD_TOKENS = 256
"""Tokens in one bad word."""
MAX_STOP_STRINGS = 4096
MAX_PROMPT_LOGPROB_ENTRIES = 16 * 1024**2
"""prompt_logprobs times prompt tokens: they are held and sent as one piece."""

MAX_READY_RESPONSE_BYTES = 1024**2
MAX_CLIENTS = 256
"""Input addresses in INIT."""

MAX_OUTPUT_FRAME_BYTES = 1024**3
"""MAXMSGSIZE where an engine's outputs are read; a wide prompt_logprobs is one frame."""
MAX_OUTPUT_FRAMES = 65_536
"""Frames in one message from an engine: a body and the long arrays of a whole step."""
MAX_TENSOR_DIMENSIONS = 8
INLINE_ARRAY_BYTES = 256
"""Arrays shorter than this travel inside the body, longer ones in a frame of their own."""

INIT_DEADLINE_S = 300.0
"""How long a frontend may take until INIT, seconds, where nobody says otherwise."""
