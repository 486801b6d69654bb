"""The paper's equations as plain loops over lists: slow, and easy to hold against the text (arXiv 2012.01700).

A vector is a list of numbers, a matrix a list of rows. Where the paper leaves room, docs/method.md says what we read.
"""

import itertools
import math
from fractions import Fraction

Vector = list[float]
Matrix = list[Vector]

NO_WEIGHT = 1e-9  # a sum of similarities below this is rounding, not an opinion


def symmetric_matrix(classes: int, ratio: float) -> Matrix:
    """Q of symmetric flipping (supplement, "Two types of noisy labels", first matrix)."""
    matrix = []
    for true in range(classes):
        row = []
        for noisy in range(classes):
            row.append(1 - ratio if noisy == true else ratio / (classes - 1))
        matrix.append(row)
    return matrix


def pair_matrix(classes: int, ratio: float) -> Matrix:
    """Q of pair flipping (supplement, second matrix): the last row wraps around to the first column."""
    matrix = []
    for true in range(classes):
        row = [0.0] * classes
        row[true] = 1 - ratio
        row[0 if true == classes - 1 else true + 1] = ratio
        matrix.append(row)
    return matrix


def keep_rate(t: int, warmup: int, tau: float) -> float:
    """R(t) = 1 - min{t / T * tau, tau} (Algorithm 1)."""
    rising = t / warmup * tau
    return 1 - (rising if rising < tau else tau)


def small_loss_set(losses: Vector, rate: float) -> set[int]:
    """Eq. 2 by trying every set D' with |D'| >= R |D|; losses are not negative, so no larger set beats the smallest."""
    needed = Fraction(str(rate)) * len(losses)
    size = 0
    while size < needed:
        size += 1
    best, lowest = (), None
    for members in itertools.combinations(range(len(losses)), size):
        total = sum((Fraction(losses[member]) for member in members), Fraction(0))
        if lowest is None or total < lowest:
            best, lowest = members, total
    return set(best)


def class_means(
    features: Matrix, labels: list[int], classes: int, keep: list[bool] | None = None
) -> tuple[Matrix, list[int]]:
    """Eq. 3 with its n-tilde; a class without samples has the zero vector."""
    size = len(features[0])
    means, counts = [], []
    for name in range(classes):
        total, count = [0.0] * size, 0
        for i in range(len(features)):
            if labels[i] == name and (keep is None or keep[i]):
                count += 1
                for j in range(size):
                    total[j] += features[i][j]
        means.append([value / count for value in total] if count else total)
        counts.append(count)
    return means, counts


def cosine(left: Vector, right: Vector) -> float:
    """The cosine of two vectors; 0 where one of them has no direction."""
    dot = left_square = right_square = 0.0
    for a, b in zip(left, right, strict=True):
        dot += a * b
        left_square += a * a
        right_square += b * b
    if left_square == 0 or right_square == 0:
        return 0.0
    return dot / math.sqrt(left_square) / math.sqrt(right_square)


def sim(left: Vector, right: Vector) -> float:
    """sim(., .): the cosine, no less than 0."""
    return max(cosine(left, right), 0.0)


def is_zero(vector: Vector) -> bool:
    """Return whether a vector is zero, as the centroid of a class without samples is."""
    return all(value == 0 for value in vector)


def blend(old: Matrix, means: Matrix, counts: list[int]) -> Matrix:
    """Eq. 4 and Eq. 13, class by class."""
    blended = []
    for before, mean, count in zip(old, means, counts, strict=True):
        if count == 0:
            blended.append(before)
        elif is_zero(before):
            blended.append(mean)
        else:
            share = sim(before, mean) ** 2
            blended.append([(1 - share) * a + share * b for a, b in zip(before, mean, strict=True)])
    return blended


def similarity_label(feature: Vector, centroids: Matrix) -> int | None:
    """Eq. 6 for one sample: the first class with the highest cosine; None where no class has a centroid."""
    best, highest = None, None
    for name, centroid in enumerate(centroids):
        if is_zero(centroid):
            continue
        value = cosine(centroid, feature)
        if highest is None or value > highest:
            best, highest = name, value
    return best


