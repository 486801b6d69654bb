"""The paper's method, its readings (docs/method.md) and its ablations."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from rofl.core.tensors import digest
from rofl.data import ClientDataset, batches
from rofl.methods import FedAvg, Rofl, RoundContext, ServerState, Update
from rofl.methods import pseudo_labels as pseudo_labels
from rofl.methods.inference import forward
from rofl.methods.weights import load_weights
from rofl.methods.weights import model_weights as all_weights
from rofl.models import Network
from tests.methods import toy
from tests.naive import equations, local_update

T = 6  # a round in which all is at work: t_pl is below, lambda_cen has risen
FULL = Rofl(lr=0.1, batch=8, epochs=2, tau=0.3, t_pl=4, cen_start=0.0, soft=False)
BARE = replace(FULL, lambda_cen=0.0, lambda_e=0.0, mask=False, pseudo="none")  # nothing of the paper is left
DATA = toy.noisy(range(24))
ONE_STEP = {"batch": 24, "epochs": 1, "momentum": 0.0, "weight_decay": 0.0}


@pytest.fixture(scope="module")
def server_state() -> ServerState:
    """The global state after two rounds: centroids are there, predictions are not firm yet."""
    return toy.play(replace(FULL, lr=0.25, lambda_e=0.0), [DATA, toy.noisy(range(24, 48))], rounds=2)


def train(method: Rofl | FedAvg, server_state: ServerState, data: ClientDataset = DATA, index: int = T) -> Update:
    return toy.train(method, server_state, data, index)


def same_weights(left: Update, right: Update) -> bool:
    return digest(left.model) == digest(right.model)


def moved(left: Update, right: Update) -> set[str]:
    return {name for name in left.model if not torch.equal(left.model[name], right.model[name])}


def first_batch(
    server_state: ServerState, data: ClientDataset = DATA, index: int = T
) -> tuple[Network, torch.Tensor, torch.Tensor]:
    """The network, logits and features at the first step of a round whose batch is the whole shard, and its order."""
    ctx, net = RoundContext(index, toy.SEED, client=0), toy.network()
    load_weights(net, server_state.model)
    net.train()
    order = next(batches(len(data), len(data), ctx.rng("batches")))
    return net, order, data.inputs(order, ctx.rng("augment"))


# --- every term acts ---


@pytest.mark.parametrize("off", [{"lambda_cen": 0.0}, {"lambda_e": 0.0}, {"mask": False}, {"pseudo": "none"}])
def test_each_part_of_the_loss_moves_the_feature_extractor(server_state: ServerState, off: dict[str, Any]) -> None:
    difference = moved(train(FULL, server_state), train(replace(FULL, **off), server_state))
    assert "extractor.0.weight" in difference
    assert "classifier.weight" in difference


@pytest.mark.parametrize("form", ["dimension", "sample", "sum"])
def test_the_gradient_of_l_cen_reaches_the_extractor_and_only_that(server_state: ServerState, form: str) -> None:
    bare, weight = replace(BARE, **ONE_STEP), 0.5
    alone = train(bare, server_state)
    both = train(replace(bare, lambda_cen=weight, cen_form=form), server_state)
    net, order, inputs = first_batch(server_state)
    _, features = net(inputs)
    apart = (features - server_state.aux["centroids"][DATA.labels[order]]).square().sum()
    loss = apart / {"sum": 1, "sample": len(DATA), "dimension": len(DATA) * net.feature_size}[form]
    loss.backward()
    assert moved(alone, both) == {name for name, _ in net.extractor.named_parameters(prefix="extractor")}
    for name, parameter in net.extractor.named_parameters(prefix="extractor"):
        expected = -bare.lr * weight * len(DATA) * parameter.grad
        torch.testing.assert_close(both.model[name] - alone.model[name], expected, rtol=1e-3, atol=1e-4)


def test_l_e_is_the_gradient_of_the_mean_entropy(server_state: ServerState) -> None:
    bare = replace(BARE, **ONE_STEP)
    alone, both = train(bare, server_state), train(replace(bare, lambda_e=0.8), server_state)
    net, _, inputs = first_batch(server_state)
    probabilities = net(inputs)[0].softmax(dim=1)
    (-(probabilities * probabilities.log()).sum() / len(DATA)).backward()
    for name, parameter in net.named_parameters():
        expected = -bare.lr * 0.8 * len(DATA) * parameter.grad
        torch.testing.assert_close(both.model[name] - alone.model[name], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("index", "share"), [(1, 0.25), (2, 0.5), (4, 1.0), (9, 1.0)])
def test_lambda_cen_rises_over_the_rounds_up_to_t_pl(server_state: ServerState, index: int, share: float) -> None:
    now = train(replace(FULL, lambda_cen=0.8), server_state, index=index)
    fixed = train(replace(FULL, lambda_cen=0.8 * share, cen_rise=0.0), server_state, index=index)
    assert same_weights(now, fixed)


def test_lambda_cen_can_wait(server_state: ServerState) -> None:
    waiting = replace(FULL, cen_start=2.0)  # twice T_pl
    assert same_weights(
        train(waiting, server_state, index=8), train(replace(FULL, lambda_cen=0.0), server_state, index=8)
    )
    assert not same_weights(
        train(waiting, server_state, index=9), train(replace(FULL, lambda_cen=0.0), server_state, index=9)
    )


# --- Algorithm 1 ---


@pytest.mark.parametrize("name", ["small", "mlp"])
@pytest.mark.parametrize(("index", "soft"), [(1, False), (2, False), (T, False), (T, True)])
def test_a_client_does_what_algorithm_1_says(server_state: ServerState, name: str, index: int, soft: bool) -> None:
    net, ctx = toy.network(name, width=0.06), RoundContext(index, toy.SEED, client=0)
    method = replace(FULL, batch=6, soft=soft, warmup=3)
    shards = [toy.noisy(range(12)), toy.client_data([row for row in range(12, 30) if row % 4 != 2])]
    start = method.init(net) if index == 1 else toy.play(replace(method, lr=0.02), shards, rounds=1, net=net)

    total, locals_, counts = method.zero_update(start), [], []
    for data in shards:
        load_weights(net, start.model)
        epochs = toy.drawn_epochs(method, data, ctx)
        slow = local_update.local_update(
            net,
            start.aux["centroids"].tolist(),
            data.inputs(slice(None)),
            data.labels.tolist(),
            epochs,
            index,
            lr=method.lr,
            momentum=method.momentum,
            weight_decay=method.weight_decay,
            tau=method.tau,
            warmup=method.warmup,
            t_pl=method.t_pl,
            lambda_cen=method.lambda_cen,
            lambda_e=method.lambda_e,
            soft=soft,
        )
        locals_.append(slow)
        counts.append(data.class_counts().tolist())
        after = all_weights(net)
        update = toy.train(method, start, data, index, net=net)
        toy.assert_same_change(update.model, after, start.model, len(data))
        weights = [
            [equations.centroid_weight(*row)]
            for row in zip(start.aux["centroids"].tolist(), slow, counts[-1], strict=True)
        ]
        torch.testing.assert_close(update.aux["similarity"], torch.tensor(weights), rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(
            update.aux["centroids"], torch.tensor(weights) * torch.tensor(slow), rtol=1e-3, atol=1e-3
        )
        total = total + update
    merged = equations.global_centroids(start.aux["centroids"].tolist(), locals_, counts)
    found = method.server_update(start, total, RoundContext(index, toy.SEED)).aux["centroids"]
    torch.testing.assert_close(found, torch.tensor(merged), rtol=1e-3, atol=1e-3)


# --- pseudo-labels (Eq. 8) ---


def relabelled(server_state: ServerState, data: ClientDataset = DATA) -> ClientDataset:
    """The client's data with the labels that the received model gives: evaluation mode, images as they are."""
    net = toy.network()
    load_weights(net, server_state.model)
    net.eval()
    with torch.no_grad():
        logits, _ = net(data.inputs(slice(None)))
    return replace(data, labels=logits.argmax(dim=1))


