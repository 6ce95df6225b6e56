"""One small process per engine: it spawns it, relays its protocol, watches it and answers for it.

No torch, no command line library. One thread; everything that waits is a task of loop.Loop."""
