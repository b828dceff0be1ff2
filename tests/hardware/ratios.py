"""The table of two_gpus.sh: medians over rounds, ratios to stock NCCL, and what misses the aims.

    ratios.py RESULTS.jsonl

Aims: delegated within 0.98 and 1.02 of stock's time, training at most 1.01; hetccl's own path at most 1.25 times stock's time from
64 MiB on (0.8 of its bandwidth). The exit status is 1 where one is missed or a result is wrong."""
import collections
import json
import statistics
import sys


def missed(variant, bytes, ratio):
    if variant == "delegated":
        return ratio > 1.01 if bytes == 0 else not 0.98 <= ratio <= 1.02
    return variant == "own" and bytes >= 64 << 20 and ratio > 1.25


def main(path):
    times, wrong = collections.defaultdict(list), []
    with open(path) as file:
        for line in file:
            point = json.loads(line)
            if not point["ok"]:
                wrong.append(point)
            elif point["us"] is not None:
                times[point["case"], point["bytes"], point["label"]].append(point["us"])
    misses = 0
    variants = [v for v in ("delegated", "own", "staged") if any(label == v for _, _, label in times)]
    print(f"{'case':16} {'bytes':>12} {'stock us':>12}" + "".join(f" {v + ' us':>13} {'ratio':>7}" for v in variants))
    for case, bytes in dict.fromkeys((case, bytes) for case, bytes, _ in times):
        stock = statistics.median(times.get((case, bytes, "stock")) or [float("nan")])
        row = f"{case:16} {bytes:>12} {stock:>12.1f}"
        for variant in variants:
            us = statistics.median(times.get((case, bytes, variant)) or [float("nan")])
            miss = missed(variant, bytes, us / stock)
            misses += miss
            row += f" {us:>13.1f} {us / stock:>6.2f}{'!' if miss else ' '}"
        print(row)
    for point in wrong:
        print(f"WRONG: {point}")
    print(f"{misses} points miss their aim (!), {len(wrong)} results are wrong")
    return misses or wrong


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(1 if main(sys.argv[1]) else 0)