def test_pseudo_labels_are_the_received_models_in_evaluation_mode_without_augmentation_once_a_round(
    server_state: ServerState,
) -> None:
    """Without mask every label is replaced: plain training on the labels that the global model gives."""
    guided = train(replace(BARE, pseudo="global", epochs=3), server_state)
    plain = FedAvg(lr=BARE.lr, batch=BARE.batch, epochs=3)
    assert same_weights(guided, train(plain, server_state, relabelled(server_state)))
    # ... and the claim is not empty: any other way to ask gives other labels
    net, order, inputs = first_batch(server_state)
    expected = relabelled(server_state).labels
    with torch.no_grad():
        in_training = net(inputs)[0].argmax(dim=1)
        augmented = net.eval()(inputs)[0].argmax(dim=1)
    assert not torch.equal(in_training, expected[order])
    assert not torch.equal(augmented, expected[order])
    assert not torch.equal(expected, DATA.labels)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows whose labels a model was asked for, in turn; no client is so small that it is asked for all at once."""
    rows_shown: list[int] = []

    def spy(predictor: Network, pixels: Any, transform: Any, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows_shown.extend(rows.tolist())
        return forward(predictor, pixels, transform, rows)

    monkeypatch.setattr(pseudo_labels, "forward", spy)
    monkeypatch.setattr(pseudo_labels, "CHUNK", 0)
    return rows_shown


def test_the_global_model_is_asked_for_unconfident_samples_only_and_once_a_round(
    server_state: ServerState, asked: list[int]
) -> None:
    update = train(replace(FULL, **ONE_STEP), server_state)
    assert 0 < len(asked) == len(DATA) - update.metrics["confident"]
    assert set(asked) < set(DATA.rows.tolist())
    asked.clear()
    train(replace(FULL, mask=False, epochs=3), server_state)
    assert sorted(asked) == sorted(DATA.rows.tolist())


def test_pseudo_labels_of_the_needed_samples_train_like_those_of_all(server_state: ServerState, request) -> None:
    method = replace(FULL, soft=True)
    at_once = train(method, server_state)
    asked = request.getfixturevalue("asked")
    bit_by_bit = train(method, server_state)
    assert 0 < len(asked) < len(DATA)
    torch.testing.assert_close(bit_by_bit.model, at_once.model)
    torch.testing.assert_close(bit_by_bit.aux, at_once.aux)


def test_the_local_model_is_asked_anew_in_every_epoch(server_state: ServerState, asked: list[int]) -> None:
    train(replace(FULL, mask=False, epochs=3, pseudo="naive"), server_state)
    assert sorted(asked) == sorted(3 * DATA.rows.tolist())


def test_nobody_is_asked_where_no_pseudo_label_is_used(server_state: ServerState, asked: list[int]) -> None:
    train(FULL, server_state, index=3)  # before T_pl
    train(replace(FULL, pseudo="none"), server_state)
    assert asked == []


def test_the_pass_for_the_first_centroids_serves_the_pseudo_labels_too(
    server_state: ServerState, asked: list[int]
) -> None:
    train(FULL, replace(server_state, aux={"centroids": torch.zeros_like(server_state.aux["centroids"])}))
    assert asked == []


@pytest.mark.parametrize("pseudo", ["global", "naive", "none"])
@pytest.mark.parametrize("mask", [True, False])
def test_before_t_pl_all_given_labels_are_believed(server_state: ServerState, pseudo: str, mask: bool) -> None:
    method = replace(BARE, lambda_e=0.8, pseudo=pseudo, mask=mask)
    reference = train(replace(BARE, lambda_e=0.8, t_pl=T + 1), server_state)
    assert same_weights(train(replace(method, t_pl=T + 1), server_state), reference)
    acts_from_t_pl_on = mask or pseudo != "none"
    assert same_weights(train(replace(method, t_pl=T), server_state), reference) == (not acts_from_t_pl_on)


def test_soft_pseudo_labels_are_the_received_models_probabilities(server_state: ServerState) -> None:
    method = replace(BARE, **ONE_STEP, pseudo="global", soft=True)
    net = toy.network()
    load_weights(net, server_state.model)
    with torch.no_grad():
        targets = net.eval()(DATA.inputs(slice(None)))[0].softmax(dim=1)
    net, order, inputs = first_batch(server_state)
    torch.nn.functional.cross_entropy(net(inputs)[0], targets[order]).backward()
    found = train(method, server_state)
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(found.model[name], -method.lr * len(DATA) * parameter.grad, rtol=1e-3, atol=1e-4)


def test_only_unconfident_samples_follow_the_pseudo_labels(server_state: ServerState) -> None:
    method = replace(FULL, **ONE_STEP, lambda_cen=0.0, lambda_e=0.0)
    net, order, inputs = first_batch(server_state)
    logits, features = net(inputs)
    given, guess = DATA.labels[order], relabelled(server_state).labels[order]
    mask = equations.confident_mask(features.tolist(), given.tolist(), server_state.aux["centroids"].tolist())
    targets = torch.where(torch.tensor(mask) == 1, given, guess)
    assert len({tuple(labels.tolist()) for labels in (given, guess, targets)}) == 3
    torch.nn.functional.cross_entropy(logits, targets).backward()
    found = train(method, server_state)
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(found.model[name], -method.lr * len(DATA) * parameter.grad, rtol=1e-3, atol=1e-4)


# --- small losses (Eq. 2) ---


@pytest.mark.parametrize("changes", [{"mask": False}, {"t_pl": T + 1}], ids=["mask off", "before T_pl"])
def test_small_loss_selection_touches_the_centroids_and_no_loss(
    server_state: ServerState, changes: dict[str, Any]
) -> None:
    method = replace(FULL, lambda_cen=0.0, **changes)
    every, few = train(replace(method, tau=0.0), server_state), train(replace(method, tau=0.6), server_state)
    assert same_weights(every, few)
    assert digest(every.aux) != digest(few.aux)


def test_r_of_t_falls_until_the_warmup_ends(server_state: ServerState) -> None:
    """tau acts in full from round T on: then neither a longer run nor a shorter warm-up changes anything."""
    method = replace(FULL, tau=0.5, warmup=T)
    assert digest(train(method, server_state).aux) == digest(train(replace(method, warmup=1), server_state).aux)
    assert digest(train(method, server_state).aux) != digest(train(replace(method, warmup=2 * T), server_state).aux)
    half = train(replace(method, tau=0.25, warmup=1), server_state)
    assert digest(train(replace(method, warmup=2 * T), server_state).aux) == digest(half.aux)


def test_tau_must_be_a_number_by_the_time_of_training(server_state: ServerState) -> None:
    with pytest.raises(ValueError, match="tau"):
        train(replace(FULL, tau="known"), server_state)


# --- centroids (Eq. 3, 4, 11-13) ---


def server(
    method: Rofl, server_state: ServerState, shards: list[ClientDataset], index: int
) -> tuple[ServerState, list[Update]]:
    updates = [toy.train(method, server_state, data, index, client) for client, data in enumerate(shards)]
    total = sum(updates, method.zero_update(server_state))
    return method.server_update(server_state, total, RoundContext(index, toy.SEED)), updates


TWO_CLASSES = toy.client_data([row for row in range(24, 48) if row % 4 < 2])


def test_a_class_the_client_lacks_has_no_weight(server_state: ServerState) -> None:
    update = train(FULL, server_state, TWO_CLASSES)
    assert (update.aux["similarity"].squeeze(1) > 0).tolist() == [True, True, False, False]
    assert not update.aux["centroids"][2:].any()


def test_a_class_everybody_lacks_keeps_its_centroid(server_state: ServerState) -> None:
    after, _ = server(FULL, server_state, [TWO_CLASSES, toy.client_data([48, 49, 52, 53])], T)
    changed = (after.aux["centroids"] != server_state.aux["centroids"]).any(dim=1)
    assert changed.tolist() == [True, True, False, False]


def test_a_client_without_a_class_has_no_say_in_its_centroid(server_state: ServerState) -> None:
    alone, _ = server(FULL, server_state, [DATA], T)
    together, _ = server(FULL, server_state, [DATA, TWO_CLASSES], T)
    assert torch.equal(alone.aux["centroids"][2:], together.aux["centroids"][2:])
    assert not torch.equal(alone.aux["centroids"][:2], together.aux["centroids"][:2])


@pytest.mark.parametrize("index", [2, T])
def test_a_class_first_seen_in_a_later_round_gets_a_centroid(index: int) -> None:
    young = toy.play(FULL, [TWO_CLASSES], rounds=1)
    assert young.aux["centroids"].any(dim=1).tolist() == [True, True, False, False]
    newcomers = [toy.noisy(range(24)), toy.client_data(range(48, 60))]
    after, updates = server(FULL, young, newcomers, index)
    assert after.aux["centroids"].any(dim=1).all()
    assert torch.isfinite(after.aux["centroids"]).all()
    for update in updates:  # nobody could compare: all count alike
        assert update.aux["similarity"][2:].tolist() == [[1.0], [1.0]]
    plain_mean = sum(update.aux["centroids"][2:] for update in updates) / 2
    torch.testing.assert_close(after.aux["centroids"][2:], plain_mean)


def test_round_one_gives_the_plain_mean_of_the_clients_centroids() -> None:
    begun = FULL.init(toy.network())
    assert not begun.aux["centroids"].any()
    after, updates = server(FULL, begun, [DATA, toy.client_data(range(24, 60))], 1)
    assert all(update.aux["similarity"].tolist() == [[1.0]] * 4 for update in updates)
    plain_mean = (updates[0].aux["centroids"] + updates[1].aux["centroids"]) / 2
    torch.testing.assert_close(after.aux["centroids"], plain_mean)


def test_round_one_starts_from_the_clients_naive_means() -> None:
    """Eq. 5 in the first step pulls towards the class means of the received model's features."""
    bare, begun = replace(BARE, **ONE_STEP), FULL.init(toy.network())
    alone = train(bare, begun, index=1)
    both = train(replace(bare, lambda_cen=1.0, cen_rise=0.0), begun, index=1)
    net, order, inputs = first_batch(begun, index=1)
    with torch.no_grad():
        still = net.eval()(DATA.inputs(slice(None)))[1]
    means, _ = equations.class_means(still.tolist(), DATA.labels.tolist(), toy.CLASSES)
    features = net.train()(inputs)[1]
    (features - torch.tensor(means)[DATA.labels[order]]).square().mean().backward()
    name = "extractor.0.weight"
    expected = -bare.lr * len(DATA) * net.extractor[0].weight.grad
    torch.testing.assert_close(both.model[name] - alone.model[name], expected, rtol=1e-3, atol=1e-4)


