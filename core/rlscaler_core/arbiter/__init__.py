"""The arbiter: who of many services gets how much of a shared pool. Pure functions of arrays, many pools at once."""
