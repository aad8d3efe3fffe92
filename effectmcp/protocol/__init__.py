"""JSON-RPC ↔ what MCP means by it. Pure: texts and headers in, values and texts out.

jsonrpc     one message and its limits
methods     one table: which methods there are, and what holds for each
meta        `_meta`: version, capabilities, log level, progress token
headers     what Streamable HTTP mirrors into headers
templates   URI templates of resources
modern      revision 2026-07-28: questions, answers and results on the wire
"""
