"""Ranks as processes of their own on this host's GPUs, each of which answers once."""
import json
import multiprocessing
import os
import re
import socket
import time
import traceback

LIMIT_SECONDS = 90


def answer(case, rank, n, port, label, name, results):
    try:
        results.put((rank, True, case(rank, n, port, label, name)))
    except BaseException as error:  # said by the parent
        traceback.print_exc()
        results.put((rank, False, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"))
    results.close()
    results.join_thread()
    os._exit(0)


def run(case, label, n, name, silent=0):
    """Whether the case, called as `case(rank, n, port, label, name)` by each of n processes, ended well within the limit on all
    but `silent` of them. Prints a line: label, ranks, name, ok or what went wrong; with HETCCL_RESULTS=FILE it goes there as
    JSON as well."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    ranks = [context.Process(target=answer, args=(case, r, n, port, label, name, results)) for r in range(n)]
    for process in ranks:
        process.start()
    wanted, answers, end = n - silent, {}, time.monotonic() + LIMIT_SECONDS
    while len(answers) < wanted and time.monotonic() < end:
        try:
            rank, well, text = results.get(timeout=0.5)
            answers[rank] = (well, text)
        except Exception:
            if all(process.exitcode is not None for process in ranks) and results.empty():
                break
    for process in ranks:
        process.kill()
        process.join()
    well = len(answers) == wanted and all(w for w, _ in answers.values())
    missing = sorted(set(range(n)) - set(answers)) if len(answers) < wanted else []
    said = next((text for w, text in answers.values() if not w), None) or next((text for _, text in answers.values()), "")
    more = f"; no answer within {LIMIT_SECONDS} s from ranks {missing}" if missing else ""
    print(f"{label:9} n={n} {name:16} {'ok' if well else 'FAILED'}: {said}{more}", flush=True)
    if "HETCCL_RESULTS" in os.environ:
        with open(os.environ["HETCCL_RESULTS"], "a") as file:
            step = re.search(r"step ([0-9.]+) ms", said)
            us = float(step[1]) * 1e3 if step else None
            print(json.dumps(dict(label=label, ranks=n, case=name, bytes=0, us=us, ok=well, said=said + more)), file=file)
    return well
