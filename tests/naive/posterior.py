"""The audit of labels, one sample after the other."""

from tests.naive.equations import Matrix, Vector, symmetric_matrix


def posterior(probabilities: Vector, label: int, matrix: Matrix) -> Vector:
    """Bayes: P(class = k | image, label) = p_k Q[k][label] / sum of these; the prediction where that sum is 0."""
    joint = []
    for k in range(len(probabilities)):
        joint.append(probabilities[k] * matrix[k][label])
    total = sum(joint)
    if total == 0:
        return list(probabilities)
    return [value / total for value in joint]


def judge(probabilities: Vector, label: int, matrix: Matrix) -> tuple[int, float]:
    """Return the most probable class (ties: the label, then the first), and the probability that the label is wrong."""
    each = posterior(probabilities, label, matrix)
    best = label
    for k in range(len(each)):
        if each[k] > each[best]:
            best = k
    return best, 1 - each[label]


def counts(labels: list[int], probabilities: Matrix, classes: int) -> list[list[int]]:
    """Return counts[i][j]: samples that the model predicts as i and that are labelled j."""
    rows = [[0] * classes for _ in range(classes)]
    for label, each in zip(labels, probabilities, strict=True):
        rows[each.index(max(each))][label] += 1
    return rows


def noise_matrix(counts: list[list[int]]) -> Matrix:
    """Q: shares of the counts and symmetric noise of the same ratio, weighted by how different the two are.

    Where less than half of the labels agree with the model, symmetric noise of one half.
    """
    classes = len(counts)
    total, agree = sum(map(sum, counts)), sum(counts[k][k] for k in range(classes))
    if total == 0 or agree < total / 2:
        return symmetric_matrix(classes, 0.5)
    ratio = 1 - agree / total
    even = symmetric_matrix(classes, ratio)
    distance, cells = 0.0, 0
    for i in range(classes):
        for j in range(classes):
            if i != j and sum(counts[i]) > 0 and ratio > 0:
                expected = sum(counts[i]) * ratio / (classes - 1)
                distance += (counts[i][j] - expected) ** 2 / expected
                cells += 1
    free = max(cells - 1, 1)
    weight = 1 - free / distance if distance > free else 0.0
    mixed = []
    for i in range(classes):
        size = sum(counts[i])
        shares = [counts[i][j] / size if size else float(i == j) for j in range(classes)]
        mixed.append([weight * shares[j] + (1 - weight) * even[i][j] for j in range(classes)])
    return mixed


def learnt_noise(labels: list[int], probabilities: Matrix) -> float:
    """The smaller of two shares of the disagreements: those that the model expects, and those where it is sure."""
    doubts, differs = [], []
    for label, each in zip(labels, probabilities, strict=True):
        doubts.append(1 - max(each))
        differs.append(each.index(max(each)) != label)
    right = differs.count(False) / max(len(differs), 1)
    chance = 1 / len(probabilities[0]) if probabilities else 1.0
    if not any(differs) or right <= chance + 2 * (chance * (1 - chance) / len(differs)) ** 0.5:
        return 0.0
    mean = sum(doubts) / len(doubts)
    everywhere = sum(differs) / len(differs)
    sure = [differ for doubt, differ in zip(doubts, differs, strict=True) if doubt <= mean]
    return min(1.0, mean / everywhere, sum(sure) / len(sure) / everywhere)


def discounted(matrix: Matrix, learnt: float) -> Matrix:
    """Return Q with less weight on right labels: down to the most frequent wrong one where all labels are memorized."""
    rows = [list(row) for row in matrix]
    for j in range(len(matrix)):
        wrong = max(matrix[i][j] for i in range(len(matrix)) if i != j)
        if 0 < wrong < matrix[j][j]:
            rows[j][j] = matrix[j][j] * (wrong / matrix[j][j]) ** learnt
    return rows


def average_precision(scores: Vector, wrong: list[bool]) -> float:
    """Return the average precision: the mean, over all wrong labels, of the precision of the list down to each."""
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    shares = []
    found = 0
    for length, place in enumerate(order, start=1):
        if wrong[place]:
            found += 1
            shares.append(found / length)
    return sum(shares) / len(shares)
