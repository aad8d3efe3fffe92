"""Values that are made by the dozen each round.

`@record` is `attrs.frozen` to whoever reads the types: assigning to an attribute is an
error to mypy and to editors. At run time nothing guards it, as attrs takes three times as
long to make an instance that guards itself, and a tenth of a round went there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attrs import frozen as record
else:
    from attrs import define

    def record(class_: Any = None, *, eq: bool = True, **options: Any) -> Any:
        # With a hash where it is compared by value, as what is frozen has one.
        return define(class_, eq=eq, unsafe_hash=eq or None, **options)


__all__ = ["record"]
