"""The emulated inference service: a real HTTP server whose capacity follows the ready pods."""
