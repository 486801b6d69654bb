"""Features laid out in a plane by t-SNE."""

import pytest
import torch

from rofl.audit.projection import project_features

GENERATOR = torch.Generator().manual_seed(0)
CENTRES = torch.eye(3, 8)


def clusters(each):
    """Three kinds of features (3 * each, 8), far apart."""
    return CENTRES.repeat_interleave(each, 0) + 0.05 * torch.randn(3 * each, 8, generator=GENERATOR)


def test_a_class_lies_beside_its_centroid_and_twice_in_the_same_place():
    features = clusters(20)
    samples, centroids = project_features(features, CENTRES)
    assert samples.shape == (60, 2)
    nearest = torch.cdist(torch.tensor(samples), torch.tensor(centroids)).argmin(dim=1)
    assert nearest.tolist() == [0] * 20 + [1] * 20 + [2] * 20
    assert (project_features(features, CENTRES)[0] == samples).all()


@pytest.mark.parametrize("count", [4, 10])
def test_few_samples_and_odd_ones_do_not_stop_it(count):
    features = clusters(4)[:count]
    features[0] = float("nan")
    features[1] = 0
    assert project_features(features, None)[1].shape == (0, 2)
