"""A client in Go: RocketMQ's own, built from the Go module proxy, as a process that reports in lines of JSON.

It knows Go and processes, and nothing of what the program does.
"""

from harness.processes.go.programs import GoMissing, build, transactor

__all__ = ["GoMissing", "build", "transactor"]