def confident_mask(features: Matrix, labels: list[int], centroids: Matrix) -> list[int]:
    """Eq. 7: m is 1 where the similarity label is the given label."""
    mask = []
    for feature, label in zip(features, labels, strict=True):
        mask.append(1 if similarity_label(feature, centroids) == label else 0)
    return mask


def softmax(logits: Vector) -> Vector:
    """The softmax layer, for one sample."""
    total = 0.0
    for logit in logits:
        total += math.exp(logit)
    return [math.exp(logit) / total for logit in logits]


def one_hot(label: int, classes: int) -> Vector:
    """The paper's bold y."""
    return [1.0 if name == label else 0.0 for name in range(classes)]


def cross_entropy(logits: Vector, target: Vector) -> float:
    """l_ce for one sample."""
    loss = 0.0
    for probability, wanted in zip(softmax(logits), target, strict=True):
        loss -= wanted * math.log(probability)
    return loss


def classification_loss(logits: Matrix, given: Matrix, pseudo: Matrix, mask: list[int]) -> Vector:
    """Eq. 1, one summand per sample: m l_ce(C(F(x)), y) + (1 - m) l_ce(C(F(x)), y-hat)."""
    losses = []
    for i in range(len(logits)):
        losses.append(
            mask[i] * cross_entropy(logits[i], given[i]) + (1 - mask[i]) * cross_entropy(logits[i], pseudo[i])
        )
    return losses


def centroid_loss_sum(features: Matrix, centroids: Matrix, labels: list[int], mask: list[int]) -> float:
    """Eq. 5 to the letter."""
    total = 0.0
    for i in range(len(features)):
        for j in range(len(features[i])):
            total += mask[i] * (features[i][j] - centroids[labels[i]][j]) ** 2
    return total


def centroid_loss_per_sample(features: Matrix, centroids: Matrix, labels: list[int], mask: list[int]) -> float:
    """Eq. 5 as a mean over the batch, confident or not."""
    return centroid_loss_sum(features, centroids, labels, mask) / len(features)


def centroid_loss_per_dimension(features: Matrix, centroids: Matrix, labels: list[int], mask: list[int]) -> float:
    """Eq. 5 as a mean over the batch and the feature dimension."""
    return centroid_loss_per_sample(features, centroids, labels, mask) / len(features[0])


def entropy(logits: Vector) -> float:
    """L_e for one sample: - sum of p log p (below Eq. 9)."""
    total = 0.0
    for probability in softmax(logits):
        if probability > 0:
            total -= probability * math.log(probability)
    return total


def ramp(t: int, start: float, length: float) -> float:
    """The share of lambda_cen in round t (supplement, "Scheduling"): 0 until `start`, full from `start + length`."""
    if t <= start:
        return 0.0
    if t >= start + length:
        return 1.0
    return (t - start) / length


def fedavg(models: Matrix, counts: list[int]) -> Vector:
    """Eq. 10: the sum of n_k / n * theta_k over the round's clients."""
    merged = [0.0] * len(models[0])
    for model, count in zip(models, counts, strict=True):
        for j in range(len(model)):
            merged[j] += count / sum(counts) * model[j]
    return merged


def centroid_weight(stored: Vector, local: Vector, count: int) -> float:
    """Eq. 12 for one client and class; absent classes do not count, and in round 1 all clients count alike."""
    if count == 0 or is_zero(local):
        return 0.0
    return 1.0 if is_zero(stored) else sim(stored, local)


def global_centroids(stored: Matrix, locals_: list[Matrix], counts: list[list[int]]) -> Matrix:
    """Eq. 11 from all clients' centroids, as the paper writes it: locals_[k][c] is f_k^c."""
    merged = []
    for name in range(len(stored)):
        weights = []
        for k in range(len(locals_)):
            weights.append(centroid_weight(stored[name], locals_[k][name], counts[k][name]))
        if sum(weights) < NO_WEIGHT:
            merged.append(stored[name])
            continue
        mean = [0.0] * len(stored[name])
        for k in range(len(locals_)):
            for j in range(len(mean)):
                mean[j] += weights[k] / sum(weights) * locals_[k][name][j]
        merged.append(mean)
    return merged


