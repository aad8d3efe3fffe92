"""Bytes ↔ messages: pipes, HTTP, and the hosts that speak HTTP already.

web      what holds for HTTP whoever reads the bytes: who may ask, and how it looks
stdio    `serve(app)`: one line a message, on standard input and output
http     `serve(app, host, port)`: Streamable HTTP, on trio and h11; see `connection`, and
         `wires` for who reads the bytes
asgi     `application(app)`: for uvicorn, hypercorn, Starlette, FastAPI
wsgi     `application(app)`: for hosts with a thread a request
"""
