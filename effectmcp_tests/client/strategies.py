"""Valid and invalid messages of a server, as Hypothesis strategies."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from .ways import asking, form

Strategy = st.SearchStrategy[Any]

keys = st.text(max_size=8)
json_values: Strategy = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=8,
)

questions: Strategy = st.dictionaries(
    keys,
    st.builds(form, st.text(max_size=8))
    | st.fixed_dictionaries(
        {"method": st.text(max_size=8)},
        optional={"params": st.dictionaries(keys, json_values, max_size=3)},
    ),
    max_size=3,
)
interim: Strategy = st.builds(asking, questions, requestState=st.text(max_size=8))

#: Interim results in which something may be of another type, and then any JSON.
anything: Strategy = (
    st.fixed_dictionaries(
        {},
        optional={
            "resultType": st.sampled_from(["complete", "input_required", "task"])
            | json_values,
            "inputRequests": questions | json_values,
            "requestState": st.text(max_size=8) | json_values,
        },
    )
    | interim
    | st.fixed_dictionaries(
        {},
        optional={
            "method": st.just("tools/call") | json_values,
            "params": st.dictionaries(keys, json_values, max_size=2) | json_values,
            "state": st.text(max_size=8) | json_values,
            "rounds": st.integers(0, 9) | json_values,
            "questions": questions | json_values,
        },
    )
    | json_values
)
