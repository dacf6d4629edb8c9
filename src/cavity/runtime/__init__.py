"""The machine: device, threads, memory, distributed workers and progress."""
