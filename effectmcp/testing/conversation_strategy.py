"""A Hypothesis strategy of conversations: the public side of `drawn_conversations`.

@given(conversation(order))
def test_order(transcript): ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hypothesis import reject
from hypothesis import strategies as st

from ..effects.steps import StepFunction
from .conversations import ConversationBroken
from .drawn_conversations import Looping, Options, converse
from .subjects import subject_of

if TYPE_CHECKING:
    from .transcripts import Transcript

__all__ = ["conversation"]


def conversation(
    handler: Callable[..., Any],
    *,
    edited: Callable[..., Any] | None = None,
    steps: Mapping[Any, st.SearchStrategy[Any]] | None = None,
    answers: Mapping[Any, st.SearchStrategy[Any]] | None = None,
    **arguments: st.SearchStrategy[Any],
) -> st.SearchStrategy[Transcript]:
    """Return a strategy of finished conversations with a handler.

    Args:
        handler: The handler. It must be valid as a tool's function.
        edited: The handler after a deploy: some conversations continue with it.
        steps: Strategies for the results of steps, by function, where the annotation is
            missing or too wide.
        answers: Strategies for what users fill in, by form as `Elicit` is given it: for
            forms that drawn values rarely fit. They draw the values that the handler
            receives.
        **arguments: Your own strategies for some of its arguments. They draw the values
            that the function receives.

    Raises:
        UsageError: If the handler yields no effects; when drawing, if no result can be
            drawn for a step.
        DivergenceError: When drawing, if the handler does not repeat itself.
        Unsteady: As `DivergenceError`.
    """
    subject = subject_of(handler)
    options = Options(
        arguments=arguments,
        steps={_function(one): made for one, made in (steps or {}).items()},
        answers=answers or {},
        edited=None if edited is None else subject_of(edited),
    )

    @st.composite
    def drawn(draw: st.DrawFn) -> Transcript:
        try:
            return converse(draw, subject, options)
        except Looping:
            reject()
        except ConversationBroken as broken:
            error = broken.error
            error.add_note(f"in the conversation\n{broken.transcript}")
            raise error from None

    return drawn()


def _function(step: Any) -> Callable[..., Any]:
    function: Callable[..., Any] = step.fn if isinstance(step, StepFunction) else step
    return function
