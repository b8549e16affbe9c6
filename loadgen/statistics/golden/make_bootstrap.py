"""Writes bootstrap.txt: the intervals of a few series by numpy, with the indices that SplitMix64 draws.

usage: make_bootstrap.py > bootstrap.txt   (needs numpy)

A line is: name, resamples, seed, confidence, count, the values, and what is expected of them.
"""

import numpy

MASK = (1 << 64) - 1


def split_mix(seed):
    state = seed
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def indices(seed, resamples, count):
    numbers = split_mix(seed)
    return numpy.array([[next(numbers) % count for _ in range(count)] for _ in range(resamples)])


def quantiles(values, confidence):
    tail = (1 - confidence) / 2
    return numpy.quantile(values, [tail, 1 - tail])


def line(name, *parts):
    print(name, *[repr(float(part)) if isinstance(part, float) else part for part in parts])


def main():
    generator = numpy.random.default_rng(7)
    for count, resamples, seed, confidence in [(1, 50, 1, 0.95), (7, 400, 2, 0.95), (40, 1000, 3, 0.9)]:
        values = [float(value) for value in generator.exponential(0.3, count)]
        others = [float(value) for value in generator.exponential(0.4, count)]
        drawn = indices(seed, resamples, count)
        means = numpy.array(values)[drawn].mean(axis=1)
        ratios = numpy.array(values)[drawn].sum(axis=1) / numpy.array(others)[drawn].sum(axis=1)
        line("mean", resamples, seed, confidence, count, *values, float(numpy.mean(values)),
             float(numpy.median(values)), float(numpy.quantile(values, 0.3)), *quantiles(means, confidence).tolist())
        line("ratio", resamples, seed, confidence, count, *values, *others,
             float(numpy.mean(values) / numpy.mean(others)), *quantiles(ratios, confidence).tolist())


if __name__ == "__main__":
    main()
