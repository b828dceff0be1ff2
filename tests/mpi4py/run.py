"""Runs a module or some tests of mpi4py's test suite and notes each test's outcome as it goes.

Usage: mpirun -n N python run.py TESTS RESULTS NAME...
RESULTS/RANK gets a line "start TEST" for each test beforehand, and "ok|failed|skipped TEST" when it ends.
"""

import os
import sys
import unittest


class Notes(unittest.TestResult):
    """A result that writes down every outcome at once."""

    def __init__(self, file):
        super().__init__()
        self.file = file
        self.outcome = "ok"

    def note(self, word, test):
        self.file.write(f"{word} {test.id()}\n")
        self.file.flush()

    def startTest(self, test):
        super().startTest(test)
        self.outcome = "ok"

    def stopTest(self, test):
        super().stopTest(test)
        self.note(self.outcome, test)

    def addError(self, test, err):
        super().addError(test, err)
        self.fail_with(test, err)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.fail_with(test, err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.fail_with(test, err)

    def fail_with(self, test, err):
        self.outcome = "failed"
        sys.stderr.write(f"{test.id() if hasattr(test, 'id') else test}: {self._exc_info_to_string(err, test)}\n")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.outcome = "skipped"


def flat(suite):
    """The tests of a suite of suites."""
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from flat(part)
        else:
            yield part


def main():
    tests, results, *names = sys.argv[1:]
    sys.path.insert(0, tests)
    os.chdir(os.path.dirname(tests))
    # Like the suite's own runner: the module's hooks may expect the test folder's name.
    suite = unittest.defaultTestLoader.loadTestsFromNames(names)
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.Get_rank()
    with open(os.path.join(results, str(rank)), "w", encoding="utf-8") as file:
        outcome = Notes(file)
        for test in flat(suite):
            outcome.note("start", test)
        suite.run(outcome)
    return 0 if outcome.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
