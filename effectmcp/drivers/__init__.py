"""The I/O that the engine asks for. `drivers.sync` needs no event loop."""
