"""The content blocks of the protocol, and how the values of handlers become blocks.

    str                          one text block
    Image, Audio, …              that block
    a list of these              those blocks
    None                         no blocks
    any other value              JSON: structuredContent, and a text block with the same
    ToolResult                   the content that it specifies

Tools may not return plain bytes, which could be a picture or a sound.
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
    # With the names of the protocol, and without the fields that are None.
    return {name: value for name, value in fields.items() if value is not None}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


@frozen(kw_only=True)
class Annotations:
    """Hints about a block or a resource, for clients that show it.

    Attributes:
        audience: The intended readers: `"user"`, `"assistant"` or both.
        priority: A number from 0 (optional) to 1 (required).
        last_modified: The time of the last change.
    """

    audience: Sequence[Role] | None = None
    priority: float | None = None
    last_modified: dt.datetime | str | None = None

    def to_wire(self) -> dict[str, JSON]:
        """Return the hints as JSON."""
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
    """An icon of a server, tool, prompt or resource.

    Attributes:
        src: An `https:` or `data:` URI.
        mime_type: The MIME type, if the server of `src` does not report it.
        sizes: The sizes, such as `["48x48"]`, or `["any"]`.
        theme: The theme that the icon is drawn for.
    """

    src: str
    mime_type: str | None = field(default=None, kw_only=True)
    sizes: Sequence[str] | None = field(default=None, kw_only=True)
    theme: Literal["light", "dark"] | None = field(default=None, kw_only=True)

    def to_wire(self) -> dict[str, JSON]:
        """Return the icon as JSON."""
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
        """Return the block as JSON."""
        raise NotImplementedError  # each kind of block has its own


@frozen
class Text(Block):
    """A text block with annotations; without annotations, use a plain `str`."""

    text: str
    annotations: Annotations | None = field(default=None, kw_only=True)

    def to_wire(self) -> dict[str, JSON]:
        """Return the block as JSON."""
        return _block("text", self.annotations, text=self.text)


@frozen
class Image(Block):
    """A picture."""

    data: bytes = field(repr=False)
    mime_type: str = "image/png"
    annotations: Annotations | None = field(default=None, kw_only=True)

    def to_wire(self) -> dict[str, JSON]:
        """Return the block as JSON."""
        data = _base64(self.data)
        return _block("image", self.annotations, data=data, mimeType=self.mime_type)


@frozen
class Audio(Block):
    """A sound."""

    data: bytes = field(repr=False)
    mime_type: str = "audio/wav"
    annotations: Annotations | None = field(default=None, kw_only=True)

    def to_wire(self) -> dict[str, JSON]:
        """Return the block as JSON."""
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
        """Return the block as JSON."""
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
    """The contents of a resource: a string or bytes.

    Attributes:
        data: The contents; bytes are sent as Base64.
        uri: The URI of the resource; the default is the URI that the client requested.
        mime_type: The MIME type; the default is the type that the resource declares.
    """

    data: str | bytes = field(repr=False)
    uri: str | None = field(default=None, kw_only=True)
    mime_type: str | None = field(default=None, kw_only=True)

    def to_wire(self, uri: str = "", mime_type: str | None = None) -> dict[str, JSON]:
        """Return the contents as JSON.

        Args:
            uri: The URI, if the contents have none.
            mime_type: The MIME type, if the contents have none.
        """
        head = _written(uri=self.uri or uri, mimeType=self.mime_type or mime_type)
        if isinstance(self.data, bytes):
            return {**head, "blob": _base64(self.data)}
        return {**head, "text": self.data}


@frozen
class EmbeddedResource(Block):
    """The contents of a resource, included in a result."""

    contents: ResourceContents
    annotations: Annotations | None = field(default=None, kw_only=True)

    def to_wire(self) -> dict[str, JSON]:
        """Return the block as JSON.

        Raises:
            OutputError: If the contents have no URI.
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
        """Return the message as JSON."""
        (block,) = blocks_of([self.content])
        return {"role": self.role, "content": block}


#: The default of `structured`, as None is a JSON value.
_NOTHING: Final = object()


@frozen
class ToolResult:
    """A complete result of a tool, for cases that a plain return value cannot express.

    Attributes:
        content: A string, a block, or a list of these.
        structured: The `structuredContent`: any JSON value.
        is_error: Whether the model should treat the result as a failure.
        meta: The `_meta` of the result.
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
    """Convert a string, a block, a list of these or `None` to blocks of the protocol.

    Raises:
        OutputError: If a value is of another type.
    """
    if value is None:
        return []
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if isinstance(value, Block):
        return [value.to_wire()]
    if isinstance(value, bytes):
        raise OutputError(["bytes are not a block; write Image(...) or Audio(...)"])
    if isinstance(value, (list, tuple)):
        found: list[JSON] = []
        for item in value:
            if not isinstance(item, (str, Block)):
                raise OutputError([f"{item!r} is neither a string nor a block"])
            found += blocks_of(item)
        return found
    raise OutputError([f"{value!r} is neither a string nor a block"])


def contents_of(value: Any, uri: str, mime_type: str | None) -> list[JSON] | None:
    """Convert the value of a resource function to contents; `None` for other types.

    Args:
        value: A string, bytes, `ResourceContents`, or a list of these.
        uri: The URI that the client requested.
        mime_type: The MIME type that the resource declares.
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
    """Convert the value of a prompt function to messages.

    Args:
        value: A string or a block, which become messages of the user; a `Message`; or a
            list of these.

    Raises:
        OutputError: If a value is of another type.
    """
    items: Iterable[Any] = value if isinstance(value, (list, tuple)) else [value]
    found = []
    for item in items:
        if isinstance(item, (str, Block)):
            item = Message(item)
        if not isinstance(item, Message):
            raise OutputError([f"{item!r} is not a message; write Message(text)"])
        found.append(item.to_wire())
    return found
