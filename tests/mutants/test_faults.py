"""The list of faults fits the code as it is; that each is caught is shown by `make mutants`."""

import ast
from pathlib import Path

import pytest

from tests.mutants.faults import FAULTS, Fault
from tests.mutants.run import ROOT, applied, occurrences, run_tests, verdict


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_its_text_is_there_once_and_its_tests_are_there(fault: Fault) -> None:
    assert occurrences(fault) == 1, fault.file
    assert fault.old != fault.new
    ast.parse((ROOT / fault.file).read_text().replace(fault.old, fault.new))
    for test in fault.tests:
        file, _, name = test.partition("::")
        assert (ROOT / file).exists(), test
        assert not name or f"def {name.partition('[')[0]}(" in (ROOT / file).read_text(), test


def test_there_are_enough_and_no_two_are_the_same() -> None:
    assert len(FAULTS) >= 10
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) == len({(f.file, f.old, f.new) for f in FAULTS})


def test_a_fault_is_put_in_caught_and_taken_out(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("def half(x):\n    return x / 2\n")
    (tmp_path / "test_code.py").write_text("from code_ import half\n\ndef test_half():\n    assert half(4) == 2\n")
    (tmp_path / "code.py").rename(tmp_path / "code_.py")
    fault = Fault("no half", "code_.py", "x / 2", "x", ("test_code.py",))
    assert verdict(run_tests(tmp_path, fault.tests)[0]) == "SURVIVED"
    with applied(fault, tmp_path):
        assert verdict(run_tests(tmp_path, fault.tests)[0]) == "caught"
    assert "x / 2" in (tmp_path / "code_.py").read_text()
    assert verdict(run_tests(tmp_path, ["test_missing.py"])[0]) == "BROKEN"
