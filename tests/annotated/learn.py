"""Trains a model with scikit-learn, which computes with OpenMP."""
import numpy
from sklearn.ensemble import HistGradientBoostingClassifier

random = numpy.random.RandomState(1)
data = random.rand(3000, 10)
model = HistGradientBoostingClassifier(max_iter=10, random_state=1)
model.fit(data, data[:, 0] + data[:, 1] > 1)
print("score", model.score(data, data[:, 0] + data[:, 1] > 1))
