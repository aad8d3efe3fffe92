"""Transports translate between bytes and messages: pipes, HTTP, and HTTP hosts.

web      HTTP rules for every host: which requests are allowed, and the form of responses
stdio    `serve(app)`: one message per line, on standard input and output
http     `serve(app, host, port)`: Streamable HTTP, on trio and h11; see `connection`, and
         `http1` for reading and writing the bytes
asgi     `application(app)`: for uvicorn, hypercorn, Starlette, FastAPI
wsgi     `application(app)`: for hosts with one thread per request
"""
