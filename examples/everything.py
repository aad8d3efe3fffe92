"""Every kind of tool, resource and prompt, as required by the official conformance suite.

    effectmcp serve examples/everything.py:app --http 127.0.0.1:3001

The names and messages come from the suite; the code shows how to write each feature.
"""

from __future__ import annotations

import base64
import time
from typing import Annotated, Any, Literal

from attrs import frozen

from effectmcp import (
    Audio,
    Checkpoint,
    Detach,
    Elicit,
    EmbeddedResource,
    Flow,
    Gather,
    Header,
    Image,
    ListRoots,
    Log,
    Message,
    Progress,
    ProtocolError,
    ResourceContents,
    Sample,
    Server,
    Sleep,
    Step,
    Text,
    ToolError,
)

app = Server(
    "everything",
    version="1.0",
    title="Everything",
    instructions="Call any tool: each shows one thing that a server can do.",
)

#: One red pixel, and a hundredth of a second of silence.
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAA"
    "AABJRU5ErkJggg=="
)
SILENCE = base64.b64decode(
    "UklGRiYAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQIAAAAAAA=="
)


# ---- content ------------------------------------------------------------------------


@app.tool
def test_simple_text() -> str:
    """Answer with a string."""
    return "This is a simple text response for testing."


@app.tool
def test_image_content() -> Image:
    """Answer with a picture."""
    return Image(PIXEL)


@app.tool
def test_audio_content() -> Audio:
    """Answer with a sound."""
    return Audio(SILENCE)


def embedded(text: str, uri: str = "test://embedded-resource") -> EmbeddedResource:
    """Return a resource inside a result."""
    return EmbeddedResource(ResourceContents(text, uri=uri, mime_type="text/plain"))


@app.tool
def test_embedded_resource() -> EmbeddedResource:
    """Answer with a resource."""
    return embedded("This is an embedded resource content.")


@app.tool
def test_multiple_content_types() -> list[Text | Image | EmbeddedResource]:
    """Answer with several blocks."""
    return [Text("Multiple content types test:"), Image(PIXEL), embedded("A resource.")]


@app.tool
def test_error_handling() -> str:
    """Fail with a message for the model."""
    raise ToolError("This tool intentionally returns an error for testing")


# ---- while it runs ------------------------------------------------------------------


@app.tool
def test_tool_with_progress() -> Flow[str]:
    """Report progress."""
    for done in (0, 50, 100):
        yield from Progress(done, 100, f"Completed step {done} of 100")
        yield from Step(time.sleep, 0.05)
    return "Done."


@app.tool
def test_logging_tool() -> Flow[str]:
    """Send a log message, if the client requested them."""
    yield from Log("info", "Tool execution started")
    return "Done."


@app.tool
def test_streaming_elicitation() -> Flow[str]:
    """Ask in the result, and never on the stream."""
    name = yield from Elicit("What is your name?", str, key="user_name")
    return f"Hello, {name}."


@app.tool(requires=(Sample,))
def test_missing_capability() -> Flow[str]:
    """Require a client that supports sampling."""
    sampled = yield from Sample("Say hello.")
    return sampled.text


# ---- changes ------------------------------------------------------------------------


def extra() -> str:
    """Be added and removed."""
    return "extra"


@app.tool
def test_trigger_tool_change() -> str:
    """Change the list of tools."""
    toggle_tool = app.tools.get("extra_tool")
    if toggle_tool is None:
        app.tool(name="extra_tool")(extra)
    else:
        app.remove(toggle_tool)
    return "The list of tools has changed."


@app.tool
def test_trigger_prompt_change() -> str:
    """Change the list of prompts."""
    toggle_prompt = app.prompts.get("extra_prompt")
    if toggle_prompt is None:
        app.prompt(name="extra_prompt")(extra)
    else:
        app.remove(toggle_prompt)
    return "The list of prompts has changed."


# ---- schemas and headers ------------------------------------------------------------


@app.tool
def test_x_mcp_header(region: Annotated[str, Header("Region")]) -> str:
    """Take an argument that proxies can read."""
    return f"The region is {region}."


ADDRESS: dict[str, Any] = {
    "$anchor": "addressDef",
    "type": "object",
    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
}


