"""Fingerprints of a flow, as a run makes them."""

from effectmcp.engine.flow_state import RENDERS, SHAPES, Fingerprints

__all__ = ["prints_of"]


def prints_of(flow_id: bytes) -> Fingerprints:
    return Fingerprints(flow_id, RENDERS(key=flow_id), SHAPES(key=flow_id), {})