# --- the ablations of the paper ---


@pytest.mark.parametrize("index", [1, T])
@pytest.mark.parametrize("name", ["small", "mlp", "cnn9"])
def test_with_everything_off_it_is_plain_fedavg_to_the_bit(index: int, name: str) -> None:
    net = toy.network(name, width=0.125)
    plain = FedAvg(lr=BARE.lr, batch=BARE.batch, epochs=BARE.epochs)
    start = BARE.init(net)
    ours = toy.train(BARE, start, DATA, index, net=net)
    theirs = toy.train(plain, ServerState(start.model), DATA, index, net=net)
    assert same_weights(ours, theirs)
    assert ours.weight == theirs.weight


def test_mask_without_pseudo_labels_removes_the_unconfident(server_state: ServerState) -> None:
    method = replace(FULL, **ONE_STEP, lambda_cen=0.0, lambda_e=0.0, pseudo="none")
    net, order, inputs = first_batch(server_state)
    logits, features = net(inputs)
    labels = DATA.labels[order]
    mask = torch.tensor(
        equations.confident_mask(features.tolist(), labels.tolist(), server_state.aux["centroids"].tolist())
    ).bool()
    assert 0 < int(mask.sum()) < len(DATA)
    (torch.nn.functional.cross_entropy(logits[mask], labels[mask], reduction="sum") / len(DATA)).backward()
    found = train(method, server_state)
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(found.model[name], -method.lr * len(DATA) * parameter.grad, rtol=1e-3, atol=1e-4)


