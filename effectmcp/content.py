"""What a handler may return, as the protocol's blocks, and how a value becomes them.

    str                          one block of text
    Image, Audio, …              that block
    a list of these              those blocks
    None                         no blocks
    anything else                JSON: structuredContent, and the same as text
    ToolResult                   just what it says

Bytes alone are refused for tools: nothing says whether they are a picture or a sound.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from attrs import field, frozen

from .canonical import JSON
from .errors import OutputError

__all__ = [
    "Annotations",
    "Audio",
    "Block",
    "EmbeddedResource",
    "Icon",
    "Image",
    "Message",
    "ResourceContents",
    "ResourceLink",
    "Text",
    "ToolResult",
    "blocks_of",
    "contents_of",
    "messages_of",
]

Role: TypeAlias = Literal["user", "assistant"]


def _written(**fields: JSON) -> dict[str, JSON]:
    # By the protocol's names; what was left out is left out there too.
    return {name: value for name, value in fields.items() if value is not None}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


@frozen(kw_only=True)
class Annotations:
    """Hints on a block or a resource, for whoever shows it.

    Attributes:
        audience: Whom it is meant for.
        priority: From 0, optional, to 1, required.
        last_modified: When it changed last.
    """

    audience: Sequence[Role] | None = None
    priority: float | None = None
    last_modified: dt.datetime | str | None = None

    def to_wire(self) -> dict[str, JSON]:
        """As JSON."""
        modified = self.last_modified
        if isinstance(modified, dt.datetime):
            modified = modified.isoformat().replace("+00:00", "Z")
        return _written(
            audience=None if self.audience is None else list(self.audience),
            priority=self.priority,
            lastModified=modified,
        )


@frozen
class Icon:
    """A picture of a server, tool, prompt or resource.

    Attributes:
        src: An `https:` or `data:` URI.
        mime_type: Its type, where the server of `src` does not say.
        sizes: Such as `["48x48"]`, or `["any"]`.
        theme: The background it is drawn for.
    """

    src: str
    mime_type: str | None = field(default=None, kw_only=True)
    sizes: Sequence[str] | None = field(default=None, kw_only=True)
    theme: Literal["light", "dark"] | None = field(default=None, kw_only=True)

    def to_wire(self) -> dict[str, JSON]:
        """As JSON."""
        return _written(
            src=self.src,
            mimeType=self.mime_type,
            sizes=None if self.sizes is None else list(self.sizes),
            theme=self.theme,
        )


class Block:
    """A block of content: `Text`, `Image`, `Audio`, `ResourceLink`, `EmbeddedResource`."""

    __slots__ = ()

    def to_wire(self) -> dict[str, JSON]:
        """As JSON."""
        raise NotImplementedError  # the base says only what a block is asked for


@frozen
class Text(Block):
    """A block of text, where it needs annotations; a plain `str` does otherwise."""

    text: str
    annotations: Annotations | None = field(default=None, kw_only=True)

    def to_wire(self) -> dict[str, JSON]:
        """As JSON."""
        return _block("text", self.annotations, text=self.text)


@frozen
class Image(Block):
    """A picture."""

    data: bytes = field(repr=False)
    mime_type: str = "image/png"
    annotations: Annotations | None = field(default=None, kw_only=True)

    def to_wire(self) -> dict[str, JSON]:
        """As JSON."""
        data = _base64(self.data)
        return _block("image", self.annotations, data=data, mimeType=self.mime_type)


@frozen
class Audio(Block):
    """A sound."""

    data: bytes = field(repr=False)
    mime_type: str = "audio/wav"
    annotations: Annotations | None = field(default=None, kw_only=True)

    def to_wire(self) -> dict[str, JSON]:
        """As JSON."""
        data = _base64(self.data)
        return _block("audio", self.annotations, data=data, mimeType=self.mime_type)


@frozen
class ResourceLink(Block):
    """A resource that the client may read."""

    uri: str
    name: str
    title: str | None = field(default=None, kw_only=True)
    description: str | None = field(default=None, kw_only=True)
    mime_type: str | None = field(default=None, kw_only=True)
    size: int | None = field(default=None, kw_only=True)
    annotations: Annotations | None = field(default=None, kw_only=True)

    def to_wire(self) -> dict[str, JSON]:
        """As JSON."""
        return _block(
            "resource_link",
            self.annotations,
            uri=self.uri,
            name=self.name,
            title=self.title,
            description=self.description,
            mimeType=self.mime_type,
            size=self.size,
        )


@frozen
class ResourceContents:
    """What a resource holds: text or bytes.

    Attributes:
        data: A text, or bytes, which travel as Base64.
        uri: Where it is; by default what the client asked for.
        mime_type: Its type.
    """

    data: str | bytes = field(repr=False)
    uri: str | None = field(default=None, kw_only=True)
    mime_type: str | None = field(default=None, kw_only=True)

    def to_wire(self, uri: str = "", mime_type: str | None = None) -> dict[str, JSON]:
        """As JSON.

        Args:
            uri: Where it is, unless it says so itself.
            mime_type: Its type, unless it says so itself.
        """
        head = _written(uri=self.uri or uri, mimeType=self.mime_type or mime_type)
        if isinstance(self.data, bytes):
            return {**head, "blob": _base64(self.data)}
        return {**head, "text": self.data}


@frozen
class EmbeddedResource(Block):
    """A resource's contents, inside a result."""

    contents: ResourceContents
    annotations: Annotations | None = field(default=None, kw_only=True)

    def to_wire(self) -> dict[str, JSON]:
        """As JSON.

        Raises:
            OutputError: Its contents do not say where they are.
        """
        if not self.contents.uri:
            raise OutputError(["an EmbeddedResource needs ResourceContents(uri=...)"])
        return _block("resource", self.annotations, resource=self.contents.to_wire())


