"""`@record`: a class decorator for small values that each round makes by the dozen.

To type checkers and editors, `@record` is `attrs.frozen`: assigning to an attribute is
an error. At run time nothing prevents it, because attrs takes three times as long to
make a guarded instance, and that was a tenth of the time of a round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attrs import frozen as record
else:
    from attrs import define

    def record(class_: Any = None, *, eq: bool = True, **options: Any) -> Any:
        # Classes that compare by value get a hash, as frozen classes have.
        return define(class_, eq=eq, unsafe_hash=eq or None, **options)


__all__ = ["record"]
