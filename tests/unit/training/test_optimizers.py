"""Gradient ascent: Adam, and the paper's adaptive rates."""

import numpy as np
import pytest
import torch

from cavity.training.optimizers import Adam, AdaptiveRate, Optimizer


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


def gradients(n_steps=20, size=3):
    return torch.from_numpy(np.random.default_rng(0).standard_normal((n_steps, size)))


def adaptive(rate=0.01, size=3, largest=1.0, pooled=None):
    ones = torch.ones(size, dtype=torch.float64)
    return AdaptiveRate(rate * ones, largest * ones, torch.zeros_like(ones) if pooled is None else pooled)


# --- Adam ---


RATE = float(np.float32(0.03))  # rates are single


@pytest.mark.parametrize("n_rows", [1.0, 1e6])
def test_adam_makes_the_steps_of_torch(n_rows):
    """ε is per row of the objective."""
    parameter = torch.nn.Parameter(vector(0.5, -1.0, 2.0))
    theirs = torch.optim.Adam([parameter], lr=RATE, eps=1e-8 * n_rows, maximize=True)
    theta, ours = parameter.detach().clone(), Adam(0.03, False, n_rows)
    for gradient in gradients():
        parameter.grad = gradient.clone()
        theirs.step()
        theta = ours.step(theta, gradient, 0.7)
        torch.testing.assert_close(theta, parameter.detach(), rtol=1e-13, atol=1e-14)


def test_adam_decays_along_a_half_cosine():
    steps = []
    for progress in (0.0, 0.5, 1.0, 1.7):
        steps.append(float(Adam(0.1).step(vector(0.0), vector(1.0), progress)))
    assert steps == pytest.approx([0.1, 0.0505, 0.001, 0.001], rel=1e-6)


def test_a_rate_of_adam_is_single():
    adam = Adam(0.03)
    for progress in np.linspace(0.0, 1.0, 7):
        assert adam.rate(progress) == np.float32(adam.rate(progress))
    assert adam.rate(0.0) == RATE


def test_a_step_of_adam_that_is_skipped_leaves_no_trace():
    """Neither in θ nor in the steps that follow."""
    results = []
    for skipped in ((), (3, 4)):
        theta, adam = vector(0.5, -1.0, 2.0), Adam(0.03, decay=False)
        made = [g for i, g in enumerate(gradients()) if skipped or i not in (3, 4)]
        for i, gradient in enumerate(made):
            before = theta.clone()
            adam.move_(theta, gradient, adam.rate(0.0), torch.tensor(i in skipped))
            assert torch.equal(theta, before) == (i in skipped)
        results.append(theta)
    assert torch.equal(*results)


def test_adam_after_a_failure_makes_half_the_steps():
    adam = Adam(0.1, decay=False)
    size = adam.learning_rate()
    adam.shrink()
    assert adam.learning_rate() == size / 2 == 0.05
    assert float(adam.step(vector(0.0), vector(1.0), 0.0)) == pytest.approx(0.05)


def test_a_halved_rate_of_adam_recovers_with_steps_that_work():
    """Gradually, up to the full rate, to the bit; a checkpoint carries it."""
    adam, other = Adam(0.1, decay=False), Adam(0.1, decay=False)
    adam.shrink()
    adam.shrink()
    adam.recover(35)
    assert 0.04 < adam.learning_rate() < 0.06
    other.load_state_dict(adam.state_dict())
    for rule in (adam, other):
        rule.recover(20)
        rule.recover(16)
        assert rule.learning_rate() == 0.1


def test_a_rate_that_never_failed_stays_to_the_bit():
    adam = Adam(0.1)
    adam.recover(1000)
    assert adam.learning_rate() == 0.1


# --- The paper's rule ---


def test_adaptive_rate_by_hand():
    """×1.02 while the sign stays, ×0.5 when it flips; the step is rate × gradient."""
    rule, theta = adaptive(size=2), vector(0.0, 0.0)
    theta = rule.step(theta, vector(1.0, 1.0), 0.0)
    torch.testing.assert_close(theta, vector(0.01, 0.01))
    theta = rule.step(theta, vector(2.0, -1.0), 0.0)
    torch.testing.assert_close(theta, vector(0.01 + 0.0102 * 2.0, 0.01 - 0.005))
    theta = rule.step(theta, vector(1.0, -1.0), 0.0)
    torch.testing.assert_close(theta, vector(0.01 + 0.0102 * 2.0 + 0.01 * 1.02**2, 0.005 - 0.005 * 1.02))


def test_adaptive_rate_stops_at_its_largest():
    rule = adaptive(rate=0.9, size=1, largest=1.0)
    for _ in range(10):
        rule.step(vector(0.0), vector(1.0), 0.0)
    assert rule.learning_rate() == 1.0


def test_pooled_parameters_compare_their_last_sign_with_that_of_the_sum():
    """Gradients (3, −1) twice: the sum is positive, so the second one's rate halves though its own sign stayed."""
    rule, zero = adaptive(size=3, pooled=vector(1.0, 1.0, 0.0)), vector(0.0, 0.0, 0.0)
    for _ in range(2):
        step = rule.step(zero, vector(3.0, -1.0, -1.0), 0.0)
    torch.testing.assert_close(step, vector(3 * 0.0102, -0.005, -0.0102))


def test_parameters_that_are_not_pooled_do_not_enter_the_sum():
    rule, zero = adaptive(size=3, pooled=vector(1.0, 1.0, 0.0)), vector(0.0, 0.0, 0.0)
    for _ in range(2):
        step = rule.step(zero, vector(3.0, 1.0, -100.0), 0.0)
    torch.testing.assert_close(step, vector(3 * 0.0102, 0.0102, -1.02))


def test_adaptive_rate_after_a_failure():
    rule = adaptive()
    rule.shrink()
    assert rule.learning_rate() == 0.005


# --- Both ---


@pytest.mark.parametrize("optimizer", [Adam(0.1), adaptive(size=2)])
def test_a_step_leaves_the_old_vector_alone_and_ascends(optimizer):
    assert isinstance(optimizer, Optimizer)
    theta = vector(1.0, 2.0)
    moved = optimizer.step(theta, vector(1.0, -1.0), 0.0)
    assert torch.equal(theta, vector(1.0, 2.0))
    assert torch.equal(torch.sign(moved - theta), vector(1.0, -1.0))


def test_nothing_to_learn_has_no_rate():
    assert adaptive(size=0).learning_rate() == 0.0
