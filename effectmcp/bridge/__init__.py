"""Flows inside of the server that you have already, of another SDK.

    fastmcp     FastMCP: `@flow_tool(mcp)`
    mcp         the Python SDK: `@flow_tool(mcp)`

The other server keeps its authentication, middleware, lifespan and transports. A bridge is
a transport, like stdio or HTTP: `answering` turns each of its requests into a message, and
runs the exchange. So flows ask in rounds on 2026-07-28, and live on older revisions.
"""