def whole_class_matrix(kind: str, classes: int, ratio: float, wrong: int) -> Matrix:
    """Q where class `wrong` never has its own label ("Different noise ratios in classes"); kind names the flipping."""
    matrix = symmetric_matrix(classes, ratio) if kind == "symmetric" else pair_matrix(classes, ratio)
    for noisy in range(classes):
        if kind == "symmetric":
            matrix[wrong][noisy] = 0.0 if noisy == wrong else 1 / (classes - 1)
        else:
            matrix[wrong][noisy] = 1.0 if noisy == (wrong + 1) % classes else 0.0
    return matrix


def group_ratios(ratio: float, spread: float, groups: int) -> Vector:
    """[epsilon - eta, epsilon + eta] divided equally ("Different noise ratios in clients")."""
    ratios = []
    for group in range(groups):
        ratios.append(ratio - spread + group * (2 * spread) / (groups - 1))
    return ratios


def group_sizes(clients: int, groups: int) -> list[int]:
    """Return the sizes of the groups after assigning clients to them in turn; the largest group comes first."""
    sizes = [0] * groups
    for client in range(clients):
        sizes[client % groups] += 1
    return sizes


def divergence(target: Vector, logits: Vector) -> float:
    """KL(y || s) for one sample (Tanaka et al. 2018, Eq. 5); 0 log 0 is 0."""
    total = 0.0
    for wanted, probability in zip(target, softmax(logits), strict=True):
        if wanted > 0:
            total += wanted * math.log(wanted / probability)
    return total


def prior(logits: Matrix) -> float:
    """KL(p || s-bar) of a batch with the uniform prior p (Tanaka et al. 2018, Eq. 7)."""
    classes = len(logits[0])
    total = 0.0
    for name in range(classes):
        mean = 0.0
        for row in logits:
            mean += softmax(row)[name] / len(logits)
        total += 1 / classes * math.log(1 / classes / mean)
    return total


def pair_similarities(features: Matrix) -> Matrix:
    """S of Deep self-learning (Han et al. 2019, Eq. 2): S_ij and S_ji are one number."""
    count = len(features)
    similar = [[0.0] * count for _ in range(count)]
    for i in range(count):
        for j in range(i, count):
            similar[i][j] = similar[j][i] = cosine(features[i], features[j])
    return similar


def critical_similarity(similar: Matrix) -> float:
    """S_c: of all entries, from the largest down, the one at 40 % of the way."""
    ranked = sorted((value for row in similar for value in row), reverse=True)
    return ranked[int(Fraction(4, 10) * len(ranked))]


def densities(similar: Matrix) -> list[int]:
    """Rho (Han et al. 2019, Eq. 3)."""
    critical = critical_similarity(similar)
    found = []
    for row in similar:
        rho = 0
        for value in row:
            if value > critical:
                rho += 1
            elif value < critical:
                rho -= 1
        found.append(rho)
    return found


def closeness(similar: Matrix, density: list[int]) -> Vector:
    """Eta (Han et al. 2019, Eq. 4)."""
    found = []
    for i in range(len(similar)):
        denser = [similar[i][j] for j in range(len(similar)) if density[j] > density[i]]
        found.append(max(denser) if denser else min(similar[i]))
    return found


def choose_prototypes(features: Matrix, count: int) -> list[int]:
    """The densest images with eta < 0.95, then the densest others; the earlier of two equals comes first."""
    similar = pair_similarities(features)
    density = densities(similar)
    eta = closeness(similar, density)
    left, chosen = list(range(len(features))), []
    while left and len(chosen) < count:
        apart = [i for i in left if eta[i] < 0.95]
        best = (apart or left)[0]
        for i in apart or left:
            if density[i] > density[best]:
                best = i
        chosen.append(best)
        left.remove(best)
    return chosen


def corrected_label(feature: Vector, prototypes: list[Matrix]) -> int:
    """The class with the largest mean cosine to its prototypes (Han et al. 2019, Eq. 5); prototypes[c] may be empty."""
    best, highest = -1, None
    for name, rows in enumerate(prototypes):
        if not rows:
            continue
        mean = 0.0
        for row in rows:
            mean += cosine(feature, row) / len(rows)
        if highest is None or mean > highest:
            best, highest = name, mean
    return best
