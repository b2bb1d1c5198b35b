"""Datasets of links as git-annex, DVC, huggingface_hub and users lay them out."""

from collections.abc import Callable

import pytest

from support.clusters import Cluster
from support.layouts import LAYOUTS, Layout, laid_out, read_twice


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("nodes", [1, 4])
def test_a_dataset_of_links_is_read_from_the_origin_once(
    make_cluster: Callable[..., Cluster], layout: Layout, nodes: int
) -> None:
    read_twice(laid_out(make_cluster(nodes), layout))