@app.tool(
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": ADDRESS},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {
            "properties": {"contactMethod": {"const": "phone"}},
            "required": ["contactMethod"],
        },
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
)
def json_schema_2020_12_tool(**arguments: Any) -> dict[str, Any]:
    """Take arguments by a schema written by hand."""
    return arguments


# ---- questions ----------------------------------------------------------------------


@frozen
class Name:
    """The name of a user."""

    name: str


@frozen
class Okay:
    """A yes or a no."""

    ok: bool


@frozen
class Color:
    """The color that a user likes."""

    color: str


@frozen
class Situation:
    """The subject of a request."""

    context: str


@app.tool
def test_input_required_result_elicitation() -> Flow[str]:
    """Ask the user."""
    who = yield from Elicit("What is your name?", Name, key="user_name")
    return f"Hello, {who.name}."


@app.tool
def test_input_required_result_sampling() -> Flow[str]:
    """Ask the client's model."""
    sampled = yield from Sample("What is the capital of France?", max_tokens=100)
    return sampled.text


@app.tool
def test_input_required_result_list_roots() -> Flow[str]:
    """Ask where the user is working."""
    roots = yield from ListRoots()
    return ", ".join(root.uri for root in roots)


@app.tool
def test_input_required_result_request_state() -> Flow[str]:
    """Ask, and resume from the state that the client sends back."""
    answer = yield from Elicit("Please confirm.", Okay)
    return "state-ok" if answer.ok else "not confirmed"


@app.tool
def test_input_required_result_multiple_inputs() -> Flow[str]:
    """Ask three things at once."""
    who, greeting, roots = yield from Gather(
        Elicit("What is your name?", Name),
        Sample("Write a greeting.", max_tokens=50),
        ListRoots(),
    )
    return f"{greeting.text} {who.name} works in {len(roots)} places."


@app.tool
def test_input_required_result_multi_round() -> Flow[str]:
    """Ask one question after the other."""
    who = yield from Elicit("Step 1: what is your name?", Name)
    liked = yield from Elicit(f"Step 2: which color does {who.name} like?", Color)
    return f"{who.name} likes {liked.color}."


@app.tool
def test_input_required_result_tampered_state() -> Flow[str]:
    """Ask, and refuse a state that this server did not seal."""
    answer = yield from Elicit("Please confirm.", Okay)
    return f"confirmed: {answer.ok}"


@app.tool
def test_input_required_result_capabilities() -> Flow[str]:
    """Ask only what the client can answer."""
    sampled, who = yield from Gather(
        Sample("Say something.", otherwise=None),
        Elicit("What is your name?", Name, otherwise=None),
    )
    return f"{sampled and sampled.text}, {who and who.name}"


# ---- questions of earlier revisions, too --------------------------------------------


@app.tool
def test_sampling(prompt: str) -> Flow[str]:
    """Ask the client's model."""
    sampled = yield from Sample(prompt, max_tokens=100)
    return f"LLM response: {sampled.text}"


@frozen
class Account:
    """The address of a user."""

    username: str
    email: str


@app.tool
def test_elicitation(message: str) -> Flow[str]:
    """Ask the user."""
    account = yield from Elicit(message, Account)
    return f"User response: {account.username}, {account.email}"


