"""The trees of SGLang's drafts, in which a node names its first child and its next sibling."""

from __future__ import annotations

import numpy as np

from ..dlpack import Array


def is_tree(topk: int, num_nodes: int, max_depth: int) -> bool:
    """Whether drafts with these numbers of SGLang are trees. Each counts the root; a topk of -1 has no
    bound."""
    return topk != 1 or num_nodes != max_depth


def parents_of(next_token: Array, next_sibling: Array) -> tuple[Array, Array]:
    """(parents, reached): parents of the draft tokens of each request as specd has them, an array of
    (requests, nodes - 1), and whether the tree reaches them. Node 0 is the root, which is no draft token.
    Draft tokens that it does not reach are padding, and follow the root."""
    count, width = next_token.shape
    above = np.zeros((count, width), np.int64)
    reached = np.zeros((count, width), bool)
    for i in range(count):
        nodes = [0]
        while nodes:
            node = nodes.pop()
            child = int(next_token[i, node])
            while child >= 0:
                if not node < child < width or reached[i, child]:
                    raise ValueError(f"child {child} of node {node} of request {i} is outside "
                                     f"{node + 1} .. {width - 1}, or listed twice; give the lists "
                                     "of SGLang's tree as they are")
                above[i, child], reached[i, child] = node, True
                nodes.append(child)
                child = int(next_sibling[i, child])
    return above[:, 1:] - 1, reached[:, 1:]
