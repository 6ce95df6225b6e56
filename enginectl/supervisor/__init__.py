"""One small process per engine: it spawns it, relays its protocol, watches it and answers for it.

No torch, no command line library. One thread decides: everything that waits is a task of loop.Loop. What may block in
somebody else's code has a thread of its own and touches nothing of it: metrics pages, GPU driver, names of users."""