def test_naive_pseudo_labels_are_the_local_models_own_and_renewed_each_epoch(server_state: ServerState) -> None:
    one = replace(FULL, lr=0.25, lambda_e=0.0, epochs=1)
    assert same_weights(train(one, server_state), train(replace(one, pseudo="naive"), server_state))
    two = replace(one, epochs=2)
    assert not same_weights(train(two, server_state), train(replace(two, pseudo="naive"), server_state))


def elsewhere(server_state: ServerState) -> ServerState:
    """The same weights, with other stored centroids."""
    return ServerState(server_state.model, {"centroids": server_state.aux["centroids"].flip(0) + 1})


def test_with_global_centroids_off_the_stored_ones_do_not_matter(server_state: ServerState) -> None:
    off = replace(FULL, global_centroids=False)
    assert same_weights(train(off, server_state), train(off, elsewhere(server_state)))
    assert not same_weights(train(FULL, server_state), train(FULL, elsewhere(server_state)))


def test_with_global_centroids_off_not_even_those_of_classes_the_client_lacks_matter(server_state: ServerState) -> None:
    off = replace(FULL, global_centroids=False)
    assert same_weights(train(off, server_state, TWO_CLASSES), train(off, elsewhere(server_state), TWO_CLASSES))


def test_with_global_centroids_off_a_batchs_means_take_the_centroids_place(server_state: ServerState) -> None:
    one = replace(FULL, **ONE_STEP, tau=0.0, global_centroids=False)
    net, order, inputs = first_batch(server_state)
    with torch.no_grad():
        features = net(inputs)[1]
    means, _ = equations.class_means(features.tolist(), DATA.labels[order].tolist(), toy.CLASSES)
    update = train(one, server_state)
    found = update.aux["centroids"] / update.aux["similarity"]
    torch.testing.assert_close(found, torch.tensor(means), rtol=1e-4, atol=1e-5)


