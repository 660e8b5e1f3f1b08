"""Works with OpenCV, which is annotated with ITT."""
import sys

import cv2
import numpy

picture = numpy.random.RandomState(1).randint(0, 255, (240, 320, 3), dtype=numpy.uint8)
total = 0
for _ in range(int(sys.argv[1])):
    grey = cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY)
    soft = cv2.GaussianBlur(grey, (5, 5), 0)
    edges = cv2.Canny(soft, 50, 150)
    total += int(cv2.resize(edges, (160, 120)).sum())
print("sum", total)