def _block(
    type_: str, annotations: Annotations | None, **fields: JSON
) -> dict[str, JSON]:
    block = _written(type=type_, **fields)
    if annotations is not None:
        block["annotations"] = annotations.to_wire()
    return block


@frozen
class Message:
    """A message of a prompt."""

    content: str | Block
    role: Role = "user"

    def to_wire(self) -> dict[str, JSON]:
        """As JSON."""
        (block,) = blocks_of([self.content])
        return {"role": self.role, "content": block}


#: Where nothing was given, which is not the same as None.
_NOTHING: Final = object()


@frozen
class ToolResult:
    """A tool's whole result, for what a plain return value cannot say.

    Attributes:
        content: A text, a block, or a list of them.
        structured: The `structuredContent`: any JSON value.
        is_error: Whether the model should read it as a failure.
        meta: What goes into the result's `_meta`.
    """

    content: Any = ()
    structured: JSON = field(default=_NOTHING, kw_only=True)
    is_error: bool = field(default=False, kw_only=True)
    meta: Mapping[str, JSON] | None = field(default=None, kw_only=True)

    @property
    def is_structured(self) -> bool:
        """Whether `structured` was given."""
        return self.structured is not _NOTHING


# ---- values as blocks ---------------------------------------------------------------


def blocks_of(value: Any) -> list[JSON]:
    """A text, a block, a list of them or `None`, as the protocol's blocks.

    Raises:
        OutputError: naming what is none of these.
    """
    if value is None:
        return []
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if isinstance(value, Block):
        return [value.to_wire()]
    if isinstance(value, bytes):
        raise OutputError(["bytes are no block; write Image(...) or Audio(...)"])
    if isinstance(value, (list, tuple)):
        found: list[JSON] = []
        for item in value:
            if not isinstance(item, (str, Block)):
                raise OutputError([f"{item!r} is neither a text nor a block"])
            found += blocks_of(item)
        return found
    raise OutputError([f"{value!r} is neither a text nor a block"])


def contents_of(value: Any, uri: str, mime_type: str | None) -> list[JSON] | None:
    """What a resource function returned, as contents; `None` for other values.

    Args:
        value: A text, bytes, `ResourceContents`, or a list of these.
        uri: What the client asked for.
        mime_type: The resource's declared type.
    """
    if isinstance(value, (str, bytes)):
        value = ResourceContents(value)
    if isinstance(value, ResourceContents):
        return [value.to_wire(uri, mime_type)]
    if isinstance(value, (list, tuple)) and all(
        isinstance(item, (str, bytes, ResourceContents)) for item in value
    ):
        found: list[JSON] = []
        for item in value:
            found += contents_of(item, uri, mime_type) or []
        return found
    return None


def messages_of(value: Any) -> list[JSON]:
    """What a prompt function returned, as messages.

    Args:
        value: A text or block, of the user's; a `Message`; or a list of these.

    Raises:
        OutputError: naming what is none of these.
    """
    items: Iterable[Any] = value if isinstance(value, (list, tuple)) else [value]
    found = []
    for item in items:
        if isinstance(item, (str, Block)):
            item = Message(item)
        if not isinstance(item, Message):
            raise OutputError([f"{item!r} is no message; write Message(text)"])
        found.append(item.to_wire())
    return found