# --- what it tells ---


ALONE = {f"one sample, of class {row}": toy.client_data([row]) for row in range(4)}


@pytest.mark.parametrize("data", [DATA, TWO_CLASSES, *ALONE.values()], ids=["usual", "two classes", *ALONE])
def test_no_more_samples_are_confident_than_there_are(server_state: ServerState, data: ClientDataset) -> None:
    metrics = train(FULL, server_state, data).metrics
    assert metrics["samples"] >= len(data) * FULL.epochs
    assert 0 <= metrics["confident"] <= metrics["samples"]


def test_the_reported_loss_is_the_sum_of_its_weighted_terms(server_state: ServerState) -> None:
    metrics = train(replace(FULL, lambda_cen=0.7), server_state).metrics
    total = metrics["loss_c"] + 0.7 * metrics["loss_cen"] + 0.8 * metrics["loss_e"]
    assert metrics["loss"] == pytest.approx(total, rel=1e-4)
    assert min(metrics["loss_c"], metrics["loss_cen"], metrics["loss_e"]) > 0


def test_tau_auto_is_the_share_that_was_not_confident_and_only_two_counts_travel_for_it() -> None:
    method = toy.build("rofl", tau="auto")
    data = list(toy.clients().values())
    begun = method.init(toy.network())
    assert begun.aux["doubt"].tolist() == [0.0]
    updates = [toy.train(method, begun, client_data, 1, client) for client, client_data in enumerate(data)]
    counts = torch.stack([update.aux["doubt"] for update in updates])  # (C, 2)
    assert counts[:, 1].tolist() == [max(len(client_data), 2) for client_data in data]  # a single sample is shown twice
    assert (counts[:, 0] <= counts[:, 1]).all()
    total = method.zero_update(begun)
    for update in updates:
        total = total + update
    after = method.server_update(begun, total, RoundContext(1, toy.SEED))
    assert after.aux["doubt"].item() == pytest.approx(float(counts[:, 0].sum() / counts[:, 1].sum()))


