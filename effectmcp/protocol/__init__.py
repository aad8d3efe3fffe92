"""The wire format of MCP: reads and writes messages, without I/O, clock or randomness.

jsonrpc     one message and its limits
methods     one table: the methods, and the rules of each
meta        `_meta`: version, capabilities, log level, progress token
headers     the values that Streamable HTTP mirrors into headers
templates   URI templates of resources
modern      revision 2026-07-28: questions, answers and results on the wire
"""