@frozen
class Defaults:
    """Fields that all have defaults."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


@app.tool
def test_elicitation_sep1034_defaults() -> Flow[str]:
    """Ask with defaults of every type."""
    return str((yield from Elicit("Please check what is filled in.", Defaults)))


def titled(*values: str) -> list[dict[str, str]]:
    """Choices with titles."""
    return [{"const": one, "title": one.capitalize()} for one in values]


#: Written by hand, as the suite requires every way to write choices, also the old one.
CHOICES = {
    "type": "object",
    "properties": {
        "untitledSingle": {
            "type": "string",
            "enum": ["option1", "option2", "option3"],
        },
        "titledSingle": {
            "type": "string",
            "oneOf": titled("value1", "value2", "value3"),
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {
            "type": "array",
            "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
        },
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": titled("value1", "value2", "value3")},
        },
    },
}


@app.tool
def test_elicitation_sep1330_enums() -> Flow[str]:
    """Ask for choices."""
    return str((yield from Elicit("Please choose.", CHOICES)))


@app.tool
def test_tool_with_logging() -> Flow[str]:
    """Send log messages."""
    for line in ("started", "processing data", "completed"):
        yield from Log("info", f"Tool execution {line}")
        yield from Step(time.sleep, 0.05)
    return "Done."


@app.tool
def test_reconnection() -> Flow[str]:
    """Run longer than its connection, if the server closes streams early (`--leave`)."""
    yield from Step(time.sleep, 2)
    return "Done after all."


@app.tool
def test_checkpoint() -> Flow[str]:
    """Send the state to the client before continuing."""
    first = yield from Step(time.time)
    yield from Checkpoint()
    return f"Begun at {first}."


# ---- tasks --------------------------------------------------------------------------


@frozen
class Confirmation:
    """A decision of the user."""

    confirm: bool


@app.tool
def greet(name: str) -> str:
    """Answer at once, whether or not the client can follow tasks."""
    return f"Hello, {name}!"


@app.tool(task="optional")
def slow_compute(seconds: float = 1, label: str = "a computation") -> Flow[str]:
    """Take a while: as a task, if the client can follow one."""
    yield from Sleep(seconds)
    return f"{label} took {seconds:g} seconds."


@app.tool(task="required")
def failing_job() -> Flow[str]:
    """End with an error for the model, as a task."""
    yield from Sleep(1)
    raise ToolError("This job intentionally fails for testing")


@app.tool(task="optional")
def protocol_error_job() -> Flow[str]:
    """End with an error of the protocol."""
    yield from Sleep(0)
    raise ProtocolError(-32603, "This job intentionally breaks the request")


@app.tool(task="optional")
def confirm_delete(filename: str) -> Flow[str]:
    """Ask while it is a task."""
    answer = yield from Elicit(f"Delete {filename}?", Confirmation)
    return f"{filename} was deleted." if answer.confirm else f"{filename} was kept."


@app.tool(task="optional")
def multi_input() -> Flow[str]:
    """Ask two things at once; the answers may arrive one by one."""
    who, answer = yield from Gather(
        Elicit("What is your name?", Name),
        Elicit("Shall it begin?", Confirmation),
    )
    return f"{who.name} said {'yes' if answer.confirm else 'no'}."


@app.tool
def test_tool_with_task() -> Flow[str]:
    """Ask first, and become a task with the answer."""
    who = yield from Elicit("What is your name?", Name, key="user_name")
    is_task = yield from Detach(ttl=3600)
    yield from Sleep(0.1)
    return f"Hello, {who.name}, from {'a task' if is_task else 'the request'}."


# ---- resources ----------------------------------------------------------------------


@app.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A static resource, as a string."""
    return "This is the content of the static text resource."


@app.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """A static resource, as bytes."""
    return PIXEL


@app.resource("test://watched-resource", mime_type="text/plain")
def watched() -> str:
    """A resource to subscribe to."""
    return "Nothing has changed."


@app.resource("test://template/{id}/data", mime_type="application/json")
def template_data(id: str) -> dict[str, str]:
    """A resource for each id."""
    return {"id": id, "data": f"Data for ID: {id}"}


# ---- prompts ------------------------------------------------------------------------


@app.prompt
def test_simple_prompt() -> str:
    """Return one message."""
    return "This is a simple prompt for testing."


@app.prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """Return a message with the arguments."""
    return f"Prompt with arguments: arg1={arg1!r}, arg2={arg2!r}"


@app.completion("test_prompt_with_arguments", "arg1")
def suggest_arg1(text: str) -> list[str]:
    """Suggest values."""
    return [f"{text}{ending}" for ending in ("1", "2", "3")]


@app.prompt(name="test_prompt_with_embedded_resource")
def prompt_with_resource(resourceUri: str) -> list[Message]:
    """Show a resource."""
    return [
        Message(embedded("Embedded resource content for testing.", resourceUri)),
        Message("Please process the embedded resource above."),
    ]


@app.prompt
def test_prompt_with_image() -> list[Message]:
    """Show a picture."""
    return [Message(Image(PIXEL)), Message("Please analyze the image above.")]


@app.prompt
def test_input_required_result_prompt() -> Flow[str]:
    """Ask before returning a message."""
    about = yield from Elicit("What context should the prompt use?", Situation)
    return f"Use this context: {about.context}"