def test_tau_auto_trains_as_the_same_tau_given() -> None:
    data = toy.noisy(range(24))
    auto, fixed = toy.build("rofl", tau="auto"), toy.build("rofl", tau=0.25)
    told = toy.play(auto, [data], rounds=2)
    told = ServerState(told.model, {**told.aux, "doubt": torch.tensor([0.25])})
    plain = ServerState(told.model, {"centroids": told.aux["centroids"]})
    left, right = toy.train(auto, told, data, 12), toy.train(fixed, plain, data, 12)
    assert digest(left.model) == digest(right.model)
    assert torch.equal(left.aux["centroids"], right.aux["centroids"])
    other = toy.train(auto, ServerState(told.model, {**told.aux, "doubt": torch.tensor([0.6])}), data, 12)
    assert not torch.equal(left.aux["centroids"], other.aux["centroids"])


@pytest.mark.slow
def test_tau_auto_comes_near_the_true_ratio_on_the_toy_world() -> None:
    """Of the mean over seeds: one run of so small a world is chaotic, and ends elsewhere on another CPU.

    Over eight seeds the estimate was 0.40 +- 0.03 where 0.34 of the labels are wrong, and 0.08 +- 0.08 where none is.
    """
    method, seeds = toy.build("rofl", tau="auto", t_pl=4, epochs=2, lr=0.1), range(4)

    def estimate(ratio: float) -> tuple[float, float]:
        clients = [toy.noisy(range(start, start + 32), ratio=ratio) for start in (0, 32, 64)]
        wrong = sum(int((data.labels != toy.client_data(data.rows).labels).sum()) for data in clients) / 96
        runs = [toy.play(method, clients, 10, toy.network(seed=seed), seed).aux["doubt"].item() for seed in seeds]
        return sum(runs) / len(runs), wrong

    noisy, wrong = estimate(0.3)
    clean, none = estimate(0.0)
    assert noisy == pytest.approx(wrong, abs=0.12)
    assert none == 0 <= clean < noisy - 0.15


def test_tau_auto_leaves_something_over_when_nothing_is_confident() -> None:
    method, data = toy.build("rofl", tau="auto"), toy.noisy(range(24))
    server_state = toy.play(method, [data], rounds=1)
    updates = [
        toy.train(
            method, ServerState(server_state.model, {**server_state.aux, "doubt": torch.tensor([share])}), data, 20
        )
        for share in (0.8, 0.9, 1.0)
    ]
    assert digest(updates[1].aux) == digest(updates[2].aux)
    assert digest(updates[0].aux) != digest(updates[1].aux)
